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

from ansible_collections.pgfleet.cache.plugins.module_utils import _restart_info, _states
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters, _pending, _plan, _roll, _steps

HOSTS = ["db1", "db2", "db3"]
SYSTEMS = dict(dict.fromkeys(HOSTS, "7"), db4="8", db5="8")
DATABASES = {"7": "shop", "8": "air"}  # by which a pooler knows a cluster
MAX_AGE = 1000
GIVEN = {
    "cache_restart_primary": "in_place", "cache_restart_candidate": "", "cache_restart_switchover_tasks": "", "cache_restart_serial": 1,
    "cache_restart_min_standbys": 1, "cache_restart_what": "postgresql", "cache_restart_commits_may_wait": False,
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
        self.abort, self.others = abort, dict(others or {})
        given = dict(GIVEN, cache_restart_resume=resume, cache_restart_abort=abort, cache_restart_max_age=MAX_AGE)
        self.variables = {}  # hostvars: what a host has registered, and what the inventory has
        for host in world.names:
            traffic = {
                "cache_restart_traffic": ["/traffic.yml"] * world.steered + ["pgbouncer"] * world.pooled,
                "cache_restart_pgbouncer": [{"host": "lb1", "database": DATABASES[SYSTEMS[host]]}],
            }
            self.variables[host] = dict(traffic, cache_restart_given=dict(given, **traffic)) if host in self.limit else traffic
        self.points, self.disturbed = 0, 0
        self.failures, self.fleet, self.problem = {}, {}, ""
        self.looked = {}  # when a host was asked last
        self.remarks = {host: [] for host in world.names}  # before its record begins
        self.stopped = set()
        self.ended = False

    # --- whatever can be cut ---

    def point(self, what=""):
        self.points += 1
        for deed, host in (*self.others.pop(self.points, ()), *self.others.pop(what, ())):
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

    def write(self, host, event, facts=None, remarks=()):
        """As record.yml does."""
        self.note(host, event, facts, remarks)
        self.variables[host]["cache_restart_result"] = {"record": self.world.hosts[host].record}
        self.point("after %s %s" % (host, event))

    def note(self, host, event, facts=None, remarks=()):
        """On the host itself."""
        one = self.world.hosts[host]
        self.point("before %s %s" % (host, event))
        if event == "left" and not self.undisturbed(self.looked[host]):
            one.cold = False  # restarted between the look and this, which nobody can know
        try:
            record = _states.note(one.record or {}, event, facts, remarks)
        except ResidencyError as error:
            raise Broken("'%s' was not allowed" % event, host, one.record) from error
        one.record = json.loads(json.dumps(record))
        promise(_states.fault(record) == "" and _states.known(record) == record, "it wrote what it cannot read", record)
        if event == "save":
            one.promised = True
        if event == "left" and not one.cold:
            one.promised = False

    def ask(self, host, *others):
        """What a host registers, of itself or of ``others``."""
        results = []
        for other in others or [host]:
            found = {"record": json.loads(json.dumps(self.world.hosts[other].record)), "lease": None, "fault": ""}
            answer = _restart_info.answer(
                found, lambda other=other: self.look(other), other, other in self.waive, self.fleet.get("roll", ""), self.fleet.get("abort", False))
            results.append({"answer": answer, "__cache_restart_each": other})
            self.looked[other] = self.points
        self.variables[host]["cache_restart_answers"] = {"results": results}
        return self.points

    def look(self, host):
        one = self.world.hosts[host]
        if not one.running:
            raise ResidencyError("Cannot connect.")
        return {
            "in_recovery": one.recovery, "system_identifier": SYSTEMS[host], "version_num": 150004, "cluster_name": "15/main", "data_directory": "/data",
            "started": one.started, "pid": 5, "extension": "1.0.0", "schema": "public", "lsn": 5, "paused": False, "delay": None,
            "receiver": "streaming" if one.recovery else "none",
        }

    def found(self, host):
        """What a host knows of all."""
        return dict(self.fleet.get("answers", {}), **_plan.answers_of(host, self.variables))

    def me(self, host):
        return self.found(host)[host]

    def record(self, host):
        return self.variables[host].get("cache_restart_result", {}).get("record") or self.me(host)["kept"]

    def owes(self, host):
        return _states.owes(self.record(host), self.me(host).get("started"))

    def ways(self, host, moment):
        return _adapters.ways(_plan.asked(host, self.variables), host, moment)

    def down(self, host):
        return "problem" in self.me(host) and self.me(host)["kept"].get("intent") == "stopping"

    def must(self, host):
        """Ask, and fail if it does not answer."""
        asked = self.ask(host)
        self.check(self.me(host).get("problem"))
        return asked

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
        world, first = self.world, self.limit[0]
        for host in self.limit:
            self.ask(host)
            self.failures[host] = "" if self.down(host) else self.me(host).get("problem", "")
        beyond = [host for host in world.names if host not in self.limit]
        if beyond:
            self.ask(first, first, *beyond)
        self.gathered = self.points
        self.fleet = _plan.gathered(world.names, self.limit, self.variables, self.waive)
        for host in self.fleet["reached"]:  # and the lease is taken
            at = [(one or {}).get("at", 0) for one in (world.hosts[host].record, self.fleet["answers"][host]["kept"])]
            promise(at[0] == at[1], "it was taken for changed by another run", host)
        self.settle(self.fleet["half_done"])
        for host in self.fleet["paused"]:
            self.resume(host)
        if any(self.failures.values()):
            return
        self.fleet = _plan.planned(world.names, self.limit, world.tick(), self.variables, self.waive)
        self.problem = self.fleet["problem"]
        if self.problem:
            return
        for host in self.fleet["reached"]:
            self.note(host, "begin", {
                "roll": self.fleet["roll"], "what": "postgresql" if host in self.limit else "",
                "system_identifier": self.fleet["answers"][host].get("system_identifier", ""),
            })
        for step in self.fleet["steps"]:
            for host in step:
                if not any(self.failures.values()):
                    self.work(host, self.main, step)
        for host in self.limit:
            self.variables[host].update(cache_restart_fleet=self.fleet, pgfleet_failure=self.failures[host])
        left = _roll.left(world.names, self.variables)
        done = [host for host in world.names if (world.hosts[host].record["roll"], world.hosts[host].record["state"]) == (self.fleet["roll"], "done")]
        promise(self.abort or sorted([*left, *done]) == world.names, "it is not what is left", left, done)
        if not left:
            for host in self.fleet["reached"]:
                self.note(host, "finished")

    def settle(self, hosts):
        """Task by task on all of them, as the strategy linear has it."""
        for host in hosts:
            self.failures[host] = _roll.may_start(self.found(host), host) if self.down(host) else ""
        for host in hosts:
            if not self.failures[host]:
                self.work(host, self.settle_one)
            elif self.me(host)["kept"].get("paused"):
                self.resume(host)

    def settle_one(self, host):
        paused = self.me(host)["kept"].get("paused")
        try:
            if self.down(host):
                self.act_start(host, self.gathered)
                self.must(host)
                self.remarks[host].append("It was started first.")
        except Failed:
            if paused:
                self.resume(host)
            raise
        if paused:
            self.resume(host)
        if host not in self.waive:
            self.check(", ".join(_pending.recorded(self.me(host)["kept"], "paused", self.ways(host, "wait"))[1]))
        self.write(host, "resumed")
        if host in self.waive:
            self.write(host, "waived", {"by": "alice"})
            self.remarks[host] += self.record(host)["remarks"][-1:]
        self.must(host)

    # --- roles/cache_restart/tasks/main.yml, and what it includes ---

    def main(self, host, batch):
        begun = looked = self.must(host)
        self.write(host, "go_on", None, self.remarks[host])
        way = self.me(host)["steps"]
        owed = way["again"] or self.owes(host)
        try:
            if way["save"]:
                self.snapshot(host, begun)
                owed = not self.undisturbed(begun)  # restarted between the look and this, which nobody can know
            if self.goes_out(host, way) and (way["restart"] or not self.record(host)["out"]):
                looked = self.may_go_out(host, way, batch)
            if self.goes_out(host, way) and (way["restart"] or self.record(host)["out"] or not self.must_stay(host, batch)):
                self.out(host, looked)
            if way["restart"]:
                self.restart(host, way, batch, looked)
            if way["again"]:
                self.write(host, "restarted", {"after": self.me(host)["started"]})
            if self.me(host)["in_recovery"] and way["restore"]:
                self.replay(host)
            if not self.me(host)["in_recovery"]:
                self.primary(host, way)
            if way["restore"] and self.record(host)["debt"]:
                self.act_restore(host)
            if self.record(host)["out"]:
                self.back(host, way)
            self.end(host, way)
        except Failed:
            if host not in self.stopped:
                self.leave(host)
            promise(
                owed or host in self.stopped or self.world.hosts[host].cold or not self.world.hosts[host].out or not self.world.hosts[host].running,
                "it was neither stopped nor cold, and was left out of traffic", host)
            raise

    def leave(self, host):
        try:
            asked = self.must(host)
            if not self.owes(host) and self.record(host)["out"]:
                self.into(host, asked)
            if not self.owes(host):
                self.write(host, "left", {"started": self.me(host)["started"]})
        except Failed:
            pass  # in addition to the failure before

    def goes_out(self, host, way):
        return self.world.steered and (way["restart"] or (self.me(host)["in_recovery"] and self.owes(host)))

    def must_stay(self, host, batch):
        return _roll.may_go_out(self.found(host), host, self.fleet, batch, self.fleet["primary"], 1, "64MB")

    def may_go_out(self, host, way, batch, gone=False):
        asked = self.ask(host, *(self.pair(host) if gone else self.world.names))
        if way["restart"]:
            self.check(_roll.roles_changed(self.found(host), host, self.fleet["primary"]) if gone else self.must_stay(host, batch))
        return asked

    def pair(self, host):
        return self.fleet["hosts"] if host == self.fleet["primary"] else [host, self.fleet["primary"]]

    def end(self, host, way):
        one = _steps.end(self.record(host), way, self.me(host), {"residency": 99.5})
        self.write(host, one["event"], one["facts"])

    def snapshot(self, host, begun):
        one = self.world.hosts[host]
        self.point("before snapshot of %s" % host)
        promise(not one.cold or not self.undisturbed(begun), "a snapshot of what is cold", host)
        if not one.running:
            raise Failed("Cannot connect.")
        me = self.me(host)
        self.write(host, "save", {
            "snapshot": "restart@%d" % self.world.tick(), "digest": "d", "wanted": 1000, "started": me["started"], "standby": me["in_recovery"],
            "system_identifier": me["system_identifier"], "by": "alice", "since": "2026-11-21T06:00:00Z",
        })

    def out(self, host, looked):
        one = self.world.hosts[host]
        self.write(host, "going_out", {"traffic": _adapters.places(self.ways(host, "away"))})
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

    def restart(self, host, way, batch, looked):
        gone = self.record(host)["out"] and self.world.steered
        asked = self.may_go_out(host, way, batch, gone)
        me = self.me(host)
        pooled = self.world.pooled and not me["in_recovery"]
        self.write(host, "stopping", {
            "before": me["started"], "server": {"version_num": me["version_num"], "cluster_name": me["cluster_name"], "standby": me["in_recovery"]},
        })
        try:
            if pooled:
                self.write(host, "pausing", {"traffic": _adapters.places(self.ways(host, "wait"))})
                self.act_pause(host)
            self.stopped.add(host)
            self.act_stop(host, looked if gone else asked)
            self.act_start(host, asked)
            self.must(host)
        except Failed:
            self.resumed(host, pooled)
            raise
        self.resumed(host, pooled)
        self.write(host, "restarted", {"after": self.me(host)["started"]})

    def resumed(self, host, pooled):
        if pooled:
            self.resume(host)
            self.write(host, "resumed")

    def replay(self, host):
        self.ask(host, host, self.fleet["primary"])
        self.check(self.found(host)[self.fleet["primary"]].get("problem"))
        self.must(host)

    def primary(self, host, way):
        asked = self.points
        if way["restart"] or way["again"]:
            asked = self.may_go_in(host)
        if self.record(host)["out"]:
            self.into(host, asked)

    def may_go_in(self, host):
        asked = self.ask(host, *self.pair(host))
        self.check(_roll.may_go_in(self.found(host), host, self.fleet["primary"], self.record(host)))
        return asked

    def back(self, host, way):
        if way["restore"]:
            self.write(host, "warm", {"residency": 99.5})
        self.replay(host)
        self.into(host, self.may_go_in(host))

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
