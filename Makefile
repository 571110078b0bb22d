# SPDX-License-Identifier: GPL-2.0
#
#   make quick      first table in virtual time, from nothing; only User Mode Linux
#   make demo       the same run in QEMU, compared with virtual time
#   make check      two minutes: tests of files that differ from the upstream branch (or BASE=COMMIT)
#   make test       all tests that protect a user, on the host and in guests
#   make test-long  hours: debug kernels with several processors, storms, mutants, other machines
#   make            set up, build the kernels, the modules and the tools
#   make modules    the kernel modules; KDIR=DIR for your own kernel
#   make tracing    eBPF programs of `xdc trace` (part of make, not of make demo)
#   make tools      userspace-tools/target/release/xdc, and tc's plugins in build/tc
#   make install    the output of make tools modules KDIR=DIR: modules into /lib/modules of the
#                   kernel in KDIR, xdc, man pages and completions into PREFIX, plugins into
#                   tc's and ip's folders. Builds nothing, so only this step needs root
#   make uninstall  remove them
#   make dkms       /usr/src/xdc-VERSION, from which dkms builds the modules for each kernel
#   make bundle     build/bundle/xdc-VERSION-x86_64.tar.zst: xdc, kernel, modules, scenarios, docs;
#                   runs anywhere without root and without a compiler
#   make deb        build/deb: xdc_VERSION_amd64.deb of the bundle, and xdc-dkms_VERSION_all.deb;
#                   MAINTAINER="Name <address>" names the packager
#   make release    build/release: bundle and source, with checksums signed by the minisign key in
#                   the file MINISIGN_KEY (docs/security.md). Refuses stale results
#   make selftests-7.2  build a UML kernel of Linux 7.2 and the modules, run their selftests
#   make modules-7.2    only build the modules for it
#   make test-debian  the modules in Debian's kernel (docs/host.md); XDC_KERNEL_SERIES=7.2 for its 7.2
#   make clean      delete build output (kernels and crates stay in the cache)
#
# KSRC=DIR   build the guests' kernels from your source tree
# KDIR=DIR   build the modules for your kernel's build tree
# DESTDIR=DIR  install below it; SIGN_KEY=FILE SIGN_CERT=FILE  sign the installed modules
# RUSTC=PROGRAM BINDGEN=PROGRAM and CLANG=clang-20 or LLVM=1, -20, DIR/  tools for the kernels
# W=1 CLIPPY=1 are passed to the kernel's build.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
PREFIX ?= /usr/local
TARGET := x86_64-unknown-linux-gnu
GUEST_BIN := xdc-script xdc-storm xdc-witness
STATIC := RUSTFLAGS="-C target-feature=+crt-static -C strip=debuginfo" cargo build --quiet --locked --release --target $(TARGET)
STATIC_OUT := userspace-tools/target/$(TARGET)/release
# `make check` sets dev, which compiles changes in a fraction of the time.
PROFILE ?= release
XDC := userspace-tools/target/$(PROFILE:dev=debug)/xdc
export KSRC KDIR W CLIPPY DESTDIR MAINTAINER SIGN_KEY SIGN_CERT
# Share compiled crates among checkouts. Cargo before 1.91 ignores the variable and uses target/.
ifndef CARGO_BUILD_BUILD_DIR
export CARGO_BUILD_BUILD_DIR := $(shell . qemu-images/common.sh && cargo_dir cargo)
ifeq ($(CARGO_BUILD_BUILD_DIR),)
$(error see above)
endif
endif

.PHONY: all quick quick-plan setup kernels modules agent tracing test-tools tools harness guests guests-uml bundle deb fresh release demo check test test-long test-debian install uninstall dkms clean
.NOTPARALLEL:

all: guests tracing
	@echo "ready: make demo, make test, or $(XDC) --help"

# Requirements of a guest, on both engines.
guests: guests-uml kernel-x86 modules-x86

guests-uml: kernel-uml modules-uml agent tools

setup:
	@qemu-images/setup.sh $(SETUP)

kernels: kernel-x86 kernel-uml

kernel-%: setup
	@qemu-images/link-kernel.sh $*

ifdef KDIR
modules:
	@qemu-images/modules.sh kdir
else
modules: modules-x86 modules-uml
endif

modules-%: kernel-%
	@qemu-images/modules.sh $*

# Performance is not measured in these kernels, so lint the same build that the selftests run.
modules-debug modules-uml-debug: export W := 1
modules-debug modules-uml-debug: export CLIPPY := 1

# Static, because the agent is the first process of a guest without libraries. Without symbols and build id,
# the file is the same in each checkout, and so are the names of cached results.
agent: setup
	@mkdir -p build
	@[ -e build/agent ] || echo "xdc: building the guests' agent"
	@cd userspace-tools && $(STATIC) -p xdc-agent
	@objcopy -S -R .note.gnu.build-id $(STATIC_OUT)/xdc-agent $(STATIC_OUT)/agent
	@install -C -m 755 $(STATIC_OUT)/agent build/agent

