# Two commands: `make demo` and `make test`. Both install what is missing and work from a clean clone.
.PHONY: demo test build lint tools bench clean

CARGO = PATH="$$HOME/.cargo/bin:$$PATH" cargo

demo: build
	./target/release/wirebench demo

test: tools
	$(CARGO) test --workspace --locked --no-fail-fast

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
