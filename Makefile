# Each recipe is a script in build-tools/ or demo/; they install what they need and say so.
# Presupposed: Debian 12, make, git, /usr/bin/python3; root where something is installed.

SCENARIO ?= default
COMMAND ?= test
MAJORS ?= 17 18
CUTS ?= all
PATRONI ?= 3

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: demo demo-clean
demo: ## a primary and two standbys on this machine: a query cold and restored, one table (root); 4 to 6 minutes
	@demo/run

demo-clean: ## stop and remove the fleet of `make demo` (root)
	@demo/clean

.PHONY: test test-all test-quick test-lint test-unit test-sanity test-extension test-stress test-asan test-majors test-integration test-molecule test-few
.PHONY: test-block-devices test-cuts test-packages test-fleet test-patroni test-reboot test-cold test-tenant
test: ## what every change has to pass, and the sum of it (root); 20 minutes
	@MAJORS=18 /usr/bin/python3 build-tools/test.py unit integration beside sanity molecule majors lint beside extension

test-all: ## everything, each variant, scenario and version, but not stress and asan (root); hours
	@THOROUGH=1 CUTS=6 PATRONI="3 4" /usr/bin/python3 build-tools/test.py --once --limit 180 lint unit sanity beside packages fleet patroni reboot then extension molecule beside majors tenant \
		then integration then block-devices cold

test-quick: ## lint, units, and the heart of each file of the integration tests (root): for work in progress, under 8 minutes
	@/usr/bin/python3 build-tools/test.py --once lint beside unit then few

test-few: ## the integration tests of make test-quick (root)
	@build-tools/integration -m quick

test-lint: ## ansible-lint, antsibull, ruff, mypy, cppcheck; THOROUGH=1: galaxy-importer and lintian too
	@build-tools/lint

test-unit: ## the Python engines, with pytest, on the controller's Python and the oldest and newest of a host; THOROUGH=1: on all
	@build-tools/unit

test-sanity: ## ansible-test sanity on ansible-core 2.19; THOROUGH=1: 2.18, and 2.20 and 2.21 with Python 3.12 too
	@build-tools/sanity development $(if $(THOROUGH),core-2.18 core-2.20:3.12 core-2.21:3.12)

test-extension: ## the C extension against PostgreSQL 15, a standby included; THOROUGH=1: with fuzzing and stress (root)
	@build-tools/extension

test-stress: ## everything at once: STRESS_SECONDS=60 STRESS_SEED=1 MAJORS=15, a primary and its standby each (root)
	@build-tools/stress $(if $(filter file,$(origin MAJORS)),15,$(MAJORS))

test-asan: ## the extension's tests with sanitizers, on a PostgreSQL 15 built with them; BLOCKSIZE=8 (root)
	@build-tools/asan

test-majors: ## MAJORS="17 18": the extension on these, each in a Debian of its own; THOROUGH=1: more than SQL tests (root); 15 and 19 too
	@build-tools/majors $(MAJORS)

test-integration: ## modules and playbooks against throwaway clusters; logins, host Pythons; THOROUGH=1: all variants (root)
	@build-tools/integration

test-cuts: ## CUTS=all CUTS_SEED=1 CUTS_TABLE=: a rolling restart that is ended after every task, and run again (root); hours
	@CUTS=$(CUTS) build-tools/integration -k test_cuts

test-block-devices: ## disks below LVM, LUKS, MD, multipath, NVMe and btrfs, in an emulated machine (root)
	@build-tools/block_devices

test-molecule: ## SCENARIO=default: two hosts with systemd, in Docker (root); COMMAND=converge, verify ...
	@build-tools/molecule $(SCENARIO) $(COMMAND)

test-packages: ## SCENARIO=packages: source, Debian package, repository on three releases of Debian (root)
	@build-tools/molecule packages $(COMMAND)

test-reboot: ## SCENARIO=reboot: two hosts that are killed ten times, unattended; REBOOT_SEED= (root)
	@build-tools/molecule reboot $(COMMAND)

test-fleet: ## SCENARIO=fleet: a rolling restart under load, behind HAProxy and pgbouncer (root)
	@build-tools/molecule fleet $(COMMAND)

test-patroni: ## PATRONI=3: rolling restarts, a switchover, a reboot, a reinit and a rewind with Debian's, or with 4 the newest (root)
	@$(foreach version,$(PATRONI),PATRONI=$(version) build-tools/molecule patroni $(COMMAND) &&) true

test-cold: ## SCENARIO=cold: cold tests on PostgreSQL 15 and 18 in Docker (root); drops this machine's page cache
	@build-tools/molecule cold $(COMMAND)

test-tenant: ## MAJORS="15 18": the hostile tenant on these, beside every module (root); 17 too
	@build-tools/tenant $(if $(filter file,$(origin MAJORS)),15 18,$(MAJORS))

.PHONY: bench
bench: ## the engine's figures beside its peers' on the same files (root); GIB=2 REPEAT=3; GIB=0.5 REPEAT=1 is short
	@bench/run

.PHONY: build derived changelog clean
build: ## the working tree as build/ansible_collections/pgfleet/cache
	@build-tools/tree

derived: ## what follows from the argument specifications and the modules' documentation: defaults, tables
	@build-tools/derived

changelog: ## CHANGELOG.md from changelogs/fragments
	@build-tools/changelog

clean: ## remove build/ (not the fleet of `make demo`, not the Docker image)
	rm -rf build
