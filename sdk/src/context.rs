//! The context of every verb: the target of the operation, and access to its class and secret.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_proto::Scrubber;
use ostler_proto::v1alpha1 as proto;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::class::Class;
use crate::error::{Code, DriverError};
use crate::identity::{Identity, PoolIdentity, Target};
use crate::library::Library;
use crate::metadata::MachineMetadata;
use crate::secret::Secret;

/// One operation, seen from inside a verb. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    operation: Facts,
    cancelled: CancellationToken,
    references: References,
    reports: Option<mpsc::Sender<Report>>,
    saved: Mutex<Saved>,
}

/// Results of the verb for the end of the operation.
#[derive(Default)]
struct Saved {
    checkpoint: Option<String>,
    secret: Option<Secret>,
    /// Another secret that must not be seen in any text.
    user_data: Zeroizing<Vec<u8>>,
    progress: Progress,
}

/// The last progress of the verb.
#[derive(Debug, Clone, Default)]
struct Progress {
    stage: String,
    message: String,
    percent: u32,
}

/// The fixed part of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) operation_id: String,
    pub(crate) idempotency_key: String,
    pub(crate) create_idempotency_key: String,
    pub(crate) target: Target,
    pub(crate) cluster_id: String,
    pub(crate) previous_cluster_ids: Vec<String>,
    pub(crate) adopt_by_name: bool,
    pub(crate) delivery: u32,
    pub(crate) checkpoint: Option<String>,
    pub(crate) traceparent: String,
    pub(crate) deadline: Instant,
    pub(crate) class: Option<proto::ObjectRevision>,
    pub(crate) machine: Option<MachineMetadata>,
}

/// Where class and secret come from.
#[derive(Clone)]
pub(crate) enum References {
    /// From the core.
    Core(Arc<Library>),
    /// Given by a test.
    Given { class: Arc<Class>, secret: Option<Secret> },
}

/// Progress on its way to the core.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) operation_id: String,
    pub(crate) stage: String,
    pub(crate) message: String,
    pub(crate) percent: u32,
    pub(crate) checkpoint: String,
}

impl Context {
    pub(crate) fn new(
        operation: Facts,
        references: References,
        cancelled: CancellationToken,
        reports: Option<mpsc::Sender<Report>>,
    ) -> Self {
        let saved = Mutex::default();
        Self { inner: Arc::new(Inner { operation, cancelled, references, reports, saved }) }
    }

    /// UUID of this operation. New for every decision of the core; for identity use
    /// [`idempotency_key`](Self::idempotency_key) or the target.
    pub fn operation_id(&self) -> &str {
        &self.inner.operation.operation_id
    }

    /// At most 64 ASCII characters, the same for every retry of the same intent, across restarts of
    /// both sides: hand it to the infrastructure as its client token.
    pub fn idempotency_key(&self) -> &str {
        &self.inner.operation.idempotency_key
    }

    /// The idempotency key of the target's creation: an infrastructure that took the key as client token may find the
    /// instance by it before its lists show the instance. Empty for operations on a class, and from a core that does not
    /// know the key.
    pub fn create_idempotency_key(&self) -> &str {
        &self.inner.operation.create_idempotency_key
    }

    /// The object that the operation is about.
    pub fn target(&self) -> &Target {
        &self.inner.operation.target
    }

    /// The Machine's metadata from the core. `None`: the operation is about no Machine, or about an instance whose
    /// Machine is not known.
    pub fn machine(&self) -> Option<&MachineMetadata> {
        self.inner.operation.machine.as_ref()
    }

    /// The machine and the cluster that the instance belongs to: the driver tags and finds the instance by them.
    pub fn identity(&self) -> Identity {
        let Target { name, uid, .. } = self.target();
        Identity {
            cluster_id: self.cluster_id().to_owned(),
            machine_name: name.clone(),
            machine_uid: uid.clone(),
        }
    }

    /// The pool and the cluster that a group belongs to: the driver tags the group and its instances with them. Meaningful
    /// for operations on groups.
    pub fn pool_identity(&self) -> PoolIdentity {
        let Target { name, uid, .. } = self.target();
        PoolIdentity {
            cluster_id: self.cluster_id().to_owned(),
            pool_name: name.clone(),
            pool_uid: uid.clone(),
        }
    }

