//! API server, core and driver as three real processes on one temporary directory, and kubectl beside them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ostler_api::names::annotation::TOKEN_OF;
use ostler_driver_fake::calls::{Call, CallLog};
use ostler_driver_fake::cloud::{Cloud, Instance};
use serde_json::Value;
use tempfile::TempDir;

use crate::account::kubeconfig_of_the_core;
use crate::kubectl::Kubectl;
use crate::ports::free_port;
use crate::process::{PATIENCE, Process, pause};
use crate::tools;

/// A process of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `ostler up --core none --driver none`: the API server.
    Api,
    /// `ostler-server`.
    Core,
    /// `ostler driver fake`.
    Driver,
}

/// A foreign cluster takes one stack at a time: all stacks use its namespace `default`.
static FOREIGN_CLUSTER: Mutex<()> = Mutex::new(());

/// Everything that runs; ended when dropped. On a foreign cluster, what the tests made goes first.
#[derive(Debug)]
pub struct Stack {
    directory: TempDir,
    kubeconfig: PathBuf,
    kubectl: Kubectl,
    api_port: u16,
    core_port: u16,
    metrics_port: u16,
    core_args: Vec<String>,
    /// The core acts as this: on a foreign cluster, which may enforce roles, with its own only.
    core_kubeconfig: PathBuf,
    // Dropped in this order: no process talks to a dead process.
    driver: Option<Process>,
    core: Option<Process>,
    /// A standby core, and its driver.
    spare: Vec<Process>,
    api: Option<Process>,
    /// Ending drivers with operations to finish.
    leaving: Vec<Process>,
    drivers: u32,
    foreign: Option<MutexGuard<'static, ()>>,
    /// How many replicas the core of `deploy/base` has where that is applied to a foreign cluster: none during a test.
    deployed: Option<String>,
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.foreign.is_none() {
            return;
        }
        // One that stands by would lead in the place of the core that is started here.
        self.spare.clear();
        // A test that failed may have left a part dead, and machines go only through their driver.
        for part in [Part::Core, Part::Driver] {
            self.kill(part);
            // What does not start again has failed its test already, and the other tests go on.
            let _started = catch_unwind(AssertUnwindSafe(|| self.restart(part)));
        }
        let made = ["pdb,pods", "-l", "ostler.dev/test", "--force", "--grace-period=0"];
        self.kubectl.output(["delete", "--ignore-not-found"].iter().chain(&made), None);
        let checks = "machinehealthchecks,machinepools,machinereserves";
        for kind in [checks, "machinedeployments", "machinesets", "machines", "machineclasses"] {
            self.kubectl.output(["delete", kind, "--all", "--timeout=120s"], None);
        }
        self.kubectl.output(["delete", "secret", "fake", "big", "--ignore-not-found"], None);
        self.delete_tokens();
        if let Some(replicas) = &self.deployed {
            let replicas = format!("--replicas={replicas}");
            self.kubectl.output(["scale", "deployment", "ostler", &replicas], None);
        }
    }
}

impl Stack {
    /// Starts the whole stack with an API server of its own, because the test `does` this to the server. `None`, with a
    /// line that says so, on a foreign cluster or without kubectl.
    pub fn with_own_api(does: &str) -> Option<Self> {
        if tools::skips_foreign_cluster(does) { None } else { Self::start() }
    }

