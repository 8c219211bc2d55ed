# Two commands: `make demo` and `make test`. Both install what is missing and work from a clean clone.
.PHONY: demo test build lint tools bench clean

SKIPPED = $(CURDIR)/target/skipped
CARGO = PATH="$$HOME/.cargo/bin:$$PATH" cargo

demo: build
	./target/release/wirebench demo

# Ends with what could not be tested here, and why. More threads than CPUs: most tests wait, for real time or for
# the machine to be theirs alone.
test: tools
	@mkdir -p target && : > $(SKIPPED)
	WB_SKIPPED=$(SKIPPED) RUST_TEST_THREADS=$${RUST_TEST_THREADS:-24} $(CARGO) test --workspace --locked --no-fail-fast
	@scripts/skipped $(SKIPPED)

build: tools
	$(CARGO) build --release --locked -p wb-cli

lint: tools
	scripts/install lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) deny check bans licenses sources

tools:
	@scripts/install build

# Side by side with the peers; needs root and takes some minutes.
bench: build
	scripts/install bench
	bench/tx
	bench/rx
	bench/load
	bench/lossy
	bench/socket
	bench/instructions.sh

clean:
	$(CARGO) clean
