"""build-tools/failures.py FILE: what has failed, of a file of pytest's --junitxml (family xunit1), each in a line with the reason."""

from __future__ import annotations

import sys
import xml.etree.ElementTree

for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            reason = (found.get("message") or found.text or "").strip().partition("\n")[0]
            print("failed: %s::%s\t%s" % (case.get("file"), case.get("name"), reason[:200]))
            break
