"""build-tools/ansible_playbook.py FOLDER ARGUMENT...: ansible-playbook, which keeps the modules that it has packed in FOLDER.

Ansible packs each module with what it imports once per run, which takes longer than most of them do: the tests make hundreds of runs with the
same modules. Who empties FOLDER decides when they are packed again. Other collections than those beside the tests' are packed as always.
"""

from __future__ import annotations

import os
import sys

from ansible import constants
from ansible.cli.playbook import main

folder = sys.argv.pop(1)
if constants.COLLECTIONS_PATHS[:1] == [os.path.dirname(folder)]:
    os.symlink(folder, os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"))
sys.argv[0] = "ansible-playbook"
sys.exit(main())