    /// Never touch anything that is not tagged with this id or with a previous id of the cluster. New instances are
    /// tagged with this id.
    pub fn cluster_id(&self) -> &str {
        &self.inner.operation.cluster_id
    }

    /// Ids that this cluster had before, as "Cluster ids that change" in the contract says; never the
    /// one of today. A driver that looks for them says
    /// [`knows_previous_cluster_ids`](crate::DriverInfo::knows_previous_cluster_ids).
    pub fn previous_cluster_ids(&self) -> &[String] {
        &self.inner.operation.previous_cluster_ids
    }

    /// Whether an instance with this cluster id in its tags belongs to this cluster, under the current id or a previous
    /// one. An instance without a cluster id does not.
    pub fn is_own_cluster(&self, cluster_id: &str) -> bool {
        let own = cluster_id == self.cluster_id() || self.is_previous_cluster(cluster_id);
        own && !cluster_id.is_empty()
    }

    /// Whether this is an id that the cluster had before, and has not any more.
    pub fn is_previous_cluster(&self, cluster_id: &str) -> bool {
        self.previous_cluster_ids().iter().any(|id| id == cluster_id)
    }

    /// Whether an instance without a UID tag is found by the name of its machine, as "Identity" in the contract says:
    /// the class has the annotation for instances that machine-controller-manager made. CreateMachine then tags the
    /// instance.
    pub fn adopts_by_name(&self) -> bool {
        self.inner.operation.adopt_by_name
    }

    /// Above 1: the core sends the operation again.
    pub fn delivery(&self) -> u32 {
        self.inner.operation.delivery
    }

    /// What the driver last saved for this target with [`save_checkpoint`](Self::save_checkpoint).
    pub fn checkpoint(&self) -> Option<&str> {
        self.inner.operation.checkpoint.as_deref()
    }

    /// Header `traceparent` of W3C Trace Context: the span that the SDK records of this operation, or the core's span if the SDK
    /// records none. The parent of your own spans; empty if spans are off.
    pub fn traceparent(&self) -> &str {
        &self.inner.operation.traceparent
    }

    /// When the time is over: a read is dropped then. A change is [told to stop](Self::cancelled), and 5 s later it is dropped and
    /// its outcome is reported as unknown.
    pub fn deadline(&self) -> Instant {
        self.inner.operation.deadline
    }

    /// The time that is left.
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Name of the class of the operation, if it has one.
    pub fn class_name(&self) -> Option<&str> {
        self.inner.operation.class.as_ref().map(|class| class.name.as_str())
    }

    /// The machine class. Fetched on first use and cached by revision; call it before you change
    /// anything, since its errors say that nothing was.
    pub async fn class(&self) -> Result<Arc<Class>, DriverError> {
        match &self.inner.references {
            References::Given { class, .. } => Ok(Arc::clone(class)),
            References::Core(library) => {
                let class = library.class(self.inner.operation.class.as_ref()).await;
                class.map_err(|error| self.unwanted(error))
            }
        }
    }

    /// The secret of the machine class. Fetched on first use and cached for as long as the core
    /// allows; call it before you change anything, since its errors say that nothing was.
    pub async fn secret(&self) -> Result<Secret, DriverError> {
        self.fetch_secret(false).await
    }

    /// The newest secret, past the cache. Once, when the infrastructure refuses the credentials.
    pub async fn fresh_secret(&self) -> Result<Secret, DriverError> {
        self.fetch_secret(true).await
    }

    async fn fetch_secret(&self, fresh: bool) -> Result<Secret, DriverError> {
        let secret = match &self.inner.references {
            References::Given { secret, .. } => secret.clone().ok_or_else(no_secret)?,
            References::Core(library) => {
                let class = self.class().await?;
                let wanted = class.secret.clone().ok_or_else(no_secret)?;
                let secret = library.secret(self.operation_id(), wanted, fresh).await;
                secret.map_err(|error| self.unwanted(error))?
            }
        };
        self.saved().secret = Some(secret.clone());
        Ok(secret)
    }

    /// The core denies references to an operation that it does not want any more, as to an operation that it never
    /// sent. The error says so: no rights have to be changed.
    fn unwanted(&self, error: DriverError) -> DriverError {
        if error.code() == Code::PermissionDenied && self.is_cancelled() {
            DriverError::canceled("the core does not want the operation any more").not_applied()
        } else {
            error
        }
    }

