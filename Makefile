# SPDX-License-Identifier: GPL-2.0
#
# Each verb is a script of its own, in series/ (a base kernel becomes ours) or in
# lab/ (build, boot, test); what it does stands at its head.
#
#   KSRC=DIR  compose on the kernel tree in DIR
#   DEPS=:    install nothing

DEPS   ?= lab/deps
SERIES := /usr/bin/python3 series/series.py

.DEFAULT_GOAL := help
.PHONY: help run check shell compose refresh series checkpatch series-check \
	deps clean deps-run kernel kernels

##@ Use
run: kernel ## Build our kernel, boot it, and see steering at work
	lab/uml lab/demo

shell: kernel ## A shell in our kernel, with a device of four queues
	lab/shell

check: deps kernels checkpatch ## All tests, on a normal and on a lock-checking kernel
	lab/check series/test.py lab/test

##@ Change
compose: deps-run ## Make build/linux: the base kernel with our commits
	$(SERIES) compose

refresh: ## Take commits made in build/linux back into the mirror
	$(SERIES) refresh

series: deps-run ## Write patches for git am into build/series
	$(SERIES) series

checkpatch: deps-run ## Let checkpatch --strict judge these patches
	$(SERIES) checkpatch

series-check: ## Compile each commit, SMP and UP, W=1 and sparse (hours)
	$(DEPS) series-check
	$(SERIES) series-check

##@ Other
deps: ## Install the Debian packages that are missing
	$(DEPS) check

clean: ## Remove build/; downloads stay in ~/.cache/packet-steering
	rm -rf build

help: ## Show this
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { print "\n" substr($$0, 5) ":" } \
		/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo

deps-run:
	@$(DEPS) run

kernel: compose
	lab/build normal

kernels: kernel
	lab/build lockdep
