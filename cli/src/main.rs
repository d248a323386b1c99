//! The `ostler` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ostler::main()
}
