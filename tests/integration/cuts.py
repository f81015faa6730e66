# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart whose controller is ended anywhere, the run after it, and what must hold then, seen from outside.

The controller is ansible-playbook's main process: plugins/callback/cut.py ends it. Nothing here looks at what the role keeps of itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time

from cluster import LOOSE, OWNER, run
from proxies import Pooler
from residency import there

PLAYBOOK = "pgfleet.cache.rolling_restart"
NAMES = ("db1", "db2")  # the primary and its standby
SIGNALS = ("KILL", "TERM", "INT")
PLUGINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugins", "callback")
SNAPSHOT = "restart"
BLOCK = 8192
LIMIT = 300  # seconds of a run: one that takes longer hangs
ORPHANS = 30  # seconds for what a cut run's workers have begun
AGAIN = 20  # seconds until Ctrl-C is pressed once more: Ansible may wait for the lock of its queue, which a worker had that the first one has killed

# Names of tasks where a cut is hard to bear. They are in the user's own files, so they stay when the role changes.
STOP, EVICT, START = "Stop it", "Empty its page cache", "Start it"
OUT, IN = "Send it no traffic any more", "Send it traffic again"

# "restarted" is what a reboot does: the cache is lost. A server that is down already is only started.
RESTART = """
- name: {stop}
  ansible.builtin.shell:
    cmd: if {bin}/pg_ctl status --pgdata={{{{ data }}}}; then {bin}/pg_ctl stop --wait --mode=fast --pgdata={{{{ data }}}}; fi
  become: true
  become_user: postgres
  changed_when: true
  when: pgfleet_service_state in ['restarted', 'stopped']

- name: {evict}
  pgfleet.cache.cache_evict:
    scope: cluster
    data_directory: "{{{{ data }}}}"
  become: true
  become_user: postgres
  when: pgfleet_service_state == 'restarted'

- name: {start}
  ansible.builtin.shell:
    cmd: >-
      {bin}/pg_ctl status --pgdata={{{{ data }}}} ||
      {bin}/pg_ctl start --wait --silent --pgdata={{{{ data }}}} --log={{{{ data }}}}.log
  become: true
  become_user: postgres
  changed_when: true
  when: pgfleet_service_state in ['restarted', 'started'] and comes_back | default(true)
"""
# A file for each step: a task that is skipped is started too, and would be cut.
TRAFFIC = """
- name: Steer the traffic
  ansible.builtin.include_tasks: "{directory}/traffic_{{{{ pgfleet_traffic_step }}}}.yml"
"""
STEP = """
- name: {name}
  ansible.builtin.copy:
    content: "{step}"
    dest: "{directory}/{{{{ inventory_hostname }}}}"
    mode: "0644"
"""
# Any user may do anything there; its own is postgres, whom the server trusts at its socket.


