# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ends ansible-playbook at a given place, as a crash, a service manager or a user would.

What it does is said by its environment:

CUT_LOG     file that gets a line "<number> <name>" for each task that is started, and "cut <signal>" at the end
CUT_SIGNAL  KILL or TERM, which goes to this process, or INT, which goes to its whole process group, as Ctrl-C at a terminal does
CUT_AT      number of the task
CUT_TASK    or its name, as it is written in its file, and CUT_HOST the host that runs it
CUT_WHEN    "end" (the default): when the next task begins, so that this one has ended on all hosts and been taken note of;
            "begin": before it is begun; "during": CUT_DELAY (0.3) seconds after that
"""

from __future__ import annotations

import os
import signal
import threading

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: cut
type: aggregate
short_description: Ends ansible-playbook at a given place
description: For tests of what an interrupted run leaves behind.
"""


class CallbackModule(CallbackBase):
    """Callbacks run in the main process, which is the one that is cut."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "cut"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._log = os.environ["CUT_LOG"]
        self._signal = os.environ.get("CUT_SIGNAL", "KILL")
        self._at = int(os.environ.get("CUT_AT") or 0)
        self._task = os.environ.get("CUT_TASK") or None
        self._host = os.environ.get("CUT_HOST")
        self._when = os.environ.get("CUT_WHEN") or "end"
        self._delay = float(os.environ.get("CUT_DELAY") or 0.3)
        self._number = 0
        self._next = False

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._started(task)

    def v2_playbook_on_handler_task_start(self, task):
        self._started(task)

    def v2_runner_on_start(self, host, task):
        if self._task is not None and (task.name, host.get_name()) == (self._task, self._host):
            self._task = None  # once
            self._reached()

    def v2_playbook_on_stats(self, stats):
        # the last task has no next one
        if self._next:
            self._cut()

    def _started(self, task):
        if self._next:
            self._cut()
        self._number += 1
        self._write("%d %s" % (self._number, task.get_name()))
        if self._number == self._at:
            self._reached()

    def _reached(self):
        if self._when == "begin":
            self._cut()
        elif self._when == "during":
            threading.Timer(self._delay, self._cut).start()
        else:
            self._next = True

    def _cut(self):
        self._next = False
        self._write("cut %s" % self._signal)
        if self._signal == "INT":
            os.killpg(os.getpgrp(), signal.SIGINT)
        else:
            os.kill(os.getpid(), getattr(signal, "SIG" + self._signal))

    def _write(self, line):
        with open(self._log, "a") as file:
            file.write(line + "\n")
