# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep the load balancers that ask Patroni's /replica away from a standby: by the tag noloadbalance in its own configuration.

No request sets a tag, and no configuration of the whole cluster does. Each line that is changed says so, and what it was, so that the file is afterwards
as it was before. A tag that the user has set is left alone.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from contextlib import suppress
from typing import Any, Dict, List, Mapping

from ansible_collections.pgfleet.cache.plugins.module_utils import _patroni_node
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._patroni_node import Node, files, reason, yaml
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

TAG = "noloadbalance"
_OURS = "  # by pgfleet.cache"
_WAS = _OURS + ", was: "
_FILE = "zz-pgfleet.cache.yml"  # in a directory of configuration files, the last one
_EVERY = 1  # seconds between two looks
_CHECKED = 9  # seconds until a load balancer has seen it: HAProxy's three checks in Patroni's example. Until then, no sessions are not the last ones
_RELOADED = 60  # seconds until it has done it: at the latest with Patroni's next loop (loop_wait, 10 s)

_SESSIONS = """
SELECT count(*) AS sessions FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name NOT ILIKE 'patroni%%'"""

Answer = Dict[str, Any]


def empty_result() -> Answer:
    """The keys of every result, also of one that fails."""
    return {"changed": False, "member": None, "out": None, "others": [], "problem": "", "sessions": None}


def manage(data_directory: str, state: str, check_mode: bool) -> Answer:
    """What the module patroni_traffic does with Patroni."""
    node = _patroni_node.of(data_directory)
    tagged_now = bool((node.read("/patroni").get("tags") or {}).get(TAG))
    ours = _is_ours(node)
    users = bool(_tags(node.settings).get(TAG)) and not ours
    result = dict(empty_result(), member=node.name, others=others(node.name, node.read("/cluster")), out=None if users and tagged_now else tagged_now or ours)
    if users and not tagged_now:
        result["problem"] = "The tag %s in %s is not loaded yet: reload Patroni (patronictl reload), or remove it." % (TAG, node.configuration)
    if users or state == "seen":
        return result if users or ours else dict(result, problem=_problem(node))
    out = state == "out"
    if (ours, tagged_now) != (out, out):
        result["changed"] = True
        if not check_mode:
            if ours != out:
                _write(node, out)
            _reload(node, out)
            result["out"] = out
    return result


def described(result: Mapping[str, Any]) -> str:
    """A result as a sentence."""
    return "%s is %s." % (result["member"], {None: "out of traffic by its user's tag", True: "out of traffic", False: "in traffic"}[result["out"]])


def others(name: str, cluster: Mapping[str, Any]) -> List[str]:
    """The other standbys that /replica sends clients to."""
    return [str(one.get("name")) for one in cluster.get("members") or [] if (
        one.get("name") != name and one.get("role") not in _patroni_node.LEADERS and one.get("state") in _patroni_node.RUNNING
        and not (one.get("tags") or {}).get(TAG))]


def tagged(text: str) -> str:
    """A configuration with the tag. Raise ResidencyError if it is written in a way that is not understood."""
    before = yaml.safe_load(text) or {}
    lines = text.split("\n")
    at = next((number for number, line in enumerate(lines) if re.match(r"tags\s*:", line)), None)
    if at is None:
        lines.insert(len(lines) - (not lines[-1]), "tags: {%s: true}%s" % (TAG, _OURS))
    elif re.match(r"tags\s*:\s*\{", lines[at]):
        kept = {key: value for key, value in _tags(before).items() if key != TAG}
        lines[at] = "tags: %s%s%s" % (yaml.safe_dump(dict(kept, **{TAG: True}), default_flow_style=True, width=10000).strip(), _WAS, lines[at])
    else:
        inner = next((number for number in range(at + 1, len(lines)) if re.match(r"\s+%s\s*:" % TAG, lines[number])), None)
        first = next((line for line in lines[at + 1:] if line.strip() and not line.lstrip().startswith("#")), "")
        indent = first[:len(first) - len(first.lstrip())] or "  "
        if inner is not None:
            lines[inner] = "%s%s: true%s%s" % (indent, TAG, _WAS, lines[inner])
        else:
            lines.insert(at + 1, "%s%s: true%s" % (indent, TAG, _OURS))
    after = "\n".join(lines)
    with suppress(yaml.YAMLError):
        if yaml.safe_load(after) == dict(before, tags=dict(_tags(before), **{TAG: True})):
            return after
    raise ResidencyError("its section tags is not written as one line, or as one line for each tag")


def untagged(text: str) -> str:
    """The configuration as it was before tagged(). Raise ResidencyError if another tag has been changed in our line since then."""
    lines = []
    for line in text.split("\n"):
        if _WAS in line:
            lines.append(line.partition(_WAS)[2])
        elif not line.endswith(_OURS):
            lines.append(line)
    after = "\n".join(lines)
    before, now = (dict(_tags(yaml.safe_load(one) or {}), **{TAG: None}) for one in (text, after))
    if before != now:
        raise ResidencyError("its tags were changed meanwhile, so remove this one by hand")
    return after


