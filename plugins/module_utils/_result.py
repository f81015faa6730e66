# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""End a module with the result or the error of its engine."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _connection
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable, printable_lines, shown


class Module(AnsibleModule):
    """A module that logs in. Hides a password in an option that is no secret as a whole, also if other options are wrong.

    AnsibleModule fails because of wrong suboptions before it has collected what is not to be shown.
    """

    def _log_invocation(self) -> None:
        """Write to the log of the host."""
        self.no_log_values.update(_connection.secrets(self.params))
        super()._log_invocation()

    def exit_json(self, **kwargs: Any) -> Any:
        self.no_log_values.update(_connection.secrets(self.params))
        super().exit_json(**kwargs)

    def fail_json(self, msg: str, **kwargs: Any) -> Any:
        self.no_log_values.update(_connection.secrets(self.params))
        super().fail_json(msg, **kwargs)


def finish(module: AnsibleModule, run: Callable[[AnsibleModule], Dict[str, Any]], empty: Dict[str, Any]) -> None:
    """Run, and end the module; ``empty`` has the keys that every result has."""
    failure = None
    _connection.application_name = "pgfleet.cache %s" % module._name.rpartition(".")[2]
    try:
        result = run(module)
    except ResidencyError as error:
        failure = str(error)
        result = dict(empty, **error.result)
    for warning in result.pop("warnings", []):
        module.warn(printable(warning))
    diff = result.pop("diff", None)
    if module._diff and diff is not None:
        result["diff"] = {key: printable_lines(text) for key, text in diff.items()}
    # what a query returned is data, which is exact; of a relation, the numbers beside its name are
    rows = {} if failure is not None or "query_result" not in result else {"query_result": result["query_result"]}
    result = dict(shown(result), **rows)
    if failure is not None:
        module.fail_json(**dict(result, msg=printable(failure)))
    if "msg" in result:
        result["msg"] = printable(result["msg"])
    module.exit_json(**result)
