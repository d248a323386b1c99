//! One machine of a test, and the calls of the driver for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_driver_docker::DockerDriver;
use ostler_driver_docker::identity::{Identity, instance_name};
use ostler_driver_sdk::testing::TestContext;
use ostler_driver_sdk::{
    Context, CreateMachine, DeleteMachine, Driver as _, DriverError, GetMachineStatus,
    InitializeMachine, Instance, ListMachines, UpdateMachine, Updated, UserData,
};
use serde_json::{Value, json};

use crate::docker::Docker;

/// A machine that only a test knows. Nothing of its cluster is left when it is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) cluster: String,
    /// The previous id of the cluster.
    pub(crate) previous: Option<String>,
    pub(crate) spec: Value,
}

/// A number that no other test has, in this process or another.
fn number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("{}-{time}-{next}", std::process::id())
}

/// A spec that any engine can do immediately, with more of it.
pub(crate) fn spec(more: &Value) -> Value {
    let mut spec = json!({
        "image": crate::image::NAME,
        "imagePullPolicy": "Never",
        "networks": [{"name": "none"}],
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

/// The provider id in a record of the contract.
pub(crate) fn provider_id(instance: &Instance) -> &str {
    instance.provider_id()
}

impl Machine {
    pub(crate) fn new(name: &str, more: &Value) -> Self {
        let cluster = format!("test-{}", number());
        let (name, uid) = (name.to_owned(), format!("uid-{}", number()));
        Self { name, uid, cluster, previous: None, spec: spec(more) }
    }

    /// The same with another spec.
    pub(crate) fn with(&self, more: &Value) -> Self {
        Self { spec: spec(more), ..self.clone() }
    }

    /// The same, after its cluster got another id.
    pub(crate) fn moved(&self) -> Self {
        let cluster = format!("{}-now", self.cluster);
        Self { cluster, previous: Some(self.cluster.clone()), ..self.clone() }
    }

    /// Another machine of the same cluster.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        Self { name: name.to_owned(), uid: format!("uid-{}", number()), ..self.clone() }
    }

    /// Name of its container.
    pub(crate) fn container(&self) -> String {
        let identity = Identity {
            cluster_id: self.cluster.clone(),
            machine_name: self.name.clone(),
            machine_uid: self.uid.clone(),
        };
        instance_name(&identity)
    }

    pub(crate) fn id(&self) -> String {
        format!("docker:///{}", self.container())
    }

    pub(crate) fn ctx(&self) -> Context {
        TestContext::new(&self.name, &self.uid)
            .cluster_id(&self.cluster)
            .previous_cluster_ids(self.previous.clone())
            .provider_spec(self.spec.to_string())
            .timeout(Duration::from_mins(5))
            .build()
    }

    pub(crate) async fn create(&self, driver: &DockerDriver) -> Result<Instance, DriverError> {
        self.create_with(driver, "#!/bin/sh\n").await
    }

    pub(crate) async fn create_with(
        &self,
        driver: &DockerDriver,
        user_data: &str,
    ) -> Result<Instance, DriverError> {
        driver.create_machine(CreateMachine::for_tests(self.ctx(), user_data)).await
    }

    pub(crate) async fn initialize(&self, driver: &DockerDriver) -> Result<Instance, DriverError> {
        let provider_id = self.id();
        driver
            .initialize_machine(InitializeMachine {
                ctx: self.ctx(),
                provider_id,
                user_data: UserData::default(),
            })
            .await
    }

    pub(crate) async fn update(&self, driver: &DockerDriver) -> Result<Updated, DriverError> {
        let (provider_id, last_applied_spec_json) = (self.id(), None);
        driver
            .update_machine(UpdateMachine { ctx: self.ctx(), provider_id, last_applied_spec_json })
            .await
    }

    pub(crate) async fn delete(&self, driver: &DockerDriver) -> Result<(), DriverError> {
        driver.delete_machine(DeleteMachine { ctx: self.ctx(), provider_id: None }).await.map(drop)
    }

    pub(crate) async fn status(&self, driver: &DockerDriver) -> Result<Instance, DriverError> {
        driver.get_machine_status(GetMachineStatus { ctx: self.ctx(), provider_id: None }).await
    }

    pub(crate) async fn list(&self, driver: &DockerDriver) -> Result<Vec<Instance>, DriverError> {
        driver.list_machines(ListMachines { ctx: self.ctx() }).await
    }

    /// Removes the rest of a failed test when dropped.
    pub(crate) fn swept(&self, docker: &Docker) -> Sweep {
        Sweep { docker: docker.clone(), cluster: self.cluster.clone() }
    }
}

/// Removes all of a cluster when it is dropped.
#[derive(Debug)]
pub(crate) struct Sweep {
    docker: Docker,
    cluster: String,
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if !self.docker.answers() {
            return;
        }
        for thing in self.docker.of_cluster(&self.cluster) {
            let (kind, name) = thing.split_once(' ').unwrap();
            let words: &[&str] = match kind {
                "container" => &["rm", "-fv", name],
                kind => &[kind, "rm", name],
            };
            drop(self.docker.command(words).output());
        }
    }
}