def _tags(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    found = settings.get("tags")
    return found if isinstance(found, dict) else {}


def _is_ours(node: Node) -> bool:
    """Whether the tag in the configuration is one that was set here."""
    if os.path.isdir(node.configuration):
        return os.path.exists(os.path.join(node.configuration, _FILE))
    with suppress(OSError), open(node.configuration, encoding="utf-8") as file:  # Patroni has read it; what cannot be is said when it is written
        return _OURS in file.read()
    return False


def _problem(node: Node) -> str:
    """Why the tag could not be set; empty if it could."""
    try:
        path = _place(node)
        if os.path.isdir(node.configuration):
            if files(node.configuration)[-1] > path:
                return _sentence(node, True, "a file there sorts after %s" % _FILE)
            return "" if os.access(node.configuration, os.W_OK) else _sentence(node, True, os.strerror(errno.EACCES))
        tagged(_text(path))
        return "" if os.access(path, os.W_OK) else _sentence(node, True, os.strerror(errno.EACCES))
    except (OSError, ResidencyError, yaml.YAMLError) as error:
        return _sentence(node, True, str(error) if isinstance(error, ResidencyError) else reason(error))


def _sentence(node: Node, out: bool, why: str) -> str:
    return "The tag %s cannot be %s in %s, the configuration of Patroni: %s. It has to be a file of the user that Patroni runs as." % (
        TAG, "set" if out else "removed", node.configuration, printable(why, 200))


def _place(node: Node) -> str:
    """The file with the tag. A symbolic link stays one."""
    if not os.path.isabs(node.configuration):
        raise ResidencyError("it is in the environment of Patroni")
    return os.path.join(node.configuration, _FILE) if os.path.isdir(node.configuration) else os.path.realpath(node.configuration)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _write(node: Node, out: bool) -> None:
    try:
        path = _place(node)
        if not os.path.isdir(node.configuration):
            text = _text(path)
            _replace(path, tagged(text) if out else untagged(text))
        elif out:
            _replace(path, "tags:\n  %s: true%s\n" % (TAG, _OURS))
        else:
            os.unlink(path)
    except (OSError, ResidencyError, yaml.YAMLError) as error:
        raise ResidencyError(_sentence(node, out, str(error) if isinstance(error, ResidencyError) else reason(error))) from None


def _replace(path: str, text: str) -> None:
    """As a whole; in place where nobody else may make files beside it, or its group could not be kept."""
    try:
        status = os.stat(path) if os.path.exists(path) else None
        descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".pgfleet.")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            try:
                if status is not None:
                    os.fchown(descriptor, status.st_uid, status.st_gid)
                os.fchmod(descriptor, status.st_mode & 0o7777 if status is not None else 0o640)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
    except PermissionError:
        before = _text(path)
        try:
            _overwrite(path, text)
        except OSError:
            _overwrite(path, before)  # for which there is room
            raise


def _overwrite(path: str, text: str) -> None:
    left = text.encode("utf-8")
    with open(path, "r+b", buffering=0) as file:
        while left:
            left = left[file.write(left):]
        file.truncate()
        os.fsync(file.fileno())


def sessions_left(session: Session, timeout: int, changed: bool) -> int:
    """How many sessions of clients have not ended within ``timeout`` seconds; ``changed`` is whether load balancers have yet to see the tag."""
    began, least = time.monotonic(), _CHECKED if changed else 0
    while True:
        found = int(session.rows(_SESSIONS)[0]["sessions"])
        seconds = time.monotonic() - began
        if seconds >= timeout or (not found and seconds >= least):
            return found
        time.sleep(_EVERY)


def _reload(node: Node, out: bool) -> None:
    """Let Patroni read its configuration, and wait until /replica answers as the tag says."""
    status, text = node.ask("POST", "/reload")
    if status not in (200, 202):
        raise ResidencyError("Patroni of %s does not reload its configuration (%d, %s): see its log." % (node.name, status, printable(text.strip(), 200)))
    until = time.monotonic() + _RELOADED
    while True:
        found = node.read("/patroni")
        status = node.ask("GET", "/replica")[0]
        # one that was promoted meanwhile is no replica, whatever its tags
        if bool((found.get("tags") or {}).get(TAG)) == out and ((status == 200) != out or found.get("role") != "replica"):
            return
        if time.monotonic() > until:
            raise ResidencyError("Patroni of %s still answers %d at /replica, %d s after its tag %s was %s: see its log, and patronictl list." % (
                node.name, status, _RELOADED, TAG, "set" if out else "removed"))
        time.sleep(_EVERY)
