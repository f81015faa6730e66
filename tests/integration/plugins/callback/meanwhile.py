# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lets a test do something at a given place of a run, which waits until that is done.

What it does is said by its environment:

MEANWHILE_TASK    name of the task that is then begun, with its variables
MEANWHILE_HOST    the host that has begun a task as the last one before
MEANWHILE_SOCKET  the test listens there, and closes the connection when the run may go on
"""

from __future__ import annotations

import os
import socket

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: meanwhile
type: aggregate
short_description: Lets a test do something at a given place of a run
description: For tests of what happens beside a run.
"""


class CallbackModule(CallbackBase):
    """Callbacks run in the main process, which waits for them."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "meanwhile"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._place = (os.environ["MEANWHILE_TASK"], os.environ["MEANWHILE_HOST"])
        self._host = ""

    def v2_runner_on_start(self, host, task):
        self._host = host.get_name()

    def v2_playbook_on_task_start(self, task, is_conditional):
        if (task.name, self._host) == self._place:
            self._place = ()  # once
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(os.environ["MEANWHILE_SOCKET"])
                connection.recv(1)
