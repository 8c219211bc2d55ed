# Two commands: `make demo` and `make test`. Both install what is missing and work from a clean clone.
.PHONY: demo test build lint tools bench clean

SKIPPED = $(CURDIR)/target/skipped
CARGO = PATH="$$HOME/.cargo/bin:$$PATH" cargo

demo: build
	./target/release/wirebench demo

# Ends with what could not be tested here, and why.
test: tools
	@mkdir -p target && : > $(SKIPPED)
	WB_SKIPPED=$(SKIPPED) $(CARGO) --config "target.'cfg(unix)'.runner='$(CURDIR)/scripts/run-test'" test --workspace --locked --no-fail-fast
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
	bench/http
	bench/instructions.sh

clean:
	$(CARGO) clean
