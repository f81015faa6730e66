# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _buffers
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Place
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import Session

PLACE = {"database": 5, "tablespace": 1663, "relfilenumber": 7, "blocks": 3}


def server(*found, **answers):
    """A session. ``found`` has a row for each extension in turn: its schema, and the stranger who owns that."""
    return Session(
        **dict(
            {"e.extname": [[{"database": "shop", "schema": schema, "stranger": stranger}] for schema, stranger in found]},
            **answers
        )
    )


def test_an_extension_in_a_strangers_schema_is_not_called():
    session = server(("public", "tenant"), ("residency", None), **{"residency.residency_shared_buffers": [PLACE]})
    assert _buffers.count(session) == {Place(5, 1663, 7): 3}
    assert _buffers.count(server(("public", "tenant"), ("public", "tenant"))) is None
    assert _buffers.count(server((None, None), (None, None))) is None


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((None, None), "Extension pg_buffercache, which empties shared buffers, is not in database shop: CREATE EXTENSION pg_buffercache"
                       " there, or set method to restart."),
        (("public", "tenant"), "In database shop extension pg_buffercache is in schema public, owned by tenant, who could replace the extension's"
            " objects: ALTER EXTENSION pg_buffercache SET SCHEMA to one of a superuser's,"
                               " or set method to restart."),
    ],
    ids=["missing", "a stranger's"],
)
def test_functions_are_refused(found, message):
    with pytest.raises(ResidencyError) as caught:
        _buffers.require_functions(server(found, server_version_num=[{"major": 18}]))
    assert str(caught.value) == message
