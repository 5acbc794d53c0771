# make climb   set up .venv, then climb the whole ladder on this machine: ARGS="--set …" are passed on
# make test    everything but test-sites: linters, types, import contract, tests. Those on a real Slurm, sshd and
#              lab need root and the packages that scripts/setup.sh lab installs: it says so at once
# make check   what a commit needs: the same without the slow tests and those of the lab
#
# make itself ends with 2 whatever a command ended with. Where the exit code matters (CI), call
# scripts/setup.sh once and then .venv/bin/surefoot, whose exit codes are 0, 1, 2, 3, 4, 130.

SHELL := /bin/bash
BIN := .venv/bin
ARGS ?=
SUITES ?= bullseye sid

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-test setup-lab climb lint check test test-local test-lab test-versions test-sites lab-ready clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup:           ## make .venv with what a climb needs
	@scripts/setup.sh climb

setup-test:      ## the same with what the tests need
	@scripts/setup.sh test

setup-lab:       ## the same with the system packages of the tests on a real Slurm (root)
	@scripts/setup.sh lab

climb: setup     ## climb the whole ladder on this machine
	@$(BIN)/surefoot climb $(ARGS); code=$$?; \
	if [ $$code -ne 0 ]; then echo "surefoot climb: exit code $$code"; fi; exit $$code

lint: setup-test ## formatting, linters, types, import contract
	@$(BIN)/ruff format --check --quiet . || { echo "  → .venv/bin/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo

check: lint      ## lint, then the quick tests
	@$(BIN)/pytest -q -n 2 -m "not slow and not lab"

test: lab-ready test-local test-lab ## lint, then every test but the long ones of test-sites (root): what CI runs

test-local: lint ## lint, then every test but those of the lab: no root needed
	@$(BIN)/pytest -q -n 2 -m "not slow and not lab"
	@$(BIN)/pytest -q -n 2 --dist loadgroup --no-loadscope-reorder -m "slow and not lab" --durations=10

test-lab: lab-ready ## tests on a real Slurm, a real sshd and real labs, and of what Ansible makes of hosts (root)
	@$(BIN)/pytest -q -n 3 --dist loadgroup --no-loadscope-reorder -m "lab and not alone and not versions and not long" --durations=25
	@LAB_UP=--plain $(BIN)/pytest -q -m "lab and alone" --durations=5

test-versions: lab-ready ## the oldest and the newest Slurm, each in a lab (root); not part of test. SUITES="trixie": others
	@SUITES="$(SUITES)" $(BIN)/pytest -q -m versions --durations=5

test-sites: lab-ready ## what Ansible makes of hosts: those of test-lab, and the long ones that are not part of test
	@$(BIN)/pytest -q -n 3 --dist loadgroup --no-loadscope-reorder -m sites --durations=15

lab-ready: setup-lab
	@$(BIN)/python tests/ready_for_lab.py

clean:           ## remove .venv and what tools leave; runs in .surefoot stay
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
