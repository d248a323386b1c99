//! The `ostler` command.

use std::process::ExitCode;

/// What one thread allocates another frees, which that of the C library does under a lock. With this one the programs take
/// 30 % less CPU (docs/BENCHMARKS.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ostler::main()
}
