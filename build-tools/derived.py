"""Write what follows from the argument specifications and from the modules' documentation, or check it (--check).

Sources: roles/*/meta/argument_specs.yml (that of cache_common has what roles share), the documentation of plugins/modules/*.py.
Derived: the options of residency_restore in the specification of cache_warmup, roles/*/defaults/main.yml, the tables of variables in
roles/*/README.md, the table of modules in README.md.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
import textwrap
from typing import Any, Dict, Iterator, List, Tuple

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = "make derived"
COMMON = "cache_common"
WIDTH = 150

# What the role cache_warmup gives the module itself; every other option of the module is a variable of the role.
NOT_OF_THE_ROLE = ("name", "lease_file", "lease_id", "take_over", "job", "digest", "wait", "wait_sleep", "waited")

# Below the table of each other role
SHARED = (
    "The variables `pgfleet_*`, such as the login, are those of [cache_common](../cache_common/README.md), which all roles share: set them once, in"
    " group_vars.")

# The first sentence of a module that is not in the README's table
INTERNAL = "Internal. The playbooks and roles of this collection call it, and its options may change with every version."

Options = Dict[str, Dict[str, Any]]


def main(check: bool) -> int:
    wrong = []
    for path, text in derived():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong.append(path.relative_to(ROOT))
            if not check:
                path.write_text(text, encoding="utf-8")
    for one in wrong:
        print("%s %s" % (one, "is not what its sources say: run '%s', and commit what it writes" % COMMAND if check else "written"))
    return 1 if check and wrong else 0


def derived() -> Iterator[Tuple[pathlib.Path, str]]:
    for role in sorted(ROOT.glob("roles/*")):
        path = role / "meta/argument_specs.yml"
        text = path.read_text(encoding="utf-8")
        if role.name == "cache_warmup":
            text = between(text, "# %s", "options of residency_restore", restore_options())
            yield path, text
        found: Options = {}
        for entry_point in yaml.safe_load(text)["argument_specs"].values():
            found.update(entry_point["options"])
        yield role / "defaults/main.yml", defaults(found, "meta/argument_specs.yml")
        rows = (table(found) if found else []) + ([] if role.name == COMMON else [*([""] if found else []), SHARED])
        yield role / "README.md", between((role / "README.md").read_text(encoding="utf-8"), "<!-- %s -->", "variables", rows)
    path = ROOT / "README.md"
    rows = ["| module | what it does |", "| --- | --- |"]
    rows += ["| `%s` | %s |" % (name, markdown(found["short_description"])) for name, found in modules().items() if found["description"][0] != INTERNAL]
    yield path, between(path.read_text(encoding="utf-8"), "<!-- %s -->", "modules", rows)


def between(text: str, comment: str, name: str, lines: List[str]) -> str:
    """The text with these lines between the marks of this name, which keep their indentation."""
    begin, end = comment % (r"begin %s[^\n]*" % name), comment % ("end %s" % name)
    mark = re.compile(r"^( *)(%s)\n.*?^ *%s$" % (begin, end), re.MULTILINE | re.DOTALL)
    if not mark.search(text):
        raise SystemExit("There is no part '%s' any more, between '%s' and '%s'" % (name, comment % ("begin " + name), end))

    def part(found: "re.Match[str]") -> str:
        inner = textwrap.indent("\n".join(lines) + "\n", found.group(1))
        return "%s%s\n%s%s%s" % (found.group(1), found.group(2), inner, found.group(1), end)

    return mark.sub(part, text)


# --- the specifications ---


def restore_options() -> List[str]:
    """A number that has no default is any value here: a variable that is not set is the empty text."""
    options = {name: one for name, one in modules()["residency_restore"]["options"].items() if name not in NOT_OF_THE_ROLE}
    lines: List[str] = []
    for name, one in options.items():
        words = one["description"][0]
        for other in options:
            words = words.replace("O(%s)" % other, "O(cache_warmup_%s)" % other)
        option = {"description": words, **{key: one[key] for key in ("type", "elements", "choices", "default") if key in one}}
        if "default" not in one:
            option.update(default="", description=words + " Empty means that it is not set.", type="str" if one["type"] == "str" else "raw")
        lines += plain("cache_warmup_" + name, option)
    return lines


def plain(name: str, option: Dict[str, Any]) -> List[str]:
    lines = ["%s:" % name, "  description: >-", *textwrap.wrap(option["description"], WIDTH - 20, initial_indent="    ", subsequent_indent="    ")]
    return lines + ["  %s: %s" % (key, scalar(value)) for key, value in option.items() if key != "description"]


def scalar(value: Any) -> str:
    if value == "" or (isinstance(value, str) and "{{" in value):
        return '"%s"' % value
    return str(yaml.safe_dump(value, default_flow_style=True, width=10**6)).partition("\n")[0]


# --- what follows from them ---


def defaults(options: Options, source: str) -> str:
    lines = ["---", "# Written by `%s` from %s" % (COMMAND, source)]
    for name, option in options.items():
        lines += ["", *textwrap.wrap(unmarked(words_of(option)), WIDTH - 20, initial_indent="# ", subsequent_indent="# ")]
        if "choices" in option:
            lines.append("# Choices: %s" % ", ".join(option["choices"]))
        lines.append("%s: %s%s" % (name, scalar(option["default"]), " # noqa: var-naming[no-role-prefix]" if name.startswith("pgfleet_") else ""))
    return "\n".join(lines) + "\n"


def table(options: Options) -> List[str]:
    rows = ["| variable | default | description |", "| --- | --- | --- |"]
    for name, option in options.items():
        words = markdown(words_of(option))
        missing = [one for one in option.get("choices", []) if "`%s`" % one not in words]
        if missing:
            words += " Choices: %s." % ", ".join("`%s`" % one for one in option["choices"])
        rows.append("| `%s` | %s | %s |" % (name, shown(option["default"]), words.replace("|", r"\|")))
    return rows


def shown(default: Any) -> str:
    """A template is the variable that it names, and its own default."""
    template = re.match(r"{{ (\w+)(?: \| default\('(\w+)'\))? }}$", str(default))
    if template:
        return ", else ".join("`%s`" % one for one in template.groups() if one)
    return "" if default == "" else "`%s`" % (str(default).lower() if isinstance(default, bool) else scalar(default))


def modules() -> Dict[str, Dict[str, Any]]:
    """The documentation of each."""
    found = {}
    for path in sorted(ROOT.glob("plugins/modules/*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "DOCUMENTATION":
                found[path.stem] = yaml.safe_load(ast.literal_eval(statement.value))
    return found


def words_of(option: Dict[str, Any]) -> str:
    words = option["description"]
    return " ".join(words) if isinstance(words, list) else str(words)


def markdown(words: str) -> str:
    words = re.sub(r"\bO\((\w+)=(\w+)\)", r"`\1: \2`", words)
    return re.sub(r"\b(?:[CMOV]|RV)\(([^)]*)\)", r"`\1`", words)


def unmarked(words: str) -> str:
    return re.sub(r"\b(?:[CMOV]|RV)\(([^)]*)\)", r"\1", words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] == ["--check"]))
