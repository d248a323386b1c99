//! The engine as its own command line sees it: what the driver did is not asked of the driver.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use ostler_driver_docker::DockerHost;
use ostler_driver_docker::engine::Engine;
use serde_json::Value;

/// An engine and its command line.
#[derive(Debug, Clone)]
pub(crate) struct Docker {
    host: DockerHost,
}

/// Whether a program is on PATH.
fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Says that something is missing; a failure where everything has to be there.
pub(crate) fn skip(what: &str) {
    let required = std::env::var("OSTLER_TEST_REQUIRE").is_ok_and(|value| value == "all");
    assert!(!required, "{what} not found, and OSTLER_TEST_REQUIRE=all asks for it");
    // `println!` would keep it back, as cargo shows what a test prints only if it fails.
    let _nobody_reads = writeln!(std::io::stdout(), "skipped: {what} not found");
}

/// Whether this process may do anything.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|myself| myself.uid() == 0)
}

/// The programs of Docker, or a skip.
pub(crate) fn has_programs(programs: &[&str]) -> bool {
    let all = programs.iter().all(|name| on_path(name));
    if !all {
        skip("docker engine");
    }
    all
}

impl Docker {
    /// The engine of this computer, with the image of the tests, or a skip.
    pub(crate) fn here() -> Option<Self> {
        if !has_programs(&["docker"]) {
            return None;
        }
        let host = std::env::var("DOCKER_HOST").ok().and_then(|host| host.parse().ok());
        let docker = Self::at(host.unwrap_or_default());
        if !docker.answers() {
            skip("docker engine");
            return None;
        }
        docker.load_image();
        Some(docker)
    }

    pub(crate) fn at(host: DockerHost) -> Self {
        Self { host }
    }

    pub(crate) fn host(&self) -> &DockerHost {
        &self.host
    }

    pub(crate) fn engine(&self) -> Engine {
        Engine::new(self.host.clone())
    }

    pub(crate) fn answers(&self) -> bool {
        let command =
            self.command(&["version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        command.is_ok_and(|status| status.success())
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.arg("-H").arg(self.host.to_string()).args(args);
        command
    }

    /// Runs a command and returns its output.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// The output of `docker inspect` for a container.
    pub(crate) fn inspect(&self, container: &str) -> Value {
        let all: Value =
            serde_json::from_str(&self.run(&["container", "inspect", container])).unwrap();
        all[0].clone()
    }

    /// Runs a command in a container and returns its output.
    pub(crate) fn exec(&self, container: &str, command: &str) -> String {
        self.run(&["exec", container, "/bin/sh", "-c", command])
    }

    /// All that there is: containers, volumes and networks.
    pub(crate) fn everything(&self) -> Vec<String> {
        self.matching(&[])
    }

    /// All that is labelled with a cluster.
    pub(crate) fn of_cluster(&self, cluster: &str) -> Vec<String> {
        let label = format!("label=ostler.dev/cluster-id={cluster}");
        self.matching(&["--filter", &label])
    }

    fn matching(&self, filter: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        for (kind, words) in [
            ("container", ["ps", "-a", "--format", "{{.Names}}"].as_slice()),
            ("volume", &["volume", "ls", "--format", "{{.Name}}"]),
            ("network", &["network", "ls", "--format", "{{.Name}}"]),
        ] {
            let printed = self.run(&[words, filter].concat());
            all.extend(printed.lines().map(|name| format!("{kind} {name}")));
        }
        all.sort();
        all
    }

    pub(crate) fn load_image(&self) {
        let archive = crate::image::archive();
        // The container ends on SIGTERM: an engine that ends waits for it.
        let ends = "CMD [\"/bin/sh\", \"-c\", \"trap 'exit 0' TERM; while true; do sleep 3600 & wait $!; done\"]";
        self.import(&archive, &["-c", ends], crate::image::NAME);
    }

    /// Makes an image of an archive, unless there is one of the name.
    pub(crate) fn import(&self, archive: &Path, changes: &[&str], name: &str) {
        let mut there = self.command(&["image", "inspect", name]);
        if there.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success() {
            return;
        }
        let archive = archive.to_str().unwrap();
        self.run(&[&["import"], changes, &[archive, name]].concat());
    }
}
