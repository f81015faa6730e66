"""What CONTRIBUTING.md promises of the files: none of more than 600 lines without a reason, no decision in YAML over more than a line, no
filter that forgets an order, no variable of a role that nothing uses, a row for each module and role in the table of rights, one version of the
collection and its extension, and every major version of PostgreSQL that is tested in the places that have to know it."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from typing import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINES = 600
SOURCES = {".c", ".h", ".py", ".sh", ".sql", ".yml", ".pl", ".pm", ""}

# The longer files, each with its reason. A file that has become shorter is taken off this list.
LONGER = {
    "LICENSE": "the text of the licence",
    "bench/bench.py": "one table of figures: each is a short function, and all share the way in which files are prepared and timed",
    "files/pg_residency/src/names_gather.c": "one worker and its caller, who share the memory in between",
    "files/pg_residency/test/unit/test_page_cache.c": "a list of cases, read one at a time",
    "plugins/module_utils/_residency_restore.py": "one job from its start to its verdict; what it loads and remarks is in _selection and _remarks",
    "plugins/modules/residency_restore.py": "documentation but for 80 lines",
    "tests/extension/stress.py": "one model of what may happen, which all of its workers change",
}


def main() -> int:
    problems = [*too_long(), *deciding_templates(), *without_order(), *unused_defaults(), *without_rights(), *two_versions(), *unknown_majors()]
    print("\n".join(problems))
    return 1 if problems else 0


def too_long() -> Iterator[str]:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    counted = {}
    for name in tracked:
        path = ROOT / name
        if path.suffix in SOURCES and path.is_file() and not path.is_symlink():
            counted[name] = path.read_bytes().count(b"\n")
    for name, lines in counted.items():
        if lines > LINES and name not in LONGER:
            yield "%s has %d lines: divide it, or give the reason for more than %d in build-tools/layout.py" % (name, lines, LINES)
    for name in LONGER:
        if counted.get(name, 0) <= LINES:
            yield "%s has no more than %d lines: take it off the list in build-tools/layout.py" % (name, LINES)


# What a template decides by; what stands in quotation marks does not count.
DECIDES = re.compile(r"\b(if|and|or|(select|reject)(attr)?)\b")
QUOTED = re.compile("'[^']*'|\"[^\"]*\"")
CONDITION = re.compile(r"^[ -]*(when|until|that|changed_when|failed_when): *(&\w+ +)?[>|][-+]?( *#.*)?$", re.MULTILINE)


def deciding_templates() -> Iterator[str]:
    """Where YAML decides what typed Python with a unit test should."""
    for path in sorted([*ROOT.glob("roles/**/*.yml"), *ROOT.glob("playbooks/**/*.yml")]):
        text = path.read_text(encoding="utf-8")
        found = [(one.start(), "a statement") for one in re.finditer("{%", text)]
        found += [(one.start(), "a condition of several lines") for one in CONDITION.finditer(text)]
        for one in re.finditer("{{.*?}}", text, re.DOTALL):
            if "\n" in one.group() and DECIDES.search(QUOTED.sub("", one.group())):
                found.append((one.start(), "a template that decides in several lines"))
        for start, what in sorted(found):
            yield "%s:%d: %s: decide in plugins/plugin_utils, with a unit test" % (path.relative_to(ROOT), text.count("\n", 0, start) + 1, what)


SETS = re.compile(r"\|\s*(intersect|(symmetric_)?difference|union)\b")


def without_order() -> Iterator[str]:
    """Ansible's filters for sets return strings in an order that changes with each run: another host is first, a message is another one."""
    for path in sorted([*ROOT.glob("roles/**/*.yml"), *ROOT.glob("playbooks/**/*.yml")]):
        for one in SETS.finditer(path.read_text(encoding="utf-8")):
            yield "%s: the filter %s forgets the order: use select('in', ...), reject('in', ...) or unique" % (path.relative_to(ROOT), one.group(1))


def unused_defaults() -> Iterator[str]:
    """A variable of a role that none of its tasks and templates has: the role would ignore what is set. Those of cache_common are for the other roles."""
    used: dict[str, set[str]] = {}
    for directory in sorted(ROOT.glob("roles/*")):
        files = [path for folder in ("tasks", "vars", "handlers", "templates") for path in sorted((directory / folder).rglob("*.*"))]
        used[directory.name] = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in files)))
    for role in used:
        for name in re.findall(r"^(\w+):", (ROOT / "roles" / role / "defaults/main.yml").read_text(encoding="utf-8"), re.MULTILINE):
            if name not in (set().union(*used.values()) if role == "cache_common" else used[role]):
                yield "roles/%s: no task uses %s" % (role, name)


def without_rights() -> Iterator[str]:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    section = text.partition("\n## Who runs what\n")[2].partition("\n## ")[0]
    first = " ".join(row.split("|")[1] for row in section.splitlines() if row.startswith("|"))
    names = [path.stem for path in ROOT.glob("plugins/modules/*.py")] + [path.name for path in ROOT.glob("roles/*")]
    for name in sorted(names):
        if "`%s`" % name not in first:
            yield "docs/security.md: %s has no row under 'Who runs what'" % name


def two_versions() -> Iterator[str]:
    """The collection installs its extension: an operator has to know one version."""
    collection = re.search(r"^version: (\S+)", (ROOT / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)
    control = (ROOT / "files/pg_residency/pg_residency.control").read_text(encoding="utf-8")
    extension = re.search(r"^default_version = '(.*)'", control, re.MULTILINE)
    if not collection or not extension or collection.group(1) != extension.group(1):
        yield "galaxy.yml and pg_residency.control have different versions: %s, %s" % (
            collection and collection.group(1), extension and extension.group(1))


def unknown_majors() -> Iterator[str]:
    tested = {"15"}  # this Debian's, which needs no root file system
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for majors in re.findall(r'MAJORS *\??="?([\d ]+)', makefile):
        tested.update(majors.split())
    suites = (ROOT / "build-tools/roots.sh").read_text(encoding="utf-8")
    documents = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "README.md"))
    for major in sorted(tested):
        if not re.search(r"^ *%s\) echo" % major, suites, re.MULTILINE):
            yield "build-tools/roots.sh has no suite of Debian for PostgreSQL %s, which the Makefile tests" % major
        if not re.search(r"PostgreSQL [\d, and]*\b%s\b" % major, documents):
            yield "README.md and CONTRIBUTING.md do not name PostgreSQL %s, which the Makefile tests" % major


if __name__ == "__main__":
    sys.exit(main())