    /// Starts all of it. `None`, with a line that says so, if kubectl is not there.
    ///
    /// # Panics
    /// If a part does not start.
    pub fn start() -> Option<Self> {
        let program = tools::kubectl()?;
        let directory = TempDir::new().expect("temporary directories can be made");
        let external = tools::foreign_cluster();
        let kubeconfig =
            external.clone().unwrap_or_else(|| directory.path().join("data/kubeconfig"));
        let kubectl = Kubectl::new(program, kubeconfig.clone(), directory.path());
        let mut stack = Self {
            directory,
            kubeconfig: kubeconfig.clone(),
            kubectl,
            api_port: free_port(),
            core_port: free_port(),
            metrics_port: free_port(),
            core_args: Vec::new(),
            core_kubeconfig: kubeconfig,
            api: None,
            core: None,
            spare: Vec::new(),
            driver: None,
            leaving: Vec::new(),
            drivers: 0,
            deployed: None,
            foreign: external
                .is_some()
                .then(|| FOREIGN_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        std::fs::write(stack.token_file(), "a token of the tests").expect("the directory is ours");
        if external.is_none() {
            stack.restart(Part::Api);
        } else {
            stack.install_crds();
            stack.stop_deployed();
            stack.core_kubeconfig = kubeconfig_of_the_core(&stack.kubectl, stack.directory.path());
        }
        stack.restart(Part::Core);
        stack.restart(Part::Driver);
        Some(stack)
    }

    /// kubectl against the API server.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// True if the API server is not ours, and must not be killed.
    pub fn foreign_api(&self) -> bool {
        self.foreign.is_some()
    }

    /// SIGKILL for one process.
    pub fn kill(&mut self, part: Part) {
        if let Some(mut process) = self.slot(part).take() {
            process.kill();
        }
    }

    /// Waits for the exit of one process.
    pub fn wait_for_exit(&mut self, part: Part) {
        if let Some(mut process) = self.slot(part).take() {
            process.wait();
        }
    }

    /// Starts one process, after it was killed or for the first time.
    ///
    /// # Panics
    /// If it does not get ready.
    pub fn restart(&mut self, part: Part) {
        if part == Part::Driver {
            self.drivers += 1;
        }
        let process = match part {
            Part::Api => self.start_api(),
            Part::Core => self.start_core(),
            Part::Driver => self.driver_at(self.core_port),
        };
        *self.slot(part) = Some(process);
    }

    /// As a rolling update does it: another replica is started, and once it stands by, SIGTERM for the one before.
    /// Returns the time of that.
    ///
    /// # Panics
    /// If the new one does not connect.
    pub fn replace_driver(&mut self) -> Timestamp {
        let before = self.driver.take();
        self.restart(Part::Driver);
        self.wait_for_metric("ostler_driver_sessions{", |sessions| sessions >= 2.0);
        if let Some(before) = before {
            before.terminate();
            self.leaving.push(before);
        }
        Timestamp::now()
    }

    /// When the driver that was started last was asked for something for the first time. Waits for it.
    ///
    /// # Panics
    /// If it never is, or its call log cannot be read.
    pub fn first_call_of_the_new_driver(&self) -> Timestamp {
        let log = self.call_log(self.drivers);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let calls = CallLog::read(&log).unwrap_or_default();
            if let Some(first) = calls.first() {
                return first.began;
            }
            assert!(Instant::now() < deadline, "{} stays empty", log.display());
            pause();
        }
    }

    /// Starts another core, which stands by until the one before is gone, with a driver of its own: both drivers have
    /// one cloud.
    pub fn start_spare(&mut self) {
        let drivers = free_port();
        self.spare.push(self.core_at(drivers, free_port()));
        self.drivers += 1;
        self.spare.push(self.driver_at(drivers));
    }

    /// SIGTERM for the core, and then another one.
    ///
    /// # Panics
    /// If the one before does not end well, or the new one does not get ready.
    pub fn replace_core(&mut self) {
        if let Some(mut before) = self.core.take() {
            before.terminate();
            assert!(before.wait().success(), "the core ends in an orderly way");
        }
        self.restart(Part::Core);
    }

    /// Waits until all drivers that were replaced have ended.
    ///
    /// # Panics
    /// If a driver did not end well.
    pub fn wait_for_replaced_drivers(&mut self) {
        for mut driver in self.leaving.drain(..) {
            assert!(driver.wait().success(), "the driver ends in an orderly way");
        }
    }

    /// The calls of the drivers and their answers, driver by driver.
    ///
    /// # Panics
    /// If a call log cannot be read.
    pub fn calls(&self) -> Vec<Call> {
        let logs = (1..=self.drivers).map(|number| self.call_log(number)).filter(|it| it.exists());
        logs.flat_map(|log| CallLog::read(&log).expect("the call log is readable")).collect()
    }

    /// Waits until a metric of the core, named by the beginning of its line, is as `enough` wants it.
    ///
    /// # Panics
    /// If it never is.
    pub fn wait_for_metric(&self, name: &str, enough: impl Fn(f64) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.metrics();
            let line = metrics.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
            if value.is_some_and(&enough) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} is {value:?} for ever in:\n{metrics}");
            pause();
        }
    }

    /// The core's /metrics; empty while the core cannot be reached.
    pub fn metrics(&self) -> String {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.metrics_port))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        ask().unwrap_or_default()
    }

    fn call_log(&self, driver: u32) -> PathBuf {
        self.file(&format!("calls-{driver}.jsonl"))
    }

    /// The instances of the fake cloud, from its journal.
    ///
    /// # Panics
    /// If the journal cannot be read.
    pub fn instances(&self) -> Vec<Instance> {
        let journal = self.file("cloud.jsonl");
        if !journal.exists() {
            return Vec::new();
        }
        Cloud::read(&journal).expect("the journal is readable").instances().cloned().collect()
    }

    /// The instances that the fake cloud holds for the machine of this name.
    pub fn instances_of(&self, machine: &str) -> Vec<Instance> {
        self.instances().into_iter().filter(|it| it.identity.machine_name == machine).collect()
    }

    /// Writes the control file of the fake driver, JSON: faults from now on. `{}` takes them away.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn control(&self, faults: &str) {
        let file = self.file("control.json");
        let part = file.with_extension("part");
        std::fs::write(&part, faults).expect("the directory is ours");
        std::fs::rename(&part, &file).expect("the directory is ours");
    }

    /// Where drivers dial in.
    pub fn core_port(&self) -> u16 {
        self.core_port
    }

    /// More arguments of the core, from its next start on.
    pub fn core_args<'a>(&mut self, args: impl IntoIterator<Item = &'a str>) {
        self.core_args = args.into_iter().map(str::to_owned).collect();
    }

    /// Where the core shows its metrics.
    pub fn metrics_port(&self) -> u16 {
        self.metrics_port
    }

    /// The kubeconfig of the API server.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Resident memory of one process, in KiB.
    ///
    /// # Panics
    /// If it does not run.
    pub fn resident_kib(&mut self, part: Part) -> u64 {
        self.slot(part).as_ref().expect("the process runs").resident_kib()
    }

    /// How long the processors have worked for one process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn cpu(&mut self, part: Part) -> Duration {
        self.slot(part).as_ref().expect("the process runs").cpu()
    }

    /// The sum of the metrics of the core whose line begins like this.
    pub fn metric(&self, name: &str) -> f64 {
        let metrics = self.metrics();
        let values = metrics.lines().filter(|line| line.starts_with(name));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// A file in the directory of this stack.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn slot(&mut self, part: Part) -> &mut Option<Process> {
        match part {
            Part::Api => &mut self.api,
            Part::Core => &mut self.core,
            Part::Driver => &mut self.driver,
        }
    }

    fn token_file(&self) -> PathBuf {
        self.file("driver-token")
    }

    /// The core of `deploy/base` would lead beside that of the test.
    fn stop_deployed(&mut self) {
        let shown = ["get", "deployment", "ostler", "--ignore-not-found"];
        let replicas = shown.into_iter().chain(["-o", "jsonpath={.spec.replicas}"]);
        let replicas = self.kubectl.run(replicas);
        if replicas.is_empty() || replicas == "0" {
            return;
        }
        self.kubectl.run(["scale", "deployment", "ostler", "--replicas=0"]);
        let pods = ["wait", "pods", "--for=delete", "--timeout=120s", "-l"];
        self.kubectl.output(pods.into_iter().chain(["app.kubernetes.io/name=ostler"]), None);
        self.deployed = Some(replicas);
    }

    /// Of a Machine whose core was killed a bootstrap token may be left, and it counts for nothing else here.
    fn delete_tokens(&self) {
        let secrets = ["get", "secrets", "-n", "kube-system", "-o", "json"];
        let Ok(all) = serde_json::from_slice::<Value>(&self.kubectl.output(secrets, None).stdout)
        else {
            return;
        };
        let of_machine = |secret: &&Value| !secret["metadata"]["annotations"][TOKEN_OF].is_null();
        for secret in all["items"].as_array().into_iter().flatten().filter(of_machine) {
            let name = secret["metadata"]["name"].as_str().unwrap_or_default();
            self.kubectl.output(["delete", "secret", "-n", "kube-system", name], None);
        }
    }

    fn install_crds(&self) {
        let crds = tools::root().join("deploy/crds");
        self.kubectl.run(["apply", "-f", text(&crds)]);
    }

    fn start_api(&self) -> Process {
        let data = self.file("data");
        let listen = format!("127.0.0.1:{}", self.api_port);
        let args = [
            "up",
            "--core",
            "none",
            "--driver",
            "none",
            "--data-dir",
            text(&data),
            "--api-listen",
            &listen,
        ];
        let mut process = Process::start("ostler", args, &[]);
        process.line("`ready`", |line| line.starts_with("ready"));
        process
    }

    /// The last core is dead for sure: the next one does not have to wait for the end of its leases. Deletes the leases of the last
    /// core.
    pub fn delete_leases(&self) {
        for lease in ["machine-controller", "machine-controller-manager"] {
            self.kubectl.run(["delete", "lease", lease, "--ignore-not-found", "--wait=false"]);
        }
    }

    fn start_core(&self) -> Process {
        self.delete_leases();
        let mut core = self.core_at(self.core_port, self.metrics_port);
        core.line("`ready`", |line| line.starts_with("ready"));
        core
    }

    fn core_at(&self, drivers: u16, metrics: u16) -> Process {
        let token = format!("{}={}", ostler_driver_fake::PROVIDER, text(&self.token_file()));
        let drivers = format!("127.0.0.1:{drivers}");
        let metrics = format!("127.0.0.1:{metrics}");
        let args = [
            "--kubeconfig",
            text(&self.core_kubeconfig),
            "--drivers-listen",
            &drivers,
            "--metrics-listen",
            &metrics,
            "--driver-token",
            &token,
            "--leader-elect-retry-period",
            "500ms",
        ];
        let args = args.into_iter().chain(self.core_args.iter().map(String::as_str));
        Process::start("ostler-server", args, &[])
    }

    fn driver_at(&self, port: u16) -> Process {
        let endpoint = format!("http://127.0.0.1:{port}");
        let (state, control) = (self.file("cloud.jsonl"), self.file("control.json"));
        let calls = self.call_log(self.drivers);
        let args = [
            "driver",
            "fake",
            "--state-file",
            text(&state),
            "--call-log",
            text(&calls),
            "--control-file",
            text(&control),
            "--node-kubeconfig",
            text(&self.kubeconfig),
        ];
        let token = self.token_file();
        let env = [("OSTLER_ENDPOINT", endpoint.as_str()), ("OSTLER_TOKEN_FILE", text(&token))];
        Process::start("ostler", args, &env)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("our paths are UTF-8")
}
