# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet in memory, and a controller that does what the playbook and roles/cache_restart do, in their order: for tests of
what may happen between.

The world knows by itself what is cold and who is promised to be warm; it never asks a record. So a record that forgets is found out.
"""

from __future__ import annotations

import json

from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _plan, _roll, _states

HOSTS = ["db1", "db2", "db3"]
SYSTEMS = dict(dict.fromkeys(HOSTS, "7"), db4="8", db5="8")
POOLERS = {
    system: [{"kind": "pgbouncer", "moment": "wait", "places": [{"kind": "pgbouncer", "host": "lb1", "port": 6432, "database": database}]}]
    for system, database in (("7", "shop"), ("8", "air"))
}
MAX_AGE = 1000
GIVEN = {
    "cache_restart_primary": "in_place", "cache_restart_candidate": "", "cache_restart_switchover_tasks": "", "cache_restart_serial": 1,
    "cache_restart_min_standbys": 1, "cache_restart_what": "postgresql",
}


class Cut(Exception):
    """SIGKILL of the controller: nothing runs any more, no rescue and no always."""


class Failed(Exception):
    """A task has failed."""


class Broken(AssertionError):
    """A promise of the collection."""


def promise(kept, *what):
    if not kept:
        raise Broken(*what)


class Host:
    def __init__(self, started, recovery):
        self.started, self.recovery = started, recovery
        self.running, self.out = True, False
        self.cold = False  # what was promised to be resident, is not
        self.promised = False  # a snapshot of it was noted, and it has not been warm and in traffic since it was restarted
        self.record = None


class World:
    def __init__(self, steered=True, pooled=True):
        self.steered, self.pooled = steered, pooled
        self.ticks = 100
        self.names = HOSTS
        self.hosts = {host: Host(self.tick(), host not in ("db1", "db4")) for host in self.names}
        self.primary = {"7": "db1"}  # whom the last promotion has made it
        self.paused = set()  # of whose clients
        self.restarts = {}

    def beside(self, host):
        """The hosts of its cluster."""
        return [one for one in self.names if SYSTEMS[one] == SYSTEMS[host]]

    def tick(self):
        self.ticks += 1
        return self.ticks

    def process(self, host, running=True):
        """Another process, or none."""
        one = self.hosts[host]
        one.running, one.started, one.cold = running, self.tick(), one.cold or one.promised

    # --- what others do ---

    def do(self, deed, host):
        """Of a host that is not there, nothing."""
        if host in self.names:
            getattr(self, deed)(host)

    def restart(self, host):
        if self.hosts[host].running:
            self.process(host)

    def crash(self, host):
        if self.hosts[host].running:
            self.process(host, False)

    def start(self, host):
        if not self.hosts[host].running:
            self.process(host)

    def promote(self, host):
        one = self.hosts[host]
        if one.running and one.recovery:
            one.recovery, self.primary[SYSTEMS[host]] = False, host

    def rejoin(self, host):
        """What was the primary is made a standby of the one that is."""
        one = self.hosts[host]
        if not one.recovery and host not in self.primary.values():
            one.recovery = True
            self.process(host)

    def primaries(self, system="7"):
        return [host for host, one in self.hosts.items() if one.running and not one.recovery and SYSTEMS[host] == system]

    def settled(self):
        """Whether a run has nothing to complain of: one primary in each cluster, and nobody is down but those it can start itself."""
        starts = {host for host, one in self.hosts.items() if not one.running and (one.record or {}).get("intent") == "stopping"}
        return (
            all(one.running or host in starts for host, one in self.hosts.items())
            and [host for host, one in self.hosts.items() if not one.recovery] == list(self.primary.values())
        )


class Run:
    """One run of the playbook. ``cut`` is the point at which the controller is killed, or its name; ``others`` is what others do at which point."""

    def __init__(self, world, limit=(), resume=True, abort=False, waive=(), gate="reached", pause="well", cut=0, others=None):
        self.world, self.gate, self.pause, self.cut = world, gate, pause, cut
        self.limit = [host for host in limit if host in world.names] or world.names
        self.waive = [host for host in waive if host in world.names]
        given = dict(GIVEN, cache_restart_resume=resume, cache_restart_abort=abort, cache_restart_max_age=MAX_AGE)
        self.variables = {host: {"cache_restart_given": given} for host in self.limit}
        self.abort, self.others = abort, dict(others or {})
        self.points, self.disturbed = 0, 0
        self.answers, self.results, self.failures, self.fleet, self.problem = {}, {}, {}, {}, ""
        self.stopped = set()
        self.ended = False

    # --- whatever can be cut ---

    def point(self, what=""):
        self.points += 1
        for deed, host in self.others.pop(self.points, ()):
            self.disturbed = self.points
            self.world.do(deed, host)
        for host, one in self.world.hosts.items():
            record = one.record or {}
            promise(not one.cold or host in self.waive or record.get("debt"), "it was forgotten what is owed", host, record)
            promise(not one.out or record.get("out"), "out of traffic, and its record does not say so", host, record)
            known = any((self.world.hosts[other].record or {}).get("paused") for other in self.world.beside(host))
            promise(SYSTEMS[host] not in self.world.paused or known, "nobody knows of a pause", host)
        if self.cut and self.cut in (self.points, what):
            raise Cut

    def undisturbed(self, since):
        """Since this run has last looked: what happens after that nobody can know."""
        return self.disturbed <= since

    def write(self, host, event, facts=None):
        self.point("before %s %s" % (host, event))
        if event == "left" and self.disturbed == self.points:
            self.world.hosts[host].cold = False  # restarted between the look and this, which nobody can know
        try:
            record = _states.note(self.results[host], event, facts, remarks=self.results[host].get("remarks", []), seconds={})
        except AnsibleFilterError as error:
            raise Broken("'%s' was not allowed" % event, host, self.results[host]) from error
        self.world.hosts[host].record = self.results[host] = json.loads(json.dumps(record))
        promise(_states.fault(record) == "" and _states.known(record) == record, "it wrote what it cannot read", record)
        if event == "save":
            self.world.hosts[host].promised = True
        if event == "left" and not self.world.hosts[host].cold:
            self.world.hosts[host].promised = False
        self.point("after %s %s" % (host, event))

    def ask(self, *hosts):
        servers, records = [], []
        for host in hosts:
            one = self.world.hosts[host]
            servers.append({"failed": True, "msg": "Cannot connect."} if not one.running else {"query_result": [{
                "in_recovery": one.recovery, "system_identifier": SYSTEMS[host], "version_num": 150004, "cluster_name": "15/main", "data_directory": "/data",
                "started": one.started, "pid": 5, "extension": "1.0.0", "schema": "public", "lsn": 5, "paused": False,
                "receiver": "streaming" if one.recovery else "none",
            }]})
            records.append({"record": json.loads(json.dumps(one.record)), "lease": None, "fault": ""})
        self.answers.update(_roll.answers({"results": servers}, {"results": records}, hosts, self.waive, "alice"))
        return self.points

    def me(self, host):
        return self.answers[host]

    def down(self, host):
        return "problem" in self.me(host) and self.me(host)["kept"].get("intent") == "stopping"

    def answered(self, host):
        if "problem" in self.me(host):
            raise Failed(self.me(host)["problem"])

    def check(self, why):
        if why:
            raise Failed(why)

    # --- the playbook ---

    def run(self):
        for host in self.waive:  # from now on, by name
            self.world.hosts[host].cold = self.world.hosts[host].promised = False
        try:
            self.plays()
            self.ended = True
        except Cut:
            return self
        self.after()
        return self

    def work(self, host, entry_point, *arguments):
        self.failures[host] = "lost"
        try:
            entry_point(host, *arguments)
            self.failures[host] = ""
        except Failed as error:
            self.failures[host] = str(error)

    def plays(self):
        world = self.world
        for host in self.limit:
            self.ask(host)
            self.failures[host] = "" if self.down(host) else self.me(host).get("problem", "")
        self.gathered = self.ask(*(host for host in world.names if host not in self.limit))
        self.settle([host for host in self.limit if _roll.half_done(self.answers[host], self.waive, host)])
        for host in world.names:
            if host not in self.limit and self.answers[host]["kept"].get("paused"):
                self.resume(host)
        if any(self.failures.values()):
            return
        self.fleet = _plan.plan(world.names, self.answers, self.limit, world.tick(), self.variables, self.waive)
        self.problem = self.fleet["problem"]
        if self.problem:
            return
        for host in world.names:
            kept, roll = self.answers[host]["kept"], self.fleet["roll"]
            if host in self.limit:
                self.results[host] = kept if kept.get("roll") == roll else {}
            self.point("before %s begin" % host)
            identifier = self.answers[host].get("system_identifier", "")
            begun = _states.note(kept, "begin", {"roll": roll, "what": "postgresql", "system_identifier": identifier})
            world.hosts[host].record = json.loads(json.dumps(begun))
        for step in self.fleet["steps"]:
            for host in step:
                if not any(self.failures.values()):
                    self.work(host, self.main, step)
        variables = {host: {} for host in world.names}
        for host in self.limit:
            variables[host] = {
                "cache_restart_fleet": self.fleet, "cache_restart_result": self.results[host], "pgfleet_failure": self.failures[host],
            }
        if not _roll.left(world.names, variables):
            for host in self.limit:
                if "roll" in self.results[host]:
                    self.write(host, "finished")

    def settle(self, hosts):
        """Task by task on all of them, as the strategy linear has it."""
        for host in hosts:
            self.failures[host] = _roll.may_start(self.answers, host) if self.down(host) else ""
        for host in hosts:
            if not self.failures[host]:
                self.work(host, self.settle_one)
            elif self.me(host)["kept"].get("paused"):
                self.resume(host)

    def settle_one(self, host):
        kept = self.me(host)["kept"]
        if self.down(host):
            self.act_start(host, self.gathered)
        if kept.get("paused"):
            self.resume(host)
        if host not in self.waive:
            self.check(", ".join(_states.recorded(kept, "paused", POOLERS[SYSTEMS[host]])[1]))
        self.results[host] = kept
        self.write(host, "resumed")
        self.ask(host)
        self.answered(host)

    # --- roles/cache_restart/tasks/main.yml, and what it includes ---

    def main(self, host, batch):
        begun = self.ask(host)
        self.answered(host)
        kept = self.me(host)["kept"]
        self.results[host] = kept
        way = _states.way(kept, self.me(host)["started"], self.fleet["roll"], self.abort)
        owed = way["again"] or _states.owes(kept, self.me(host)["started"])
        try:
            if way["save"]:
                self.snapshot(host, begun)
            looked = begun
            out = self.world.steered and self.goes_out(host, way)
            if way["restart"] or (out and not kept.get("out")):
                looked = self.ask(*self.world.names)
                self.check(_roll.may_go_out(self.answers, host, self.fleet, batch, self.fleet["primary"], 1, "64MB"))
            if out:
                self.out(host, looked)
            if way["restart"]:
                self.around(host, looked)
            self.again(host, way)
            if not self.me(host)["in_recovery"] and self.results[host]["out"]:
                self.into(host, self.points)
            if way["restore"] and self.results[host].get("debt"):
                self.act_restore(host)
            if self.results[host]["out"]:
                if way["restore"]:
                    self.write(host, "warm", {"residency": 99.5})
                self.back(host)
            elif way["restore"]:
                self.write(host, "ended", {"residency": 99.5})
                return
            self.write(host, *(["done"] if way["restore"] else ["left", {"started": self.me(host)["started"]}]))
        except Failed:
            if host not in self.stopped:
                self.leave(host)
            promise(
                owed or host in self.stopped or self.world.hosts[host].cold or not self.world.hosts[host].out or not self.world.hosts[host].running,
                "it was neither stopped nor cold, and was left out of traffic", host)
            raise

    def leave(self, host):
        asked = self.ask(host)
        started = self.me(host).get("started")
        if _states.owes(self.results[host], started):
            return
        if self.results[host].get("out"):
            self.into(host, asked)
        if self.undisturbed(asked):  # restarted between the look and this, which nobody can know
            self.write(host, "left", {"started": started})

    def goes_out(self, host, way):
        return way["restart"] or (self.me(host)["in_recovery"] and _states.owes(self.results[host], self.me(host)["started"]))

    def again(self, host, way):
        if way["again"]:
            self.write(host, "restarted", {"after": self.me(host)["started"]})

    def snapshot(self, host, begun):
        one = self.world.hosts[host]
        self.point("before snapshot of %s" % host)
        promise(not one.cold or not self.undisturbed(begun), "a snapshot of what is cold", host)
        if not one.running:
            raise Failed("Cannot connect.")
        self.write(host, "save", {
            "snapshot": "restart@%d" % self.world.tick(), "digest": "d", "wanted": 1000, "started": self.me(host)["started"],
            "standby": self.me(host)["in_recovery"], "system_identifier": SYSTEMS[host], "by": "alice", "since": "2026-11-21T06:00:00Z",
        })

    def out(self, host, looked):
        one = self.world.hosts[host]
        self.write(host, "going_out", {"traffic": [{"kind": "/traffic.yml", "host": host}]})
        self.point("before %s goes out" % host)
        self.somebody_serves(host, looked, not one.out)
        one.out = True
        self.write(host, "out")

    def somebody_serves(self, host, looked, changes=True):
        one = self.world.hosts[host]
        beside = {name: self.world.hosts[name] for name in self.world.beside(host) if name != host}
        others = [other for other in beside.values() if other.running and other.recovery and not other.out and not other.cold]
        alone = len(beside) == 1 and one.recovery  # of a single standby none can stay
        promise(others or alone or not changes or not one.running or not self.undisturbed(looked), "no standby serves", host)

    def around(self, host, looked):
        primary = self.fleet["primary"]
        asked = self.ask(*(self.fleet["hosts"] if host == primary else [host, primary]))
        self.check(_roll.roles_changed(self.answers, host, primary))
        me, pooled = self.me(host), self.world.pooled and not self.me(host)["in_recovery"]
        self.write(host, "stopping", self.stopping(me))
        try:
            if pooled:
                self.write(host, "pausing", {"traffic": POOLERS[SYSTEMS[host]][0]["places"]})
                self.act_pause(host)
            self.stopped.add(host)
            self.act_stop(host, looked)
            self.act_start(host, asked)
        except Failed:
            if pooled:
                self.resume(host)
                self.write(host, "resumed")
            raise
        if pooled:
            self.resume(host)
            self.write(host, "resumed")
        self.write(host, "restarted", {"after": self.world.hosts[host].started})
        self.restarted(host)

    def stopping(self, me):
        return {"before": me["started"], "server": {"version_num": me["version_num"], "cluster_name": me["cluster_name"], "standby": me["in_recovery"]}}

    def restarted(self, host):
        """It is another process from now on, also for what is decided below."""
        self.ask(host)
        self.answered(host)

    def back(self, host):
        primary = self.fleet["primary"]
        looked = self.ask(*{host, primary})
        self.check(_roll.may_go_in(self.answers, host, primary, self.results[host]))
        self.into(host, looked)

    def into(self, host, looked):
        one = self.world.hosts[host]
        self.write(host, "going_in")
        self.point("before %s goes in" % host)
        promise(not one.cold or not one.recovery or not self.undisturbed(looked), "a cold standby went into traffic", host)
        one.out = False
        if one.recovery and not self.undisturbed(looked):
            one.cold = False  # restarted between the look and this, which nobody can know
        if not one.cold:
            one.promised = False
        if not one.running:
            raise Failed("its state is DOWN")
        self.write(host, "in", {"started": self.me(host)["started"]})

    # --- acts ---

    def act_pause(self, host):
        self.point("before the pause")
        if self.pause != "well":
            raise Failed("pgbouncer could not be paused")
        self.world.paused.add(SYSTEMS[host])
        self.point("after the pause")

    def resume(self, host):
        self.point("before resuming")
        self.world.paused.discard(SYSTEMS[host])
        self.point("after resuming")

    def act_stop(self, host, looked):
        world, one, roll = self.world, self.world.hosts[host], self.fleet["roll"]
        self.point("before %s is stopped" % host)
        promise(one.out or not world.steered or not one.recovery, "a standby was stopped in traffic", host)
        self.somebody_serves(host, looked)
        world.restarts[roll, host] = world.restarts.get((roll, host), 0) + 1
        promise(world.restarts[roll, host] == 1, "restarted twice", host, roll)
        one.running, one.cold = False, True
        self.point("after %s is stopped" % host)

    def act_start(self, host, looked):
        world, one = self.world, self.world.hosts[host]
        self.point("before %s is started" % host)
        promise(one.recovery or not world.primaries(SYSTEMS[host]) or one.running or not self.undisturbed(looked), "there are two primaries", host)
        if not one.running:
            one.running, one.started = True, world.tick()
        self.point("after %s is started" % host)

    def act_restore(self, host):
        one = self.world.hosts[host]
        self.point("before %s is restored" % host)
        if not one.running or self.gate == "fail":
            raise Failed("It is not as warm as it was.")
        one.cold = False
        one.promised = one.promised and one.out
        self.point("after %s is restored" % host)

    # --- promises of a run that has come to its end ---

    def after(self):
        promise(not self.world.paused, "clients wait")

    def all_is_well(self):
        """Nothing was in the way of this run, nor anybody."""
        promise(self.ended and not self.problem and not any(self.failures.values()), "it failed", self.problem, self.failures)
        for host, one in self.world.hosts.items():
            record = one.record or {}
            promise(one.running and not one.out and not one.cold, "not as it was", host, vars(one))
            promise(not _states.open_ends(record, one.started), "still open", host, record)
            promise(self.abort or record.get("state") == "done", "not done", host, record)
