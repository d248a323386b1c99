//! Containers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::SystemTime;

use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerState, ContainerStateStatusEnum,
    ContainerSummary, ContainerSummaryStateEnum, ContainerUpdateBody, EndpointSettings, HostConfig,
    Mount, MountType, NetworkingConfig, PortBinding, RestartPolicy as Restart,
    RestartPolicyNameEnum,
};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListContainersOptions, RemoveContainerOptions,
    StartContainerOptions,
};

use super::{Call, Engine, EngineError, Labels, labelled, sorted};
use crate::spec::{Port, RestartPolicy};

/// A container in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// What it does.
    pub life: Life,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// When it was made.
    pub created_at: Option<SystemTime>,
}

/// A container in detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The same as in a list.
    pub summary: Summary,
    /// Whether it ever ran.
    pub ran: bool,
    /// Its limits.
    pub limits: Limits,
    /// Names and ids of the networks that it is connected to.
    pub networks: BTreeSet<String>,
    /// Its host name.
    pub host_name: String,
}

/// The state of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It is made, and never ran.
    Made,
    /// It runs, or is started again.
    Running,
    /// It does not run.
    Stopped,
    /// It is being removed.
    Going,
    /// The engine cannot do anything with it any more.
    Dead,
}

/// The limits of a container, and its restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPUs, in billionths; 0: all.
    pub nano_cpus: i64,
    /// Bytes of memory; 0: all.
    pub memory: i64,
    /// Processes and threads; 0 or less: all that the host has.
    pub pids: i64,
    /// When it is started again.
    pub restart: RestartPolicy,
}

/// A container to be made.
#[derive(Clone)]
pub struct NewContainer {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// The command; empty: the image's own.
    pub command: Vec<String>,
    /// Its variables, `NAME=value`.
    pub environment: Vec<String>,
    /// Its host name.
    pub host_name: String,
    /// Its labels.
    pub labels: Labels,
    /// The first network.
    pub network: Option<String>,
    /// Volumes: name, path, and whether it may only read.
    pub volumes: Vec<(String, String, bool)>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Its limits.
    pub limits: Limits,
    /// Whether it has the rights of the host.
    pub privileged: bool,
}

/// Variables may hold user data.
impl fmt::Debug for NewContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewContainer")
            .field("name", &self.name)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Containers with all of these labels, running or not.
    pub async fn containers(&self, labels: &[(&str, &str)]) -> Result<Vec<Summary>, EngineError> {
        let docker = self.docker().await?;
        let options = ListContainersOptions {
            all: true,
            filters: Some(labelled(labels)),
            ..ListContainersOptions::default()
        };
        let found = self.checked(Call::Look, docker.list_containers(Some(options)).await)?;
        Ok(found.into_iter().map(summary).collect())
    }

    /// The container of this name or id; `None` if there is none.
    pub async fn container(&self, name: &str) -> Result<Option<Container>, EngineError> {
        let docker = self.docker().await?;
        let found = docker.inspect_container(name, None::<InspectContainerOptions>).await;
        match self.checked(Call::Look, found) {
            Ok(found) => Ok(Some(container(found))),
            Err(error) if error.is_refusal(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a container. 409: the name is taken.
    pub(crate) async fn make_container(&self, new: NewContainer) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let options = CreateContainerOptions {
            name: Some(new.name.clone()),
            ..CreateContainerOptions::default()
        };
        let made = docker.create_container(Some(options), body(new)).await;
        self.checked(Call::MakeContainer, made).map(drop)
    }

    /// Starts a container; a running container counts as started.
    pub async fn start(&self, name: &str) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let started = docker.start_container(name, None::<StartContainerOptions>).await;
        self.checked(Call::Start, started)
    }

    /// Changes what a container may use. The engine cannot take a limit away: 0 leaves it as it is.
    pub async fn update(&self, name: &str, limits: Limits) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let body = ContainerUpdateBody {
            nano_cpus: some(limits.nano_cpus),
            memory: some(limits.memory),
            memory_swap: some(limits.memory),
            pids_limit: some(limits.pids),
            restart_policy: Some(restart(limits.restart)),
            ..ContainerUpdateBody::default()
        };
        self.checked(Call::Update, docker.update_container(name, body).await)
    }

    /// Ends and removes a container; one that is not there is gone.
    pub async fn remove(&self, name: &str) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        match self.checked(Call::Remove, docker.remove_container(name, Some(options)).await) {
            Err(error) if error.is_refusal(404) => Ok(()),
            answer => answer,
        }
    }
}

fn some(limit: i64) -> Option<i64> {
    (limit > 0).then_some(limit)
}

