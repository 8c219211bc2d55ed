# Two commands: `make demo` and `make test`. Both install what is missing and work from a clean clone.
.PHONY: demo test install uninstall deb build lint docs tools test-tools bench clean

SKIPPED = $(CURDIR)/target/skipped
CARGO = PATH="$$HOME/.cargo/bin:$$PATH" cargo

# Built with a profile and of packages of its own: quickly. For figures of a machine `make build`.
# LuaJIT's makefile takes CCOPT; the demo runs no script.
demo: tools
	CCOPT=-O0 $(CARGO) build --profile demo --locked -p wb-cli --no-default-features
	./target/demo/wirebench demo

# Ends with what could not be tested here, and why. FILTER="package(wb-pcapng)": a part of the tests, by a filter of
# cargo-nextest. .config/nextest.toml has the groups of tests.
test: test-tools
	@mkdir -p target && : > $(SKIPPED)
	WB_SKIPPED=$(SKIPPED) $(CARGO) nextest run --workspace --locked $(if $(FILTER),-E '$(FILTER)')
	$(CARGO) test --doc --workspace --locked --quiet
	@scripts/skipped $(SKIPPED)

# PREFIX=/usr/local, DESTDIR, LINKS=1: docs/install.md. Built before, so that root needs no compiler.
install: target/release/wirebench
install uninstall:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" LINKS="$(LINKS)" scripts/package $@

deb: build
	@scripts/package deb

target/release/wirebench:
	$(MAKE) build

# The symbols are in wirebench.debug: debuggers and backtraces find them beside the binary.
build: tools
	$(CARGO) build --release --locked -p wb-cli
	@cd target/release && objcopy --only-keep-debug wirebench wirebench.debug && \
	  objcopy --strip-all --add-gnu-debuglink=wirebench.debug wirebench wirebench.new && mv wirebench.new wirebench

lint: test-tools
	scripts/install lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) deny check bans licenses sources
	scripts/prose
	codespell

# The pages under docs/ as a site: target/book/index.html.
docs:
	scripts/install docs
	PATH="$$HOME/.cargo/bin:$$PATH" mdbook build

tools:
	@scripts/install build

test-tools:
	@scripts/install test

# Side by side with the peers; needs root and takes some minutes.
bench: build
	scripts/install bench
	bench/tx
	bench/rx
	bench/live
	bench/load
	bench/lossy
	bench/socket
	bench/http
	bench/search
	bench/instructions.sh

clean:
	$(CARGO) clean
