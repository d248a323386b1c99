//! Making a container and its parts.

use std::collections::BTreeMap;

use ostler_driver_sdk::{Context, DriverError};

use super::DockerDriver;
use super::files::twice;
use super::find::labels_of;
use super::update::{fixed_label, limits};
use crate::engine::{EngineError, Failure, File, Labels, NewContainer, NewNetwork, NewVolume};
use crate::errors::{Left, driver_error};
use crate::identity::{CLUSTER, FIXED_SPEC, INSTANCE, Identity, host_name, provider_id};
use crate::spec::{Delivery, ImagePullPolicy, Network, ProviderSpec, TAGS_FILE, Volume};
use crate::tags::TagFile;

/// Longest text of a variable, with its name: a limit of Linux.
const VARIABLE: usize = 128 * 1024;

/// The parts of a machine.
pub(super) struct Plan {
    pub(super) identity: Identity,
    /// Name of the container.
    pub(super) instance: String,
    pub(super) spec: ProviderSpec,
    /// Tags from the core for the first moment of the instance.
    pub(super) tags: BTreeMap<String, String>,
    pub(super) user_data: Vec<u8>,
    /// Files of the replaced instance.
    pub(super) kept: Vec<File>,
    /// Labels of an instance of a group, in place of the labels of a machine.
    pub(super) member: Option<Labels>,
}

impl Plan {
    fn labels(&self) -> Labels {
        self.member.clone().unwrap_or_else(|| labels_of(&self.identity, &self.instance))
    }

    /// User data that must be text, as text.
    pub(super) fn user_data_text(&self) -> Result<Option<&str>, DriverError> {
        if self.spec.user_data.delivery != Delivery::Environment {
            return Ok(None);
        }
        let room = VARIABLE.saturating_sub(self.spec.user_data.variable.len() + 2);
        let text = std::str::from_utf8(&self.user_data).ok();
        let text = text.filter(|text| text.len() <= room && !text.contains('\0'));
        text.map(Some).ok_or_else(|| {
            let message = "user data of this machine do not fit into a variable, which is text of at most 128 KiB: set userData.as to File";
            DriverError::invalid_argument(message)
                .reason("USER_DATA_NO_TEXT")
                .not_applied()
                .violation("userData.as", message)
        })
    }

    fn container(&self) -> Result<NewContainer, DriverError> {
        let Self { identity, instance, spec, .. } = self;
        let mut labels = self.tags.clone();
        labels.extend(self.labels());
        labels.insert(FIXED_SPEC.to_owned(), fixed_label(spec)?);
        let mut environment = spec.environment.clone();
        environment.insert("OSTLER_NODE_NAME".to_owned(), identity.machine_name.clone());
        environment.insert("OSTLER_PROVIDER_ID".to_owned(), provider_id(instance));
        if let Some(text) = self.user_data_text()? {
            environment.insert(spec.user_data.variable.clone(), text.to_owned());
        }
        let volume = |it: &Volume| (volume_name(instance, it), it.path.clone(), it.read_only);
        Ok(NewContainer {
            name: instance.clone(),
            image: spec.image.clone(),
            command: spec.command.clone(),
            environment: environment.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            host_name: host_name(&identity.machine_name),
            labels,
            network: spec.networks.first().map(|network| network_name(instance, network)),
            volumes: spec.volumes.iter().map(volume).collect(),
            ports: spec.ports.clone(),
            limits: limits(spec),
            privileged: spec.privileged,
        })
    }

    /// The files of the container before its first process.
    fn files(&self) -> Vec<File> {
        let tags = TagFile::new(&self.spec.tags, !self.spec.needs_initialization());
        let mode = match self.spec.user_data.delivery {
            Delivery::File => Some(0o600),
            Delivery::Executed => Some(0o700),
            Delivery::Environment => None,
        };
        let (path, content) = (self.spec.user_data.path.clone(), self.user_data.clone());
        let user_data = mode.map(|mode| File { path, mode, content });
        let kept = self.kept.iter().cloned();
        user_data.into_iter().chain(twice(TAGS_FILE, &tags)).chain(kept).collect()
    }
}

