# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parameters of PostgreSQL in the configuration of a Patroni cluster, which each member applies in its next loop, and those in a member's own.

GET /config answers what the last loop of this member has read. A PATCH that changes nothing answers what there is now (with etcd3, Patroni 4 has it from a
watch), and finds a wrong password before anything is changed.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Union

from ansible_collections.pgfleet.cache.plugins.module_utils import _patroni_node
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import EXTENSION, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._preload_place import (
    LIBRARIES,
    PARAMETERS,
    UNITS,
    Place,
    has_ours,
    listed,
    names,
    prefixed,
    with_ours,
    without_ours,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

_NOTHING = {"pgfleet.cache": None}  # removes a key that there is not
_SECONDS = 30  # for an answer, of a store that may have to elect a leader first
_APPLIED = 60  # seconds until Patroni has applied its cluster's configuration: its next loop does, loop_wait (10 s) later
_TRIES = 5  # to change it, while others change it too
_EVERY = 0.2  # seconds between two looks at either
_IN_FORCE = """
SELECT name, pg_catalog.current_setting(name, true) AS value, (SELECT s.sourcefile FROM pg_catalog.pg_settings AS s WHERE s.name = n.name) AS file
FROM pg_catalog.unnest(%s::pg_catalog.text[]) AS n (name)
"""

Values = Dict[str, str]
Changes = Mapping[str, Optional[str]]  # None removes a parameter


class Configuration:
    """Of the cluster whose member keeps the server of this data directory running."""

    def __init__(self, data_directory: str) -> None:
        self._node = _patroni_node.of(data_directory)
        self._spelled: Dict[str, str] = {}
        self.member = self._node.name
        self.path = self._node.configuration  # of the member's own

    def read(self) -> Values:
        """The parameters that it sets, with their names in lower case, as Patroni compares them."""
        return self._ask(_NOTHING)

    def patch(self, changes: Changes) -> None:
        """Set these parameters, or remove some. Has no effect if somebody else has changed the configuration in the same moment."""
        self._ask(self.request(changes))

    def request(self, changes: Changes) -> Dict[str, Any]:
        """The body of the PATCH, after read()."""
        return {"postgresql": {"parameters": {self._spelled.get(name, name): value for name, value in changes.items()}}}

    def own(self) -> Values:
        """The parameters in the member's own configuration, which count more."""
        return {name.lower(): str(value) for name, value in _parameters(self._node.settings).items()}

    def members(self) -> List[Mapping[str, Any]]:
        """Of the cluster, as GET /cluster has them."""
        return self._node.read("/cluster").get("members") or []

    def _ask(self, body: Mapping[str, Any]) -> Values:
        try:
            status, text = self._node.ask("PATCH", "/config", body, seconds=_SECONDS)
        except _patroni_node.Refused:
            raise
        except ResidencyError:
            self._node.read("/patroni")  # or the whole API does not answer
            raise ResidencyError(
                "Patroni of %s does not reach the configuration of its cluster: see patronictl list, and its log, and run this again." % self.member) from None
        if status == 409 and body is not _NOTHING:
            return {}
        with suppress(ValueError):
            found = json.loads(text)
            if status == 200 and isinstance(found, dict):
                parameters = _parameters(found)
                self._spelled = {name.lower(): name for name in parameters}
                return {name.lower(): str(value) for name, value in parameters.items()}
        raise ResidencyError("Patroni of %s does not read or change the configuration of its cluster (%d, %s): see patronictl list, and its log." % (
            self.member, status, printable(text.strip(), 200)))


class Override(NamedTuple):
    """What counts more than the configuration of a cluster."""

    value: str
    where: str
    remedy: str


class Cluster(Place):
    """The configuration of a Patroni cluster as the place of our settings. From it and the member's own, Patroni writes postgresql.conf, our ``path``.

    ``found`` has the own_member() of the hosts on which the library is; None does not check that.
    """

    def __init__(
        self, session: Session, path: str, automatic: str, configuration: Configuration, found: Optional[Iterable[Mapping[str, Any]]]
    ) -> None:
        super().__init__(session, path, automatic)
        self._configuration = configuration
        self._member = configuration.member
        self._found = None if found is None else {str(one.get("api_url")): one for one in found}
        where = "set in %s of %s" % (printable(configuration.path), self._member)
        self._over = {name: Override(value, where, "remove it there, and reload Patroni") for name, value in configuration.own().items()}
        self._over.update({
            name: Override(line.value, "set with ALTER SYSTEM on %s" % self._member, "run ALTER SYSTEM RESET %s there" % name)
            for name, line in self.outside.items() if line.file == automatic})
        below = self.outside.get(LIBRARIES)  # a file that Patroni's includes
        self._libraries = without_ours(below.value if below else "")
        self._read()

    def _read(self) -> None:
        self.ours = {name: value for name, value in self._configuration.read().items() if name == LIBRARIES or name.startswith(EXTENSION + ".")}

    def own_member(self) -> Dict[str, Any]:
        """Its name, its address in the cluster, and the libraries of its files; empty if it is not yet a member."""
        own = [one for one in self._configuration.members() if one.get("name") == self._member]
        return {"name": self._member, "api_url": own[0].get("api_url"), "libraries": self._libraries} if own else {}

    def present(self, parameters: Mapping[str, Any]) -> Values:
        wanted = prefixed(parameters)
        for name, value in wanted.items():
            if name in self._over and self._over[name].value != value:
                raise self._overridden(name)
        there, over = self.ours.get(LIBRARIES), self._over.get(LIBRARIES)
        if over and not has_ours(over.value):
            raise self._overridden(LIBRARIES)
        if over is None and not has_ours(there):
            self._check_members()
            wanted[LIBRARIES] = with_ours(self._libraries if there is None else names(there))
        elif there is not None:
            wanted[LIBRARIES] = there  # as somebody has written it
        return wanted

    def absent(self) -> Values:
        there, over = self.ours.get(LIBRARIES), self._over.get(LIBRARIES)
        if over and has_ours(over.value):
            raise self._overridden(LIBRARIES)
        if there is not None and not has_ours(there):
            return {LIBRARIES: there}
        kept = without_ours(there)
        if not kept:
            self.refuse_outside()
        return {LIBRARIES: listed(kept)} if kept else {}

    def request(self, changes: Changes) -> str:
        return "PATCH /config %s" % json.dumps(self._configuration.request(changes), sort_keys=True)

    def change(self, changes: Changes, plan: Callable[[], Changes]) -> None:
        """Until ``plan`` finds nothing left to change: the libraries are one value, in which those that another host has just added may be missing."""
        for dummy in range(_TRIES):
            if not changes:
                return
            self._configuration.patch(changes)
            self._read()
            changes = plan()
            time.sleep(_EVERY if changes else 0)
        if changes:
            raise ResidencyError("Somebody else changes the configuration of the cluster of %s at the same time: run this again." % self._member)

    def wait(self, session: Session, wanted: Values, preloads: Optional[bool]) -> None:
        """Until the parameters are in force here, and the next start preloads the library, or no longer. ``preloads`` is None if it is as it was.

        Patroni does not write its file again for another text of the same value.
        """
        deadline = time.monotonic() + _APPLIED
        while True:
            late = []
            for row in session.rows(_IN_FORCE, (["%s.%s" % (EXTENSION, name) for name in PARAMETERS],)):
                name, value = row["name"], row["value"]
                if amount(name, value) != amount(name, wanted[name]) if name in wanted else row["file"] == self.path and name not in self._over:
                    late.append(name)
            line = Place(session, self.path, self.automatic).last.get(LIBRARIES)
            if preloads not in (None, has_ours(line.value if line else "")):
                late.append(LIBRARIES)
            if not late:
                return
            if time.monotonic() >= deadline:
                raise ResidencyError("Patroni of %s has not applied %s of its cluster's configuration in %d s: see its log." % (
                    self._member, " and ".join(late), _APPLIED))
            time.sleep(_EVERY)

    def _overridden(self, name: str) -> ResidencyError:
        over = self._over[name]
        return ResidencyError("%s is %s, which overrides the cluster's configuration: %s. Nothing was changed." % (name, over.where, over.remedy))

    def _check_members(self) -> None:
        """Raise ResidencyError if a member would not start with the libraries that all of them are about to get."""
        if self._found is None:
            return
        members = {str(one.get("api_url")): str(one.get("name")) for one in self._configuration.members()}
        missing = [name for url, name in members.items() if url not in self._found]
        if missing:
            raise ResidencyError(
                "It is not known whether %s is on %s of this cluster, where PostgreSQL would not start again without it: run the playbook"
                " pgfleet.cache.install, and then this, with all members of the cluster in one play. Nothing was changed." % (
                    EXTENSION, printable(", ".join(missing), 200)))
        others = [name for url, name in members.items() if self._found[url].get("libraries") != self._libraries]
        if others and LIBRARIES not in self.ours:
            raise ResidencyError(
                "The configuration files of %s and %s do not preload the same libraries, and the cluster's configuration has one list for both: set %s there,"
                " with patronictl edit-config, to libraries that all members have. Nothing was changed." % (
                    self._member, printable(others[0], 100), LIBRARIES))


def amount(name: str, value: Optional[str]) -> Union[int, str, None]:
    """Seconds or kB, or MB, as PostgreSQL rounds them: it shows 1min for 60s. What is no number stays text."""
    number = re.fullmatch("([0-9]+) ?(%s)" % "|".join(UNITS), value or "")
    if not number:
        return value
    found = int(number.group(1)) * UNITS[number.group(2)]
    return round(found / 1024) if name == EXTENSION + ".budget" else found


def _parameters(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    section = settings.get("postgresql")
    found = section.get("parameters") if isinstance(section, dict) else None
    return found if isinstance(found, dict) else {}
