# SPDX-License-Identifier: GPL-2.0
#
#   make quick      from nothing to a first table, in virtual time: User Mode Linux alone
#   make demo       the same in QEMU, compared with virtual time
#   make check      two minutes: tests of the files that differ from the upstream branch (or BASE=COMMIT)
#   make test       everything that protects a user, on the host and in guests
#   make test-long  hours: debug kernels with several processors, storms, mutants, other machines
#   make            set up, build the kernels, the modules and the tools
#   make modules    the kernel modules; KDIR=DIR for a kernel of your own
#   make tracing    what `xdc trace` records with (make has it, make demo does not)
#   make tools      userspace-tools/target/release/xdc, and tc's plugins in build/tc
#   make install    what make tools modules KDIR=DIR has built: modules into /lib/modules of the
#                   kernel in KDIR, xdc, man pages and completions into PREFIX, the plugin to
#                   where tc looks for it. Builds nothing, so it is all that needs root
#   make uninstall  takes them away again
#   make dkms       /usr/src/xdc-VERSION, for dkms to build them for each kernel
#   make bundle     build/bundle/xdc-VERSION-x86_64.tar.zst: xdc, kernel, modules, scenarios, docs;
#                   runs anywhere without root and without a compiler
#   make release    build/release: the bundle and the source, with checksums that the minisign key in the
#                   file MINISIGN_KEY signs (docs/security.md)
#   make selftests-7.2  the modules and their selftests in a UML kernel of Linux 7.2, which it builds
#   make modules-7.2    the modules for it alone: what it takes to compile them
#   make test-debian  the modules in Debian's own kernel (docs/host.md); XDC_KERNEL_SERIES=7.2: its 7.2
#   make clean      forget what was built here (kernels and crates stay in the cache)
#
# KSRC=DIR   build the guests' kernels from your own source tree
# KDIR=DIR   build the modules for your own kernel's build tree
# DESTDIR=DIR  install below it; SIGN_KEY=FILE SIGN_CERT=FILE  sign what is installed
# RUSTC=PROGRAM BINDGEN=PROGRAM and CLANG=clang-20 or LLVM=1, -20, DIR/  build the kernels by these
# W=1 CLIPPY=1 are passed to the kernel's build.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
PREFIX ?= /usr/local
TARGET := x86_64-unknown-linux-gnu
GUEST_BIN := xdc-script xdc-storm xdc-witness
STATIC := RUSTFLAGS="-C target-feature=+crt-static -C strip=debuginfo" cargo build --quiet --locked --release --target $(TARGET)
STATIC_OUT := userspace-tools/target/$(TARGET)/release
# `make check` takes dev, which compiles a change in a fraction of the time.
PROFILE ?= release
XDC := userspace-tools/target/$(PROFILE:dev=debug)/xdc
export KSRC KDIR W CLIPPY DESTDIR SIGN_KEY SIGN_CERT
# A new checkout finds the crates compiled. Cargo before 1.91 does not know of it and keeps them in target/.
ifndef CARGO_BUILD_BUILD_DIR
export CARGO_BUILD_BUILD_DIR := $(shell . qemu-images/common.sh && cargo_dir cargo)
ifeq ($(CARGO_BUILD_BUILD_DIR),)
$(error see above)
endif
endif

.PHONY: all quick quick-plan setup kernels modules agent tracing test-tools tools guests guests-uml bundle release demo check test test-long test-debian install uninstall dkms clean
.NOTPARALLEL:

all: guests tracing
	@echo "ready: make demo, make test, or $(XDC) --help"

# What a guest needs on both engines.
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

# Nothing measures these, so what the selftests run is what is linted, and is compiled once.
modules-debug modules-uml-debug: export W := 1
modules-debug modules-uml-debug: export CLIPPY := 1

# Static, because it is the first process of a guest that has no libraries. Without symbols and build id
# it is the same file in each checkout, and so are the names of cached results.
agent: setup
	@mkdir -p build
	@[ -e build/agent ] || echo "xdc: building the guests' agent"
	@cd userspace-tools && $(STATIC) -p xdc-agent
	@objcopy -S -R .note.gnu.build-id $(STATIC_OUT)/xdc-agent $(STATIC_OUT)/agent
	@install -C -m 755 $(STATIC_OUT)/agent build/agent

# The eBPF programs of `xdc trace`.
tracing: setup
	@qemu-images/setup.sh tracing
	@qemu-images/ebpf.sh

# What only the tests' guests have; static, too, but for xdc-code, since Debian has ISA-L as a shared library.
test-tools: tracing
	@qemu-images/setup.sh tests
	@cd userspace-tools && $(STATIC) $(GUEST_BIN:%=-p %)
	@cd userspace-tools && cargo build --quiet --locked --release -p xdc-code
	@install -C -m 755 -t build/guest-bin $(GUEST_BIN:%=$(STATIC_OUT)/%) userspace-tools/target/release/xdc-code

# Licences and list of the crates in the programs that `make install` copies.
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

# Without QEMU, and without the modules that only tests load.
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

release: bundle
	@qemu-images/setup.sh release
	@qemu-images/release.sh

demo: guests
	@echo "demo: two-dc-1g in QEMU (12 to 26 minutes without KVM), in virtual time (half a minute), and both compared"
	@$(XDC) run two-dc-1g --engine qemu --results results/demo/qemu
	@$(XDC) run two-dc-1g --engine uml --results results/demo/uml
	@$(XDC) compare results/demo/uml/two-dc-1g results/demo/qemu/two-dc-1g

# Another series of kernels, in a home of its own below build/.
modules-7.%: setup
	@XDC_KERNEL_SERIES=7.$* qemu-images/link-kernel.sh uml
	@XDC_KERNEL_SERIES=7.$* qemu-images/modules.sh uml

selftests-7.%: agent test-tools tools
	@$(MAKE) modules-7.$*
	@XDC_HOME=build/linux-7.$* $(XDC) selftest --engine uml

# The suite builds what its stages need, and times it. FILTER=WORDS picks stages.
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
