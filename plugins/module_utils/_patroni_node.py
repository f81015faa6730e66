# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Patroni that keeps a PostgreSQL server running: its process, its configuration, and its REST API as patronictl would use it.

Patroni has to run as the owner of the data directory, who is the one that runs this.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _managers, _processes, _service
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_LARGEST = 1 << 20  # bytes of a configuration file, or of an answer
SECONDS = 10  # for an answer that is known already
LEADERS = ("leader", "standby_leader")
RUNNING = ("running", "streaming", "in archive recovery")  # states of a member; a standby is running until 3.0.3
_ENVIRONMENT = "its environment"
# What the environment of Patroni may say instead of its configuration file, and where it stands there
_VARIABLES = {
    "PATRONI_NAME": ("name",),
    "PATRONI_POSTGRESQL_DATA_DIR": ("postgresql", "data_dir"),
    **{"PATRONI_RESTAPI_" + key.upper(): ("restapi", key) for key in ("listen", "connect_address", "certfile", "keyfile", "keyfile_password", "cafile")},
    **{"PATRONI_RESTAPI_" + key.upper(): ("restapi", "authentication", key) for key in ("username", "password")},
    **{"PATRONI_CTL_" + key.upper(): ("ctl", key) for key in ("certfile", "keyfile", "keyfile_password", "cacert", "insecure")},
}

Settings = Dict[str, Any]


class Refused(ResidencyError):
    """By the API: this user may not ask."""


