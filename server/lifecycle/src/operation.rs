//! Operations as decisions see them: what is sent to a driver, and what came back.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind, reason},
    machine::MachineAddress,
};

/// Bytes that hold credentials: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData {
    bytes: Vec<u8>,
    format: String,
}

impl UserData {
    /// Wraps the bytes.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, format: String::new() }
    }

    /// With a word for the driver about what they are, e.g. `cloud-config`.
    #[must_use]
    pub fn in_format(self, format: &str) -> Self {
        Self { format: format.to_owned(), ..self }
    }

    /// What they are; may be empty.
    pub fn format(&self) -> &str {
        &self.format
    }

    /// The bytes, for whoever sends them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, given away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.len())
    }
}

/// A text that is a credential: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps the text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for whoever writes it where it belongs.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(redacted)")
    }
}

/// An operation that is to be sent to the driver of the class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// UUID of the operation.
    pub id: String,
    /// The same for every attempt at the same intent; at most 64 ASCII characters.
    pub idempotency_key: String,
    /// Name of the class, in the namespace of the Machine.
    pub class_name: String,
    /// Revision of the class, see [`ClassFacts`](crate::snapshot::ClassFacts).
    pub class_revision: String,
    /// Provider of the class: which driver it is for.
    pub provider: String,
    /// Leadership term.
    pub term: i64,
    /// 1 for the first attempt at the intent.
    pub attempt: i32,
    /// How long the driver may take, from receipt.
    pub timeout: Duration,
    /// Whether an instance without UID is found by the name of the machine, see
    /// [`ADOPT_BY_NAME`](ostler_api::names::annotation::ADOPT_BY_NAME).
    pub adopt_by_name: bool,
    /// What the driver reported last, handed back to it.
    pub checkpoint: String,
    /// The verb and what goes with it.
    pub request: Request,
}

impl Dispatch {
    /// The verb.
    pub const fn kind(&self) -> OperationKind {
        self.request.kind()
    }
}

/// A verb and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Make the instance.
    Create {
        /// User data with its placeholders replaced; `None`: the class has none.
        user_data: Option<UserData>,
        /// Not empty: look this instance up first and adopt it: put the UID of the Machine on it.
        provider_id: String,
    },
    /// Initialize the instance.
    Initialize {
        /// The instance.
        provider_id: String,
    },
    /// Bring the running instance to the current spec of the class.
    Update {
        /// The instance.
        provider_id: String,
        /// The spec that may be on the instance, as JSON; empty when unknown.
        last_applied_spec_json: String,
    },
    /// Make the instance go away.
    Delete {
        /// May be empty: find it by identity.
        provider_id: String,
    },
    /// Read the instance.
    Status {
        /// May be empty: find it by identity.
        provider_id: String,
    },
    /// Name persistent volumes as the infrastructure does.
    VolumeIds {
        /// Spec of each PersistentVolume as JSON, by its name.
        specs: BTreeMap<String, String>,
    },
}

impl Request {
    /// The verb.
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Create { .. } => OperationKind::CreateMachine,
            Self::Initialize { .. } => OperationKind::InitializeMachine,
            Self::Update { .. } => OperationKind::UpdateMachine,
            Self::Delete { .. } => OperationKind::DeleteMachine,
            Self::Status { .. } => OperationKind::GetMachineStatus,
            Self::VolumeIds { .. } => OperationKind::GetVolumeIds,
        }
    }
}

/// What the sessions say about the operation of one Machine. At most one exists at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum OperationView {
    /// None is queued or in flight, and no result waits to be acknowledged.
    #[default]
    Idle,
    /// None is known here, but this core leads only since a moment: a driver may still come back
    /// with one that an earlier core sent.
    Expected,
    /// Queued, sent, or with a session that was lost and may come back.
    InFlight(InFlight),
    /// Finished; the result is kept until it is acknowledged.
    Finished(Finished),
}

/// An operation whose outcome is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// UUID of the operation.
    pub id: String,
    /// The verb.
    pub kind: OperationKind,
    /// Key of the intent.
    pub idempotency_key: String,
    /// When it was queued.
    pub since: Timestamp,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// What the driver last said about it, for people.
    pub progress: Option<String>,
    /// Whether the driver has said nothing about it for too long.
    pub stalled: bool,
    /// What the driver wants handed back if this attempt comes to nothing; empty if it said nothing.
    pub checkpoint: String,
}

