# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.plugin_utils._pgio import options, parse

# as pgio 1.0 has it
CONF = """UPDATE_PCT=0
RUN_TIME=120
NUM_SCHEMAS=16
NUM_THREADS=8
WORK_UNIT=255
UPDATE_WORK_UNIT=8
SCALE=8G

DBNAME=pg10
CONNECT_STRING="pg10"

CREATE_BASE_TABLE=TRUE
"""


def test_a_file_as_it_is():
    assert parse(CONF, "pgio.conf") == {
        "update_pct": 0, "run_time": "120", "schemas": 16, "sessions": 8, "load_sessions": 8, "work_unit": 255, "update_work_unit": 8,
        "scale": "8G", "login_db": "pg10",
    }


def test_what_it_sets_goes_before_the_variables_and_what_is_empty_is_not_set():
    given = {"schemas": 4, "scale": "1G", "seed": 7, "pgbench": ""}
    assert options(given, "export NUM_SCHEMAS='2' # two\n# SCALE=2G", "pgio.conf") == {"schemas": 2, "scale": "1G", "seed": 7}
    assert options(given) == {"schemas": 4, "scale": "1G", "seed": 7}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("UPDATE_PERCENT=3", "c, line 2: UPDATE_PERCENT is not known: there can be UPDATE_PCT, RUN_TIME"),
        ("NUM_SCHEMAS=many", "c, line 2: NUM_SCHEMAS is 'many': it must be a whole number."),
        ("NUM_SCHEMAS=\u00b2", "c, line 2: NUM_SCHEMAS is '\u00b2': it must be a whole number."),
        ("NUM_SCHEMAS=$(reboot)", "c, line 2: 'NUM_SCHEMAS=$(reboot)' is no assignment of a value, such as SCALE=1G."),
        ("SCALE=1G; reboot", "c, line 2: 'SCALE=1G; reboot' is no assignment of a value"),
        ("SCALE='1G", "c, line 2: No closing quotation."),
        ("rm -rf /", "c, line 2: 'rm -rf /' is no assignment of a value"),
    ],
)
def test_bad_lines(line, message):
    with pytest.raises(AnsibleFilterError) as error:
        parse("\n" + line, "c")
    assert message in str(error.value)