# eBPF programs of `xdc trace`.
tracing: setup
	@qemu-images/setup.sh tracing
	@qemu-images/ebpf.sh

# Programs for the tests' guests; static, except xdc-code, because Debian has ISA-L only as a shared library.
test-tools: tracing
	@qemu-images/setup.sh tests
	@cd userspace-tools && $(STATIC) $(GUEST_BIN:%=-p %)
	@cd userspace-tools && cargo build --quiet --locked --release -p xdc-code
	@install -C -m 755 -t build/guest-bin $(GUEST_BIN:%=$(STATIC_OUT)/%) userspace-tools/target/release/xdc-code

# Licenses and list of the crates in the installed programs.
build/doc/%: userspace-tools/Cargo.lock userspace-tools/ebpf/Cargo.lock qemu-images/crates.py
	@mkdir -p build/doc
	@qemu-images/crates.py $(if $(filter sbom%,$*),sbom,notices) xdc xdc-tc-plugin xdc-ip-plugin xdc-witness-ebpf >$@.new && mv $@.new $@ || \
		echo "xdc: continuing without $@, which only packages need"

tools: setup build/doc/THIRD-PARTY.txt build/doc/sbom.cdx.json
	@[ -e $(XDC) ] || echo "xdc: building $(XDC)"
	@cd userspace-tools && cargo build --quiet --locked --profile $(PROFILE) -p xdc -p xdc-tc-plugin -p xdc-ip-plugin
	@mkdir -p build/tc build/ip
	@install -s -m 644 $(dir $(XDC))libq_phantom.so build/tc/q_phantom.so
	@ln -sf q_phantom.so build/tc/q_acceltor.so
	@install -s -m 644 $(dir $(XDC))liblink_unorc.so build/ip/link_unorc.so

# Twins and foreign suites.
harness: tools
	@cd userspace-tools && cargo build --quiet --locked --profile $(PROFILE) -p xdc-harness

# No QEMU, and no modules for tests.
quick: SETUP := quick
quick: export XDC_SELFTEST :=
quick: quick-plan modules-uml agent tools
	@echo "quick: running two-dc-1g in virtual time (half a minute)"
	@$(XDC) run two-dc-1g --engine uml

quick-plan:
	@[ -e build/uml/kernel ] || printf '%s\n' "quick: 10 to 12 minutes on two idle cores, the first time:" \
		"  packages and tools 2.5 min, kernel source (170 MB) and User Mode Linux 5 min, modules, agent and xdc 3.5 min, the run 0.5 min"

bundle: modules-uml agent tools
	@qemu-images/setup.sh bundle
	@qemu-images/bundle.sh

deb: bundle
	@qemu-images/setup.sh deb
	@qemu-images/deb.sh

# Each row of docs/results/*.csv has the inputs of this build.
fresh: guests-uml
	@for csv in docs/results/*.csv; do \
		$(XDC) paper "$$(basename "$$csv" .csv)" --stale --page "$${csv%.csv}.md" || exit; \
	done

release: fresh bundle
	@qemu-images/setup.sh release
	@qemu-images/release.sh

demo: guests
	@echo "demo: running two-dc-1g in QEMU (12 to 26 minutes without KVM) and in virtual time (half a minute), then comparing both"
	@$(XDC) run two-dc-1g --engine qemu --results results/demo/qemu
	@$(XDC) run two-dc-1g --engine uml --results results/demo/uml
	@$(XDC) compare results/demo/uml/two-dc-1g results/demo/qemu/two-dc-1g

# Another kernel series, with its own home below build/.
modules-7.%: setup
	@XDC_KERNEL_SERIES=7.$* qemu-images/link-kernel.sh uml
	@XDC_KERNEL_SERIES=7.$* qemu-images/modules.sh uml

selftests-7.%: agent test-tools tools
	@$(MAKE) modules-7.$*
	@XDC_HOME=build/linux-7.$* $(XDC) selftest --engine uml

# The suite builds the requirements of its stages, and times it. FILTER=WORDS selects stages.
check test test-long: setup
	@qemu-images/setup.sh tests
	@cd userspace-tools && cargo build --quiet --locked --release -p xdc-suite
	@XDC_TOP="$(CURDIR)" userspace-tools/target/release/xdc-suite $(@:test-long=long) $(FILTER)

install:
	@qemu-images/install.sh "$(PREFIX)"

uninstall:
	@qemu-images/install.sh --uninstall "$(PREFIX)"

dkms:
	@qemu-images/dkms.sh

test-debian: setup agent test-tools tools
	@qemu-images/debian.sh

clean:
	rm -rf build userspace-tools/target