fn body(new: NewContainer) -> ContainerCreateBody {
    let bindings = new.ports.iter().map(|port| {
        let binding = PortBinding {
            host_ip: Some(port.address().to_string()),
            host_port: Some(port.host.map(|port| port.to_string()).unwrap_or_default()),
        };
        (port.key(), binding)
    });
    let mut ports: HashMap<String, Option<Vec<PortBinding>>> = HashMap::new();
    for (key, binding) in bindings {
        ports.entry(key).or_default().get_or_insert_default().push(binding);
    }
    let mount = |(source, target, read_only): (String, String, bool)| Mount {
        typ: Some(MountType::VOLUME),
        source: Some(source),
        target: Some(target),
        read_only: Some(read_only),
        ..Mount::default()
    };
    let endpoints = new.network.iter().map(|name| (name.clone(), EndpointSettings::default()));
    let endpoints_config = Some(endpoints.collect()).filter(|it: &HashMap<_, _>| !it.is_empty());
    let exposed: BTreeSet<String> = new.ports.iter().map(Port::key).collect();
    let host_name = Some(new.host_name).filter(|_| new.network.as_deref() != Some("host"));
    ContainerCreateBody {
        image: Some(new.image),
        hostname: host_name,
        entrypoint: Some(new.command).filter(|command| !command.is_empty()),
        env: Some(new.environment),
        labels: Some(new.labels.into_iter().collect()),
        exposed_ports: Some(exposed.into_iter().collect()),
        host_config: Some(HostConfig {
            nano_cpus: some(new.limits.nano_cpus),
            memory: some(new.limits.memory),
            // Without swap: else the limit is the double.
            memory_swap: some(new.limits.memory),
            pids_limit: some(new.limits.pids),
            restart_policy: Some(restart(new.limits.restart)),
            network_mode: new.network,
            mounts: Some(new.volumes.into_iter().map(mount).collect()),
            port_bindings: Some(ports),
            privileged: Some(new.privileged),
            ..HostConfig::default()
        }),
        networking_config: endpoints_config
            .map(|endpoints| NetworkingConfig { endpoints_config: Some(endpoints) }),
        ..ContainerCreateBody::default()
    }
}

fn restart(policy: RestartPolicy) -> Restart {
    let name = match policy {
        RestartPolicy::Never => RestartPolicyNameEnum::NO,
        RestartPolicy::OnFailure => RestartPolicyNameEnum::ON_FAILURE,
        RestartPolicy::Always => RestartPolicyNameEnum::ALWAYS,
        RestartPolicy::UnlessStopped => RestartPolicyNameEnum::UNLESS_STOPPED,
    };
    Restart { name: Some(name), maximum_retry_count: Some(0) }
}

fn policy(restart: Option<&Restart>) -> RestartPolicy {
    match restart.and_then(|restart| restart.name) {
        Some(RestartPolicyNameEnum::ON_FAILURE) => RestartPolicy::OnFailure,
        Some(RestartPolicyNameEnum::ALWAYS) => RestartPolicy::Always,
        Some(RestartPolicyNameEnum::UNLESS_STOPPED) => RestartPolicy::UnlessStopped,
        Some(RestartPolicyNameEnum::NO | RestartPolicyNameEnum::EMPTY) | None => {
            RestartPolicy::Never
        }
    }
}

fn addresses(networks: &BTreeMap<String, EndpointSettings>) -> Vec<String> {
    let addresses = networks.values().filter_map(|endpoint| endpoint.ip_address.clone());
    addresses.filter(|address| !address.is_empty()).collect()
}

fn summary(found: ContainerSummary) -> Summary {
    use ContainerSummaryStateEnum as State;
    let life = match found.state {
        Some(State::CREATED) => Life::Made,
        Some(State::RUNNING | State::RESTARTING) => Life::Running,
        Some(State::REMOVING) => Life::Going,
        Some(State::DEAD) => Life::Dead,
        Some(_) | None => Life::Stopped,
    };
    let names = found.names.unwrap_or_default();
    let name = names.first().map(|name| name.trim_start_matches('/').to_owned());
    let settings = found.network_settings.and_then(|settings| settings.networks);
    let created = found.created.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    Summary {
        id: found.id.unwrap_or_default(),
        name: name.unwrap_or_default(),
        labels: sorted(found.labels),
        life,
        addresses: addresses(&sorted(settings)),
        created_at: created.map(SystemTime::from),
    }
}

fn life(state: &ContainerState) -> Life {
    use ContainerStateStatusEnum as State;
    match state.status {
        Some(State::CREATED) => Life::Made,
        Some(State::RUNNING | State::RESTARTING) => Life::Running,
        Some(State::REMOVING) => Life::Going,
        Some(State::DEAD) => Life::Dead,
        Some(_) | None => Life::Stopped,
    }
}

fn container(found: ContainerInspectResponse) -> Container {
    let state = found.state.unwrap_or_default();
    let config = found.config.unwrap_or_default();
    let host = found.host_config.unwrap_or_default();
    let networks = sorted(found.network_settings.and_then(|settings| settings.networks));
    let ids = networks.values().filter_map(|endpoint| endpoint.network_id.clone());
    let created = found.created.and_then(|time| time.parse::<jiff::Timestamp>().ok());
    // A time that never was is written as year 1.
    let ran = state.started_at.as_ref().is_some_and(|time| !time.starts_with("0001-"));
    Container {
        summary: Summary {
            id: found.id.unwrap_or_default(),
            name: found.name.unwrap_or_default().trim_start_matches('/').to_owned(),
            labels: sorted(config.labels),
            life: life(&state),
            addresses: addresses(&networks),
            created_at: created.map(SystemTime::from),
        },
        ran,
        limits: Limits {
            nano_cpus: host.nano_cpus.unwrap_or_default(),
            memory: host.memory.unwrap_or_default(),
            pids: host.pids_limit.unwrap_or_default(),
            restart: policy(host.restart_policy.as_ref()),
        },
        networks: networks.keys().cloned().chain(ids).collect(),
        host_name: config.hostname.unwrap_or_default(),
    }
}
