//! The `ostler` command.

use std::process::ExitCode;

/// Threads free memory that other threads allocated; the allocator of the C library takes a lock for each such free. With
/// mimalloc the programs take 30 % less CPU (BENCHMARKS.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ostler::main()
}
