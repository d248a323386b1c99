//! The core alone, against any Kubernetes API server.

use std::process::ExitCode;

fn main() -> ExitCode {
    ostler_server::command::main()
}
