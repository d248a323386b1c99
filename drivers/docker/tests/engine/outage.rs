//! The proxy by which the engine is taken away from a driver.

use std::process::{Child, Command};

use ostler_driver_docker::DockerHost;

/// A process that ends with the test.
pub(crate) struct Proxy {
    dir: tempfile::TempDir,
    process: Child,
}

impl Proxy {
    /// Starts the proxy of `driver` before `engine`. Drivers wait until the proxy listens.
    pub(crate) fn start(driver: &str, engine: &DockerHost) -> Self {
        // Paths of sockets are short.
        let dir = tempfile::Builder::new().prefix("op-").tempdir_in("/tmp").unwrap();
        let socket = dir.path().join("s");
        let mut command = Command::new(driver);
        command.args(["outage", "--docker-host", &engine.to_string(), "--socket"]).arg(socket);
        Self { dir, process: command.spawn().unwrap() }
    }

    /// Where the driver finds it.
    pub(crate) fn socket(&self) -> String {
        self.dir.path().join("s").display().to_string()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
