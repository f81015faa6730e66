# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook temp_buffer_cost on every storage that one host with cgroup v1 can make: docs/temp_buffer_cost.md has the figures.

    build/venv/development/bin/python bench/temp_buffer_cost.py OUTPUT page_cache|device [EXTRA VARIABLE=VALUE...]

As root, from the checkout, after build-tools/tree. Each storage is a host of the inventory: ext4 on the disk, the same within the limits of a cloud
volume and of a hard disk (blkio cgroups), tmpfs, and xfs and btrfs on loop devices.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

LIMITS = {"cloud": (3000, 125_000_000), "hdd": (120, 150_000_000)}  # requests and bytes per second
BLKIO = "/sys/fs/cgroup/blkio"
GIB = 1 << 30


def run(*command, text=None):
    return subprocess.run(command, check=True, input=text, stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()


def cluster(stack, work, name, cgroup=None):
    """PostgreSQL in a directory of its own, and in a cgroup of its own."""
    directory = os.path.join(work, name)
    os.mkdir(directory)
    stack.callback(run, "bench/throwaway", "stop", directory)
    start = ["bench/throwaway", "start", directory]
    run(*(["sh", "-c", "echo $$ >%s/cgroup.procs && exec \"$@\"" % cgroup, "sh", *start] if cgroup else start))
    with open(os.path.join(directory, "data", "postmaster.pid")) as file:
        postmaster = file.readline().strip()
    # other work of the host must not have the processors while a flush is measured; within its group of processes, a server competes with nobody
    with contextlib.suppress(OSError), open("/proc/%s/autogroup" % postmaster, "w") as file:
        file.write("-15")
    sql(directory, "CREATE EXTENSION pg_residency")
    return directory


def sql(directory, text):
    run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", directory, "-U", "postgres", "-d", "postgres", text=text)


def limited(stack, name, device):
    """A cgroup; fdatasync is the module's, so the module's Python enters it too, which postgres must be allowed."""
    requests, size = LIMITS[name]
    folder = "%s/pgfleet-cost-%s-%d" % (BLKIO, name, os.getpid())
    os.mkdir(folder)
    stack.callback(os.rmdir, folder)
    for file, value in (("read_iops", requests), ("write_iops", requests), ("read_bps", size), ("write_bps", size)):
        with open("%s/blkio.throttle.%s_device" % (folder, file), "w") as stream:
            stream.write("%s %d" % (device, value))
    shutil.chown(folder + "/cgroup.procs", "postgres")
    return folder


def mounted(stack, work, kind):
    """A file system, and a directory for a tablespace on it."""
    point = os.path.join(work, kind)
    os.mkdir(point)
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", "size=5G", "tmpfs", point)
    else:
        image = point + ".image"
        with open(image, "wb") as file:
            file.truncate(6 * GIB)
        device = run("losetup", "--find", "--show", "--direct-io=on", image)
        stack.callback(run, "losetup", "--detach", device)
        run("mkfs." + kind, "-q", "-f", device)
        run("mount", device, point)
    stack.callback(run, "umount", "--lazy", point)
    os.chmod(point, 0o755)
    directory = os.path.join(point, "tablespace")
    os.mkdir(directory)
    shutil.chown(directory, "postgres", "postgres")
    return directory


def main(output, reach, more):
    number = os.stat("/var/tmp").st_dev
    device = "%d:%d" % (os.major(number), os.minor(number))
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="pgfleet_cost.", dir="/var/tmp"))
        os.chmod(work, 0o755)
        free = cluster(stack, work, "free")
        hosts = {"ext4": {"pgfleet_login_unix_socket": free}}
        for kind in ("tmpfs", "xfs", "btrfs"):
            if kind != "tmpfs" or reach == "page_cache":
                sql(free, "CREATE TABLESPACE %s LOCATION '%s'" % (kind, mounted(stack, work, kind)))
                hosts[kind] = {"pgfleet_login_unix_socket": free, "cache_temp_buffer_cost_tablespace": kind}
        for name in LIMITS:
            cgroup = limited(stack, name, device)
            python = os.path.join(work, "python-" + name)
            with open(python, "w") as file:
                file.write("#!/bin/sh\necho $$ 2>/dev/null >%s/cgroup.procs\nexec /usr/bin/python3 \"$@\"\n" % cgroup)
            os.chmod(python, 0o755)
            hosts[name] = {"pgfleet_login_unix_socket": cluster(stack, work, name, cgroup), "ansible_python_interpreter": python}
        inventory = os.path.join(work, "inventory.json")
        common = {
            "ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3", "ansible_become_method": "ansible.builtin.su",
            "pgfleet_results": os.path.abspath(output), "pgfleet_state_directory": os.path.join(work, "state"), "cache_temp_buffer_cost_reach": reach,
        }
        with open(inventory, "w") as file:
            json.dump({"postgresql": {"hosts": hosts, "vars": common}}, file)
        environment = {"ANSIBLE_COLLECTIONS_PATH": "build", **os.environ, "ANSIBLE_PIPELINING": "True"}
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", inventory, "pgfleet.cache.temp_buffer_cost"]
        for one in ("target=postgresql", *more):
            command += ["-e", one]
        return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
