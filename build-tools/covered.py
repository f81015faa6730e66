"""That tests of integration give bad input to every module that logs in and to every option of a restore with a range or a form, and run every
module four times: in check mode, really, in check mode again, really again."""

from __future__ import annotations

import ast
import pathlib
import sys
from typing import Iterator

import yaml
from ansible_collections.pgfleet.cache.plugins.module_utils import _residency_restore

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests/integration"
ON_THE_CONTROLLER = {"check_variables", "fleet_report", "restart_plan"}  # the action plugin does all of it


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The values of the names that a file of tests gives at its top."""
    found = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            for one, its in zip(target.elts, value.elts) if several else [(target, value)]:  # type: ignore[attr-defined]
                if isinstance(one, ast.Name):
                    found[one.id] = its
    return found


def text(expression: ast.expr, names: dict[str, ast.expr]) -> str:
    return str(ast.literal_eval(names[expression.id] if isinstance(expression, ast.Name) else expression))


def bad_input() -> dict[str, set[str]]:
    """{module: options that are given a wrong value}"""
    names = constants(ast.parse((TESTS / "test_messages.py").read_text(encoding="utf-8")))
    found: dict[str, set[str]] = {}
    for row in names["BAD_INPUT"].elts:  # type: ignore[attr-defined]
        module, options = row.elts[:2]
        found.setdefault(text(module, names), set()).update(key.value for key in options.keys if key is not None)
    return found


def four_runs() -> set[str]:
    """By ``four_runs("x", ...)`` of test_changes.py or ``four("x", ...)`` of playbook.py."""
    found = set()
    for path in TESTS.glob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("four", "four_runs"):
                found.add(text(call.args[0], constants(tree)))
    return found


def problems() -> Iterator[str]:
    bad = bad_input()
    group = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))["action_groups"]["residency"]
    for name in sorted(set(group) - set(bad)):
        yield "%s has no row in BAD_INPUT of test_messages.py" % name
    for option in sorted({*_residency_restore.RANGES, *_residency_restore.FORMS} - bad["residency_restore"]):
        yield "residency_restore's option %s has no row in BAD_INPUT of test_messages.py" % option
    modules = {path.stem for path in (ROOT / "plugins/modules").glob("[a-z]*.py")}
    for name in sorted((modules - ON_THE_CONTROLLER) ^ four_runs()):
        yield "%s is not run four times, or is no module" % name


if __name__ == "__main__":
    missing = list(problems())
    print("\n".join(missing))
    sys.exit(1 if missing else 0)