    /// Says how far the operation is. Never waits; dropped if the core is slow to read.
    ///
    /// `stage` is a stable word, e.g. `ImagePull`; `message` is for people, without secrets. The last
    /// report is repeated by itself as often as the core wants to hear of the operation, for as long
    /// as the verb does not block its thread.
    pub fn progress(&self, stage: impl Into<String>, message: impl Into<String>) {
        self.progress_percent(stage, 0, message);
    }

    /// As [`progress`](Self::progress), with how much of the work is done: 1 to 100, 0 if not known.
    pub fn progress_percent(
        &self,
        stage: impl Into<String>,
        percent: u32,
        message: impl Into<String>,
    ) {
        let progress =
            Progress { stage: stage.into(), message: message.into(), percent: percent.min(100) };
        self.saved().progress = progress;
        self.report();
    }

    /// Saves data that a later attempt for the same target needs. The core stores the checkpoint and hands it back
    /// unchanged with the next operation, also when this operation fails. A checkpoint that is longer than 4 KiB, or
    /// contains user data or a value of a secret, is not saved, and the last one stays.
    pub fn save_checkpoint(&self, checkpoint: impl Into<String>) {
        let checkpoint = checkpoint.into();
        let too_long = checkpoint.len() > crate::limits::CHECKPOINT_BYTES;
        if too_long || self.scrub(&checkpoint) != checkpoint {
            tracing::warn!(operation = %self.operation_id(), too_long, "a checkpoint that is too long, or has a secret in it, was not saved");
            return;
        }
        self.saved().checkpoint = Some(checkpoint);
        self.report();
    }

    /// Repeats the last report of the verb, or says that the verb works.
    pub(crate) fn report(&self) {
        let Some(reports) = &self.inner.reports else { return };
        let (Progress { stage, message, percent }, checkpoint) = {
            let saved = self.saved();
            (saved.progress.clone(), saved.checkpoint.clone().unwrap_or_default())
        };
        let stage = if stage.is_empty() { WORKING.to_owned() } else { stage };
        let message = self.scrub(&message);
        let operation_id = self.operation_id().to_owned();
        let report = Report { operation_id, stage, message, percent, checkpoint };
        if reports.try_send(report).is_err() {
            tracing::debug!(operation = %self.operation_id(), "progress dropped");
        }
    }

    /// Completes when the core has cancelled the operation, or when the [time is over](Self::deadline). Stop
    /// soon if you can, and answer truthfully in any case. A verb that only reads is dropped then.
    pub async fn cancelled(&self) {
        self.inner.cancelled.cancelled().await;
    }

    /// Whether [`cancelled`](Self::cancelled) has completed.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.is_cancelled()
    }

    /// The checkpoint that was last [saved](Self::save_checkpoint) in this operation, which the core gets. For tests of
    /// a verb, too.
    pub fn saved_checkpoint(&self) -> Option<String> {
        self.saved().checkpoint.clone()
    }

    /// Keeps the user data of the operation out of everything that the core is told in words.
    pub(crate) fn guard(&self, user_data: &[u8]) {
        self.saved().user_data = Zeroizing::new(user_data.to_vec());
    }

    fn scrub(&self, text: &str) -> String {
        self.scrubber().scrub(text)
    }

    /// Takes the values of the secrets that the process holds, and user data, out of texts.
    pub(crate) fn scrubber(&self) -> Scrubber {
        let held = match &self.inner.references {
            References::Core(library) => library.held_secrets(),
            References::Given { secret, .. } => secret.iter().cloned().collect(),
        };
        let saved = self.saved();
        let secrets = held.iter().chain(&saved.secret).flat_map(Secret::values);
        Scrubber::new(secrets.chain([saved.user_data.as_slice()]))
    }

    fn saved(&self) -> parking_lot::MutexGuard<'_, Saved> {
        self.inner.saved.lock()
    }
}

/// The stage of a verb that has not named one.
const WORKING: &str = "Working";

fn no_secret() -> DriverError {
    DriverError::invalid_argument("the machine class names no secret: set its secretRef")
        .reason("SECRET_MISSING")
        .not_applied()
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.operation.fmt(f)
    }
}
