# The commands people type, for https://just.systems. Nothing depends on `just`: each recipe is one or two plain commands,
# and what every change must pass is `.ci/run`.

# List the recipes
default:
    @just --list

# Everything that CI checks; installs the tools it needs
ci:
    .ci/run

# Start an API server, the core and a driver with a fake cloud
up *args:
    cargo run --release -- up {{args}}

# Format all code
fmt:
    cargo fmt --all

# Formatting, lints, documentation, contract: what CI checks before it tests
check:
    cargo fmt --all -- --check
    cargo clippy --workspace --all-targets --features ostler-fuzz/fuzz --locked -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
    cd proto && buf lint && for version in released/*.binpb; do buf breaking --against "$version" || exit 1; done
    cd sdk/go && go vet ./... && go test ./...
    cd sdk/go/capi && go vet ./... && go test ./...
    cd sdk/go/mcm && go vet ./... && go test ./...
    cd sdk/go/mcm/azure && go vet ./... && go test ./...

# The definitions of deploy/crds, their CEL rules and the examples, by the library of kube-apiserver
crds:
    cd tests/crds && go run . ../..

# All tests
test:
    cargo test --workspace --locked --no-fail-fast

# The tests that wait for processes and for the Docker engine
test-processes:
    cargo test --workspace --locked --test engine --test processes --test breakages --test fake

# The tests of one crate, e.g. `just test-crate ostler-lifecycle drain`
test-crate crate *filter:
    cargo test -p {{crate}} {{filter}}

# The rules of the repository: sizes, names, layers, licences, fresh pages, words
tidy:
    cargo test -p ostler-tests --test repository

# The simulation: 120 s of the seeds that everybody runs, and 120 s of new ones
sim:
    OSTLER_SIM_SECONDS=120 cargo test --profile sim -p ostler-tests --test sim --locked -- --nocapture --test-threads 1

# Take safety measures out of the product and see which lives notice, e.g. `just mutations no-cordon`
mutations *names:
    tests/mutations/run {{names}}

# Other mutants of the decisions each week, about 70: the tests of `lifecycle` have to notice each
mutants part=`echo $(( $(date +%s) / 604800 % 100 ))`:
    cargo mutants --package ostler-lifecycle --shard {{part}}/100 --output target

# Every fuzz target for some seconds
fuzz seconds="60":
    fuzz/run {{seconds}}

# The descriptors of a new version of the contract, e.g. `just release-contract v1alpha1-0.2`: see CONTRIBUTING.md
release-contract version:
    cd proto && buf lint && buf build --exclude-source-info -o released/{{version}}.binpb

# Write all generated files anew: CRDs, manuals, tables, schemas, Go
generate:
    cd sdk/go && buf generate
    UPDATE_CRDS=1 cargo test -p ostler-api --test crds
    UPDATE_DOCS=1 cargo test -p ostler-lifecycle --lib
    UPDATE_DOCS=1 cargo test -p ostler-sessions --lib
    UPDATE_DOCS=1 cargo test -p ostler --lib waits
    UPDATE_SCHEMA=1 cargo test -p ostler-driver-fake --test readme
    UPDATE_SCHEMA=1 cargo test -p ostler-driver-docker --test readme
    OSTLER_BLESS=1 cargo test -p ostler-conformance --test readme

# Product lines of each crate, now or at a commit
lines *commit:
    .ci/lines {{commit}}

# Sizes of files and functions, and circles between files
sizes:
    .ci/sizes

# CPU time of builds: cold, and after one line was touched
timings *what:
    .ci/timings {{what}}

# Licences, sources and advisories, with cargo-deny
deny:
    cargo deny check