/// An operation whose outcome is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// UUID of the operation.
    pub id: String,
    /// The verb.
    pub kind: OperationKind,
    /// Key of the intent.
    pub idempotency_key: String,
    /// What came back.
    pub outcome: Result<Success, Failure>,
    /// What the driver wants handed back next time; at most 4 KiB.
    pub checkpoint: Option<String>,
}

/// What a successful operation returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Success {
    /// The instance exists.
    Created(InstanceRecord),
    /// The instance is initialized.
    Initialized(Option<InstanceRecord>),
    /// The running instance has the spec of the class.
    Updated {
        /// Paths in the provider spec that were changed.
        applied_paths: Vec<String>,
    },
    /// The instance and everything made for it are gone.
    Deleted {
        /// There was nothing to delete.
        was_absent: bool,
    },
    /// The instance exists and looks like this.
    Read(InstanceRecord),
    /// What the infrastructure calls each PersistentVolume that was asked for, by its name; empty
    /// where it does not know it.
    VolumeIds(BTreeMap<String, String>),
}

/// What the infrastructure knows of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceRecord {
    /// Equal to `Node.spec.providerID`.
    pub provider_id: String,
    /// UID of the Machine that its tags name; empty if they name none.
    pub machine_uid: String,
    /// The id of this cluster that its tags name, if that is a previous one; else empty.
    pub cluster_id: String,
    /// Name of the Node it becomes; may be empty.
    pub node_name: String,
    /// `None`: the driver has no such notion.
    pub initialized: Option<bool>,
    /// Addresses.
    pub addresses: Vec<MachineAddress>,
    /// Set when the infrastructure reports the instance as broken.
    pub fault: Option<Box<Failure>>,
}

/// Why an operation failed, and what it left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: ErrorCode,
    /// What it left behind; unset on the wire is `Unknown`.
    pub certainty: Certainty,
    /// Stable word, see [`ostler_api::driver::reason`].
    pub reason: String,
    /// For people. Nothing decides by it.
    pub message: String,
    /// Not before this much time has passed.
    pub retry_after: Option<Duration>,
    /// Paths in the provider spec that are wrong, and why.
    pub violations: Vec<(String, String)>,
    /// With reason [`NOT_OURS`](ostler_api::driver::reason::NOT_OURS): the instance that is there.
    pub stranger: Option<Box<Stranger>>,
}

/// An instance that is there, and that is not the Machine's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stranger {
    /// Its id; empty: the one that the driver was asked for.
    pub provider_id: String,
    /// The cluster that its tags name; empty if they name none.
    pub cluster_id: String,
}

impl Stranger {
    /// As a driver names it.
    pub fn new(provider_id: &str, cluster_id: &str) -> Option<Box<Self>> {
        let stranger =
            Self { provider_id: provider_id.to_owned(), cluster_id: cluster_id.to_owned() };
        (stranger != Self::default()).then(|| Box::new(stranger))
    }
}

impl Failure {
    /// A failure with nothing but code, certainty and text.
    pub fn new(code: ErrorCode, certainty: Certainty, message: &str) -> Self {
        Self {
            code,
            certainty,
            reason: String::new(),
            message: message.to_owned(),
            retry_after: None,
            violations: Vec::new(),
            stranger: None,
        }
    }

    /// There is an instance, and it is not the Machine's: it is neither absent nor touched.
    /// `cluster_id`: the cluster that its tags name, if they name one.
    pub fn not_ours(provider_id: &str, cluster_id: &str) -> Self {
        let text = format!("instance {provider_id} has other tags than this machine's");
        Self {
            reason: reason::NOT_OURS.to_owned(),
            stranger: Stranger::new(provider_id, cluster_id),
            ..Self::new(ErrorCode::FailedPrecondition, Certainty::NotApplied, &text)
        }
    }

    /// Whether it says that the instance is not the Machine's.
    pub fn is_not_ours(&self) -> bool {
        let word = self.reason.as_str();
        self.code == ErrorCode::FailedPrecondition
            && matches!(word, reason::NOT_OURS | reason::CORE_CLUSTER_ID_CHANGED)
    }

    /// Whether it says so of the very instance that the Machine had, under another cluster id.
    pub fn is_cluster_id_changed(&self) -> bool {
        self.is_not_ours() && self.reason == reason::CORE_CLUSTER_ID_CHANGED
    }

    /// Text for people: the message, then the violations.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (path, description) in &self.violations {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(path);
            text.push_str(": ");
            text.push_str(description);
        }
        text
    }
}