@dataclass(frozen=True)
class Node:
    name: str
    configuration: str  # a file, a directory, or _ENVIRONMENT
    address: str  # host:port
    settings: Settings
    pid: int = 0

    @property
    def url(self) -> str:
        return "%s://%s" % ("https" if _part(self.settings, "restapi").get("certfile") else "http", self.address)

    def ask(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None, seconds: float = SECONDS) -> Tuple[int, str]:
        """The status and the text of the answer, of at most 1 MiB. Raise ResidencyError if there is none, or if this user may not ask."""
        headers = {"Content-Type": "application/json"}
        restapi = _part(self.settings, "restapi")
        login = _part(restapi, "authentication")
        user, dummy, password = str(restapi.get("auth") or "").partition(":")  # the older form
        if login.get("username"):
            user, password = str(login["username"]), str(login.get("password") or "")
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(("%s:%s" % (user, password)).encode("utf-8")).decode("ascii")
        try:
            connection = self._connection(seconds)
            try:
                connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                answer = connection.getresponse()
                status, text = answer.status, answer.read(_LARGEST).decode("utf-8", "replace")
            finally:
                connection.close()
        except ssl.SSLError as error:
            raise ResidencyError(
                "Patroni's API at %s refuses TLS, or is not trusted: %s. Check restapi and ctl (cacert, certfile, keyfile) in %s." % (
                    self.url, printable(error, 200), self.configuration)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if method == "POST" and not isinstance(error, ConnectionRefusedError):
                raise ResidencyError("Patroni's API at %s has not answered POST %s (%s): see patronictl list, and run the playbook again." % (
                    self.url, path, printable(error, 200) or type(error).__name__)) from None
            raise ResidencyError("Patroni's API at %s does not answer: %s. Start Patroni, or correct restapi.connect_address in %s." % (
                self.url, printable(error, 200) or type(error).__name__, self.configuration)) from None
        if status == 401:
            raise Refused("Patroni's API at %s wants another password: correct restapi.authentication in %s, which patronictl uses too." % (
                self.url, self.configuration))
        if status == 403:
            raise Refused("Patroni's API at %s refuses this host (%s): check restapi.allowlist, and ctl.certfile, in %s." % (
                self.url, printable(text.strip(), 200), self.configuration))
        return status, text

    def read(self, path: str) -> Dict[str, Any]:
        """What a GET answers."""
        status, text = self.ask("GET", path)
        with suppress(ValueError):
            found = json.loads(text)
            if status == 200 and isinstance(found, dict):
                return found
        raise ResidencyError("Patroni's API at %s%s answers %d: %s. Look into the log of Patroni." % (self.url, path, status, printable(text.strip(), 200)))

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        """As patronictl does it, with the section ctl."""
        if not self.url.startswith("https:"):
            return http.client.HTTPConnection(self.address, timeout=seconds)
        restapi, ctl = _part(self.settings, "restapi"), _part(self.settings, "ctl")
        own = ctl if ctl.get("certfile") else restapi
        try:
            context = ssl.create_default_context(cafile=ctl.get("cacert") or restapi.get("cafile"))
            context.load_cert_chain(own["certfile"], own.get("keyfile"), own.get("keyfile_password"))
        except (FileNotFoundError, PermissionError) as error:  # neither has the path
            raise ResidencyError("The certificates and keys that ctl and restapi name in %s cannot be read by this user: %s." % (
                self.configuration, error.strerror)) from None
        if str(ctl.get("insecure")).lower() in ("true", "on", "yes", "1"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(self.address, timeout=seconds, context=context)


def of(data_directory: str) -> Node:
    """The one that keeps the server of this data directory running."""
    if yaml is None:
        raise ResidencyError("Reading the configuration of Patroni needs PyYAML in this host's Python: install the package python3-yaml.")
    found = [_node(*one) for one in _running() if _is_of(one[2], data_directory)]
    if len(found) != 1:
        raise ResidencyError("%s Patroni of this user keeps the server in %s running: set pgfleet_service_manager to what starts it." % (
            "No" if not found else "More than one", printable(data_directory, 300)))
    return found[0]


def unit(node: Node) -> Optional[str]:
    """The systemd unit that runs it, if one does."""
    with suppress(OSError), closing(_processes.Pinned(node.pid)) as pinned:  # it has ended, which its API says too
        return _service.unit_of(pinned)
    return None


def _running() -> Iterator[Tuple[int, str, Settings]]:
    """The Patronis of this user: a process, where its configuration is, and what that says. One that has forked counts once."""
    seen = set()
    for process in _processes.everyone():
        if not _managers.is_patroni(process.title):
            continue
        with suppress(OSError), closing(_processes.Pinned(process.pid)) as pinned:  # or it has ended
            if pinned.user() != os.geteuid():
                continue
            arguments = pinned.read("cmdline").split("\0")
            environment = dict(word.split("=", 1) for word in pinned.read("environ").split("\0") if "=" in word)
            here = os.readlink("cwd", dir_fd=pinned.descriptor)
            where, settings = _settings(_configuration(arguments), here, environment)
            if where not in seen or where == _ENVIRONMENT:
                yield process.pid, where, settings
            seen.add(where)


def _configuration(arguments: List[str]) -> str:
    """The path among the arguments; empty if there is none."""
    words = [word for word in arguments if word]
    program = next((number for number, word in enumerate(words) if re.search(r"(^|/)patroni$", word)), len(words))
    return next((word for word in reversed(words[program + 1:]) if not word.startswith("-")), "")


def _settings(path: str, here: str, environment: Mapping[str, str]) -> Tuple[str, Settings]:
    """Where the configuration is, and what it says: of a file, or of all in a directory, and of the environment."""
    where = os.path.join(here, path) if path else _ENVIRONMENT
    texts: List[str] = [] if path else [environment.get("PATRONI_CONFIGURATION", "")]
    found: Settings = {}
    try:
        for file in files(where) if path else ():
            with open(file, encoding="utf-8") as opened:
                texts.append(opened.read(_LARGEST))
        for text in texts:
            _merge(found, yaml.safe_load(text) or {})
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise ResidencyError("The configuration of Patroni in %s cannot be read: %s." % (where, reason(error))) from None
    for name, place in _VARIABLES.items() if not any(texts) or path else ():  # PATRONI_CONFIGURATION is all, if it is there
        if environment.get(name):
            *outer, last = place
            inner = found
            for key in outer:
                if not isinstance(inner.get(key), dict):
                    inner[key] = {}
                inner = inner[key]
            inner[last] = environment[name]
    return where, found


def files(path: str) -> List[str]:
    """The configuration files, in the order in which a later one counts: of a directory all, as Patroni takes them."""
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith((".yml", ".yaml"))]


def reason(error: Exception) -> str:
    """Without the text of a configuration, in which a password may stand."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return "line %d: %s" % (mark.line + 1, str(getattr(error, "problem", "")).partition(" '")[0])  # what it quotes is from the file
    return str(getattr(error, "strerror", None) or "it is no YAML mapping")


def _merge(into: Settings, more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _is_of(settings: Settings, data_directory: str) -> bool:
    named = _part(settings, "postgresql").get("data_dir")
    return bool(named) and os.path.realpath(str(named)) == os.path.realpath(data_directory)


def _node(pid: int, configuration: str, settings: Settings) -> Node:
    restapi = _part(settings, "restapi")
    address = str(restapi.get("connect_address") or restapi.get("listen") or "127.0.0.1:8008")
    # what listens everywhere listens here
    address = re.sub(r"^(0\.0\.0\.0|\*|\[?::\]?):", "127.0.0.1:", address)
    return Node(str(settings.get("name") or os.uname().nodename), configuration, address, settings, pid)


def _part(settings: Mapping[str, Any], key: str) -> Settings:
    found = settings.get(key)
    return found if isinstance(found, dict) else {}
