"""The extension's sources as CONTRIBUTING.md describes them: a header beside each source that others
call, no circle of files, lines of 100 columns, and no source beyond 720 lines."""
import pathlib
import re
import sys

COLUMNS = 100
LINES = 720

root = pathlib.Path(__file__).parent.parent / "files" / "pg_residency"
source = root / "src"
problems = []

for path in sorted([*root.glob("src/**/*.[ch]"), *root.glob("test/**/*.[ch]")]):
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        # a message stays in one piece, to be found by its words
        if len(line.expandtabs(4)) > COLUMNS and not re.search(r'"[^"]{30,}', line):
            problems.append(f"{path.relative_to(root)}:{number}: {len(line.expandtabs(4))} columns")
    if len(lines) > LINES and path.is_relative_to(source):
        problems.append(f"{path.relative_to(root)}: {len(lines)} lines")

# a file uses those whose headers it includes, in its source or in its header
uses = {}
for path in [*source.glob("*.[ch]"), *source.glob("kernel/*.[ch]")]:
    name = str(path.relative_to(source).with_suffix(""))
    for included in re.findall(r'^#include "([^"]+)\.h"', path.read_text(), re.M):
        for candidate in (included, str(pathlib.Path(name).parent / included)):
            if candidate != name and (source / (candidate + ".h")).exists():
                uses.setdefault(name, set()).add(candidate)


def find_circle(name, way):
    if name in way:
        return [*way[way.index(name):], name]
    for used in sorted(uses.get(name, ())):
        circle = find_circle(used, [*way, name])
        if circle:
            return circle
    return None


for name in sorted(uses):
    circle = find_circle(name, [])
    if circle:
        problems.append("a circle of files: " + " -> ".join(circle))
        break

for path in sorted(source.glob("**/*.c")):
    exported = re.search(r"^(?:PGDLLEXPORT|PG_FUNCTION_INFO_V1)", path.read_text(), re.M)
    if not path.with_suffix(".h").exists() and not exported:
        problems.append(f"{path.relative_to(root)} has no header beside it, and nothing that SQL calls")

if "--map" in sys.argv:
    for name in sorted({*uses, *(used for there in uses.values() for used in there)}):
        print(f"{name}: {', '.join(sorted(uses.get(name, ())))}")
print("\n".join(problems), file=sys.stderr)
sys.exit(1 if problems else 0)
