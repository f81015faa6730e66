# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _connection
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"login_password": "s3cret", "connect_params": None}, ["s3cret"]),
        ({"connect_params": {"password": "s3cret", "sslmode": "require", "PassWord": 5}}, ["s3cret", "5"]),
        ({"connect_params": {"sslpassword": "s3cret"}}, ["s3cret"]),
        ({"login_db": "postgresql://user:s3cret@host/shop"}, ["s3cret"]),
        ({"login_db": "postgresql://user@host/shop?password=s3cret&sslmode=require"}, ["s3cret"]),
        ({"login_db": "host=db1 password=s3cret dbname=shop"}, ["s3cret"]),
        ({"login_host": "host=db1 password = 's3 cret'"}, ["s3 cret"]),
        ({"login_db": "shop", "login_host": "/run/postgresql"}, []),
    ],
)
def test_passwords_wherever_they_are(params, found):
    assert _connection.secrets(params) == found


@pytest.mark.parametrize("option", ["login_db", "login_host"])
@pytest.mark.parametrize("text", ["postgresql://user:s3cret@host/shop", "POSTGRES://host/shop", "dbname=shop password=s3cret"])
def test_connection_strings_are_refused(monkeypatch, option, text):
    """Before the server is sent anything, and without showing it."""
    monkeypatch.setattr(_connection.postgres, "HAS_PSYCOPG", True)
    with pytest.raises(ResidencyError) as caught:
        _connection.connect({option: text})
    assert str(caught.value) == "%s is a connection string: give its parts as options, and the password as login_password." % option


@pytest.mark.parametrize("text", ["shop", "a=b", "my host", "passwords", "db1.example.com", "/run/postgresql", "::1"])
def test_names_are_no_connection_strings(text):
    assert not _connection.CONNECTION_STRING.search(text)
