//! Running a driver: as a process of its own, or inside another.

use std::process::ExitCode;

use crate::driver::Driver;
use crate::options::{DriverArgs, Options};

/// Runs `driver` as the whole process: flags, environment, logs, signals.
pub async fn run<D: Driver>(driver: D) -> ExitCode {
    let _ = driver;
    ExitCode::FAILURE
}

/// As [`run`], with flags that were read already.
pub async fn run_with_args<D: Driver>(driver: D, args: DriverArgs) -> ExitCode {
    let _ = (driver, args);
    ExitCode::FAILURE
}

/// Runs `driver` inside another program until [`Options::shutdown`] is cancelled.
pub async fn run_with<D: Driver>(driver: D, options: Options) {
    let _ = (driver, options);
}