class Cut:
    """``clusters`` are a primary db1 and its standby db2, with the extension and the table passenger."""

    def __init__(self, ansible, clusters, directory):
        self.ansible = ansible
        self.clusters = clusters
        self.directory = directory
        self.traffic = os.path.join(directory, "traffic")
        self.state = os.path.join(directory, "state")
        self.pooler = Pooler(os.path.join(directory, "pgbouncer"), clusters["db1"])
        self.output, self.status, self.seconds, self.hangs = "", None, 0.0, False
        self.cut_at, self.took = "", 0.0
        # a server that is down cannot tell
        self._files = {name: one.file_of("passenger") for name, one in clusters.items()}
        self._runs = 0
        self.database = ""
        os.mkdir(self.traffic)
        self.restart_tasks = self._write("restart.yml", RESTART.format(stop=STOP, evict=EVICT, start=START, bin=clusters["db1"].bin))
        self.traffic_tasks = self._write("traffic.yml", TRAFFIC.format(directory=directory))
        for step, name in (("out", OUT), ("in", IN)):
            self._write("traffic_%s.yml" % step, STEP.format(name=name, step=step, directory=self.traffic))

    def variables(self):
        return {
            "pgfleet_service_manager": self.restart_tasks,
            "cache_restart_traffic": [self.traffic_tasks, "pgbouncer"],
            "cache_restart_pgbouncer": [{"host": "db1", "port": self.pooler.port, "socket": self.pooler.directory, "database": self.database}],
            "cache_restart_min_standbys": 0,
            "pgfleet_state_directory": self.state,
            "cache_restart_min_free": "1MB",
            "cache_restart_replay_timeout": 20,
            "cache_restart_pause_timeout": 10,
            "cache_restart_timeout": 20,
            "cache_restart_min_residency": LOOSE,
            "pgfleet_results": os.path.join(self.directory, "results"),
        }

    def stop(self):
        self.pooler.stop()
        for one in self.clusters.values():
            one.stop("immediate")

    # --- before, and what is run ---

    def reset(self, database="postgres"):
        """As if nothing had been run: up, in traffic, warm, and nothing kept. The next runs pause this database, "" means all."""
        self.database = database
        shutil.rmtree(self.state, ignore_errors=True)
        for name, one in self.clusters.items():
            self._write(os.path.join("traffic", name), "in")
            if not self._up(one):
                one.start()
            # of a restore that the cut has left running, too
            one.sql("SELECT residency_cancel(job) FROM residency_jobs WHERE state IN ('starting', 'waiting', 'running')")
            one.sql("SELECT residency_drop_snapshot('%s') WHERE EXISTS (SELECT FROM residency_snapshots() WHERE name = '%s')" % (SNAPSHOT, SNAPSHOT))
        self.pooler.resume()
        for name, one in self.clusters.items():
            one.warm(self._files[name])
        self._warm = self._there()
        self._log_begins = {name: os.path.getsize(one.log) for name, one in self.clusters.items()}
        self.cut_at, self.took, self.output, self.status = "", 0.0, "", None

    def uncut(self):
        """Names of the tasks that were started, in order."""
        tasks = self._run({})
        assert not self.hangs, self.output
        return tasks

    def cut(self, name, watch=None, variables=None, **environment):
        """Run the playbook and end it as plugins/callback/cut.py is told by environment, or with CUT_SIGNAL once watch() is true."""
        tasks = self._run(variables or {}, watch, **environment)
        assert self._was_cut, "The run came to its end, and was not cut: %s\n%s" % (environment, self.output)
        self.cut_at = "%d %s" % (len(tasks), tasks[-1])
        self.took = self.seconds
        self._wait_for_orphans(name)

    def resume(self, *arguments, per_host=None, **variables):
        self._run(variables, arguments=arguments, per_host=per_host)
        self.took += self.seconds

    def restoring(self, host):
        """For cut(): true while a restore runs on this host."""
        def watch():
            one = self.clusters[host]
            asked = "SELECT count(*) FROM residency_jobs WHERE state = 'running'"
            # a server that is down says something else
            return run(
                one.bin + "/psql", "-XAtq", "-h", one.socket, "-p", str(one.port), "-d", "postgres", "-c", asked, user=OWNER, check=False
            ).strip() == "1"
        return watch

    def answers(self):
        """Whether a client of the primary gets an answer through pgbouncer at once."""
        return not self.pooler.ask("SELECT 'here'", database="postgres", seconds=2)[1]

    def kill_who_holds_the_pause(self):
        for process in filter(_holds_a_pause, _processes()):
            os.kill(int(process), signal.SIGKILL)

    def _run(self, variables, watch=None, arguments=(), per_host=None, **environment):
        self._runs += 1
        hosts = {
            name: dict({"pgfleet_login_port": one.port, "pgfleet_login_unix_socket": one.socket, "data": one.data}, **(per_host or {}).get(name, {}))
            for name, one in self.clusters.items()
        }
        self.ansible.set_hosts(hosts, **dict(self.variables(), **variables))
        log, output = (os.path.join(self.directory, "%s.%d" % (what, self._runs)) for what in ("tasks", "output"))
        env = self.ansible.environment(
            ANSIBLE_CALLBACK_PLUGINS=PLUGINS, ANSIBLE_CALLBACKS_ENABLED="cut", CUT_LOG=log, CUT_RUN="%s.%d" % (self.directory, self._runs),
            **environment
        )
        # Into a file: a worker that outlives the controller would keep a pipe open.
        with open(output, "w") as file:
            began = time.monotonic()
            controller = subprocess.Popen(
                ["ansible-playbook", "--inventory", self.ansible.inventory, PLAYBOOK, *arguments],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env, start_new_session=True,
            )
            watched = self.hangs = False
            pressed = None
            while controller.poll() is None:
                if environment.get("CUT_SIGNAL") == "INT" and (watched or b"\ncut " in _read(log)):
                    pressed = pressed or time.monotonic()
                    if time.monotonic() - pressed > AGAIN:
                        pressed = time.monotonic()
                        _send(controller, "INT")
                if watch is not None and not watched and watch():
                    watched = True
                    _send(controller, environment.get("CUT_SIGNAL", "KILL"))
                if time.monotonic() - began > LIMIT:
                    self.hangs = True
                    os.killpg(controller.pid, signal.SIGKILL)
                time.sleep(0.05)
        self._left = self._there()
        self.seconds = time.monotonic() - began
        self.status = controller.returncode
        with open(output) as file:
            self.output = file.read()
        with open(log) as file:
            lines = file.read().splitlines()
        self._was_cut = watched or any(line.startswith("cut ") for line in lines)
        return [line.split(" ", maxsplit=1)[1] for line in lines if not line.startswith("cut ")]

    def _wait_for_orphans(self, name):
        """What the cut run has begun goes on without its controller. Nobody types the next command faster than that."""
        mark = ("CUT_RUN=%s.%d" % (self.directory, self._runs)).encode()
        until = time.monotonic() + ORPHANS
        while True:
            left = [process for process in _processes() if mark in _read("/proc/%s/environ" % process).split(b"\0") and not _stays(process)]
            if not left:
                return
            assert time.monotonic() < until, "%s: still at work: %s" % (name, [_read("/proc/%s/cmdline" % one) for one in left])
            time.sleep(0.1)

    # --- afterwards ---

    def broken(self):
        """What does not hold after the resume; nothing is fine. A server that is down is started, in the end, to ask it."""
        found = []
        ended = self.end()
        if ended.startswith("?"):
            found.append("the end is not clear: " + ended)
        found += self._pooler_broken()
        for name, one in self.clusters.items():
            up, in_traffic = self._up(one), self.in_traffic(name)
            if not in_traffic and not re.search(r"Out of traffic now: [^(\n]*\b%s\b" % name, self.output):
                found.append("%s is out of traffic, and the output does not say so" % name)
            if in_traffic and not up:
                found.append("%s is in traffic, and down" % name)
            wanted = self._wanted(name) if in_traffic and up else 0
            if self._left[name] < 0.95 * wanted:
                found.append("%s is in traffic with %d %% of what was warm" % (name, 100 * self._left[name] / wanted))
            stops, starts = self.restarts(name)
            if stops > 1 or starts > 1:
                found.append("%s was stopped %d times and started %d times" % (name, stops, starts))
            if ended == "finished" and (stops, starts) != (1, 1) and max(stops, starts) <= 1:
                found.append("%s counts as restarted, and was stopped %d times and started %d times" % (name, stops, starts))
            if not up:
                one.start()
            found += self._thin(name)
        return found

    def end(self):
        """How the resume ended: "finished", "failed: <what it says>", or "? ..."."""
        if self.hangs:
            return "? it was at work for more than %d s" % LIMIT
        odd = re.search("Traceback.*|Unexpected Exception.*|.*has no attribute.*|.*is undefined.*", self.output)
        if odd:
            return "? " + odd.group()[:300]
        finished = "All hosts are restarted: the rolling restart is finished." in self.output
        if self.status == 0:
            return "finished" if finished else "? status 0, and not finished"
        # as the last play and its "Fail" have it, of each host
        last = self.output.split("PLAY [9.")[-1]
        said = re.findall(r'^(?:fatal|failed): \[(\w+)\].*?"msg": ("(?:[^"\\]|\\.)*")', last, re.MULTILINE)
        if not said:
            return "? status %s: %s" % (self.status, self.output[-300:])
        return "failed: %s" % "; ".join("%s: %s" % (name, json.loads(text)) for name, text in said)

    def is_recorded(self):
        """Whether all hosts have the end of the rolling restart in their records."""
        paths = [os.path.join(self.state, name + ".json") for name in self.clusters]
        return all(os.path.exists(path) and json.loads(_read(path)).get("finished") for path in paths)

    def in_traffic(self, name):
        with open(os.path.join(self.traffic, name)) as file:
            return file.read() == "in"

    def restarts(self, name):
        """Stops and starts since the reset, from the server's own log."""
        with open(self.clusters[name].log) as file:
            file.seek(self._log_begins[name])
            log = file.read()
        return log.count("database system is shut down"), log.count("starting PostgreSQL")

    def _pooler_broken(self):
        found = ["database %s of pgbouncer is paused" % name for name in self.pooler.paused()]
        answer, problem = self.pooler.ask("SELECT 'here'", database="postgres")
        if problem or "here" not in answer:
            found.append("a query through pgbouncer is not answered: %s" % (problem or answer))
        return found

    def _thin(self, name):
        """Snapshots of a cold host: less than half of what was warm, or of the fullest one."""
        rows = self.clusters[name].sql("SELECT generation, wanted FROM residency_snapshots() WHERE name = '%s'" % SNAPSHOT).splitlines()
        blocks = {generation: int(wanted) for generation, wanted in (row.split("|") for row in rows)}
        full = max([*blocks.values(), self._warm[name] // BLOCK])
        return [
            "%s has a snapshot of when it was cold: %s@%s of %d blocks, less than half of %d" % (name, SNAPSHOT, generation, wanted, full)
            for generation, wanted in blocks.items() if wanted < full / 2
        ]

    def _wanted(self, name):
        """Bytes of the table that must be there: what the least of the run's snapshots has of it, if it has taken one. _thin() looks at these."""
        wanted = self.clusters[name].sql(
            "SELECT min(r.wanted) FROM residency_snapshots() AS s, residency_snapshot_relations(s.name || '@' || s.generation) AS r"
            " WHERE s.name = '%s' AND r.name = 'public.passenger'" % SNAPSHOT
        )
        return BLOCK * int(wanted) if wanted else self._warm[name]

    def _there(self):
        return {name: there(self._files[name]) for name in self.clusters}

    def _up(self, one):
        return run(one.bin + "/pg_ctl", "status", "-D", one.data, user=OWNER, check=False).startswith("pg_ctl: server is running")

    def _write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        return path


def _send(controller, name):
    if name == "INT":
        os.killpg(controller.pid, signal.SIGINT)
    else:
        controller.send_signal(getattr(signal, "SIG" + name))


def _processes():
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _read(path):
    """Nothing of a process that has ended."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _stays(process):
    """A server that the run has started is to stay, and who holds a pause stays for its time. Both have its environment."""
    return _read("/proc/%s/comm" % process).strip() == b"postgres" or _holds_a_pause(process)


def _holds_a_pause(process):
    words = _read("/proc/%s/cmdline" % process).split(b"\0")
    return b"pause" in words and b"psql" in words
