"""build-tools/compiled.py FOLDER DIRECTORY...: compiles the Python below the directories, and leaves in FOLDER what uses it.

Ansible sends a module as a zip of sources, which Python compiles at every run: a third of what a small module costs. A Python with FOLDER
in PYTHONPATH takes what it finds compiled there. Only root writes to it, because modules that run as root read it.
"""

from __future__ import annotations

import _imp
import marshal
import os
import shutil
import sys
from importlib.util import MAGIC_NUMBER

STARTUP = '''"""Takes the code of modules in a zip from this directory (build-tools/compiled.py)."""

import _imp
import gc
import marshal
import os
import zipimport
from importlib.util import MAGIC_NUMBER

_DIRECTORY = os.path.dirname(os.path.abspath(__file__))
_VERSION = int.from_bytes(MAGIC_NUMBER, "little")
_compile = zipimport._compile_source


def _compiled(path, source):
    try:
        with open(os.path.join(_DIRECTORY, _imp.source_hash(_VERSION, source).hex()), "rb") as file:
            return marshal.load(file)
    except (OSError, EOFError, ValueError):
        return _compile(path, source)


zipimport._compile_source = _compiled
gc.disable()  # a module ends before that is worth its while
'''


def main(folder: str, *directories: str) -> None:
    version = int.from_bytes(MAGIC_NUMBER, "little")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, mode=0o755)
    with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(STARTUP)
    for directory in directories:
        for path, dummy, names in os.walk(directory):
            for name in names:
                if name.endswith(".py"):
                    with open(os.path.join(path, name), "rb") as file:
                        source = file.read()
                    code = compile(source, os.path.join(path, name), "exec", dont_inherit=True)
                    with open(os.path.join(folder, _imp.source_hash(version, source).hex()), "wb") as file:
                        marshal.dump(code, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
