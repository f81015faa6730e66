# Each recipe is a script in build-tools/ or demo/; they install what they need and say so.
# Presupposed: Debian 12, make, git, /usr/bin/python3; root where something is installed.

SCENARIO ?= default
COMMAND ?= test
MAJORS ?= 17 18

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: demo demo-clean
demo: ## a primary and two standbys on this machine: snapshot, cold, warm-up, one table (root)
	@demo/run

demo-clean: ## stop and remove the fleet of `make demo` (root)
	@demo/clean

.PHONY: test test-all test-lint test-unit test-sanity test-extension test-stress test-asan test-majors test-integration test-molecule
.PHONY: test-packages test-fleet test-cold test-tenant
test: ## all tests below but stress, asan and the last four, one after the other, and the sum (root)
	@build-tools/test lint unit sanity extension majors integration molecule

test-all: ## those of `make test` and the last four (root)
	@build-tools/test lint unit sanity extension majors integration tenant molecule packages fleet cold

test-lint: ## ansible-lint, antsibull, galaxy-importer, ruff, mypy, cppcheck
	@build-tools/lint

test-unit: ## the Python engines, with pytest
	@build-tools/unit

test-sanity: ## ansible-test sanity and units on ansible-core 2.18, 2.19; 2.20, 2.21 with Python 3.12
	@build-tools/sanity development core-2.18 core-2.20:3.12 core-2.21:3.12

test-extension: ## the C extension against PostgreSQL 15, a standby included (root)
	@build-tools/extension

test-stress: ## everything at once: STRESS_SECONDS=60 STRESS_SEED=1 MAJORS=15, a primary and its standby each (root)
	@build-tools/stress $(if $(filter file,$(origin MAJORS)),15,$(MAJORS))

test-asan: ## the extension's tests with sanitizers, on a PostgreSQL 15 built with them; BLOCKSIZE=8 (root)
	@build-tools/asan

test-majors: ## MAJORS="17 18": the extension on these, each in a Debian of its own (root); 15 and 19 too
	@build-tools/majors $(MAJORS)

test-integration: ## modules and playbooks against throwaway clusters; logins, host Pythons (root)
	@build-tools/integration

test-molecule: ## SCENARIO=default: two hosts with systemd, in Docker (root); COMMAND=converge, verify ...
	@build-tools/molecule $(SCENARIO) $(COMMAND)

test-packages: ## SCENARIO=packages: source, Debian package, repository on three releases of Debian (root)
	@build-tools/molecule packages $(COMMAND)

test-fleet: ## SCENARIO=fleet: a rolling restart under load, behind HAProxy and pgbouncer (root)
	@build-tools/molecule fleet $(COMMAND)

test-cold: ## SCENARIO=cold: cold tests on PostgreSQL 15 and 18 in Docker (root); drops this machine's page cache
	@build-tools/molecule cold $(COMMAND)

test-tenant: ## MAJORS="15 18": the hostile tenant on these, with all playbooks (root); 17 too
	@build-tools/tenant $(if $(filter file,$(origin MAJORS)),15 18,$(MAJORS))

.PHONY: bench
bench: ## the engine's figures beside its peers' on the same files (root); GIB=2 REPEAT=3; GIB=0.5 REPEAT=1 is short
	@bench/run

.PHONY: build changelog clean
build: ## the working tree as build/ansible_collections/pgfleet/cache
	@build-tools/tree

changelog: ## CHANGELOG.md from changelogs/fragments
	@build-tools/changelog

clean: ## remove build/ (not the fleet of `make demo`, not the Docker image)
	rm -rf build
