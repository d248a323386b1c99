//! The core alone, against any Kubernetes API server.

use std::process::ExitCode;

/// Memory allocated by one thread is freed by another, for which the C library's allocator takes a lock. With mimalloc
/// the programs take 30 % less CPU (BENCHMARKS.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ostler_server::command::main()
}
