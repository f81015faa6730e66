"""build-tools/failures.py FILE: what has failed, of a file of pytest's --junitxml (family xunit1), each in a line with the reason. Nothing if a
fixture has failed while it ended: that is booked under the test which ran last, and not what this one run alone would show again."""

from __future__ import annotations

import sys
import xml.etree.ElementTree

found: dict[str, str] = {}
for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
    for kind in ("failure", "error"):
        for one in case.findall(kind):
            reason = (one.get("message") or one.text or "").strip().partition("\n")[0]
            if reason.startswith("failed on teardown"):
                print("A fixture has failed while it ended, after %s: not tried again" % case.get("name"))
                sys.exit()
            found.setdefault("%s::%s" % (case.get("file"), case.get("name")), reason[:200])
for name, reason in found.items():
    print("failed: %s\t%s" % (name, reason))