impl DockerDriver {
    /// Makes all that is not there yet, then the container. `ALREADY_EXISTS`, `NAME_TAKEN`: a
    /// container of that name is there.
    pub(super) async fn make(&self, ctx: &Context, plan: &Plan) -> Result<(), DriverError> {
        let new = plan.container()?;
        self.have_image(ctx, &plan.spec).await?;
        let mut left = Left::Nothing;
        stop_if_cancelled(ctx, left)?;
        for network in self.missing_networks(plan).await? {
            ctx.progress("CreateNetworks", format!("making network {}", network.name));
            self.engine.make_network(network).await.map_err(|error| driver_error(&error, left))?;
            left = Left::Something;
        }
        for volume in plan.spec.volumes.iter().filter(|volume| !volume.shared) {
            let name = volume_name(&plan.instance, volume);
            ctx.progress("CreateVolumes", format!("making volume {name}"));
            let new = NewVolume { name, driver: volume.driver.clone(), labels: plan.labels() };
            self.engine.make_volume(new).await.map_err(|error| driver_error(&error, left))?;
            left = Left::Something;
        }
        stop_if_cancelled(ctx, left)?;
        ctx.progress("CreateContainer", format!("making container {}", plan.instance));
        self.engine.make_container(new).await.map_err(|error| driver_error(&error, left))
    }

    /// Writes the files of a container that never ran, and starts the container.
    pub(super) async fn complete(&self, ctx: &Context, plan: &Plan) -> Result<(), DriverError> {
        let failed = |error: EngineError| driver_error(&error, Left::Something);
        stop_if_cancelled(ctx, Left::Something)?;
        ctx.progress("UserData", "writing user data and tags");
        self.engine.write_files(&plan.instance, &plan.files()).await.map_err(failed)?;
        stop_if_cancelled(ctx, Left::Something)?;
        ctx.progress("Start", format!("starting container {}", plan.instance));
        self.engine.start(&plan.instance).await.map_err(failed)
    }

    pub(super) async fn have_image(
        &self,
        ctx: &Context,
        spec: &ProviderSpec,
    ) -> Result<(), DriverError> {
        let failed = |error: EngineError| driver_error(&error, Left::Nothing);
        let image = spec.image.as_str();
        let pull = match spec.image_pull_policy {
            ImagePullPolicy::Always => true,
            ImagePullPolicy::IfNotPresent => !self.engine.has_image(image).await.map_err(failed)?,
            // The engine says so when the container is made.
            ImagePullPolicy::Never => false,
        };
        if !pull {
            return Ok(());
        }
        ctx.progress("ImagePull", format!("pulling image {image}"));
        let said = |word: &str, percent: u32| {
            ctx.progress_percent("ImagePull", percent, format!("pulling image {image}: {word}"));
        };
        tokio::select! {
            pulled = self.engine.pull(image, said) => pulled.map_err(|error| not_pulled(&error, image)),
            () = ctx.cancelled() => {
                Err(DriverError::canceled("stopped pulling the image").not_applied())
            }
        }
    }

    /// Docker makes a second network of a name without a word: look first.
    async fn missing_networks(&self, plan: &Plan) -> Result<Vec<NewNetwork>, DriverError> {
        let own: Vec<&Network> = plan.spec.networks.iter().filter(|it| it.own).collect();
        if own.is_empty() {
            return Ok(Vec::new());
        }
        let labels =
            [(CLUSTER, plan.identity.cluster_id.as_str()), (INSTANCE, plan.instance.as_str())];
        let there = self.engine.networks(&labels).await;
        let there = there.map_err(|error| driver_error(&error, Left::Nothing))?;
        let new = own.into_iter().map(|network| NewNetwork {
            name: network_name(&plan.instance, network),
            driver: network.driver.clone(),
            internal: network.internal,
            labels: plan.labels(),
        });
        Ok(new.filter(|new| !there.iter().any(|part| part.name == new.name)).collect())
    }
}

/// The registry's error for an image, with the image's name.
fn not_pulled(error: &EngineError, image: &str) -> DriverError {
    let Failure::Refused { status, message } = &error.failure else {
        return driver_error(error, Left::Nothing);
    };
    let message = format!("image {image} is not there and cannot be pulled: {message}");
    let failure = Failure::Refused { status: *status, message };
    driver_error(&EngineError { call: error.call, failure }, Left::Nothing)
}

fn stop_if_cancelled(ctx: &Context, left: Left) -> Result<(), DriverError> {
    if !ctx.is_cancelled() {
        return Ok(());
    }
    let error = DriverError::canceled("the core cancelled the operation");
    Err(match left {
        Left::Nothing => error.not_applied(),
        Left::Something => error.partial(),
    })
}

/// Name of a network on the engine.
pub(super) fn network_name(instance: &str, network: &Network) -> String {
    if network.own { format!("{instance}-{}", network.name) } else { network.name.clone() }
}

/// Name of a volume on the engine.
fn volume_name(instance: &str, volume: &Volume) -> String {
    if volume.shared { volume.name.clone() } else { format!("{instance}-{}", volume.name) }
}
