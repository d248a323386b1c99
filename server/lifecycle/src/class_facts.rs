//! Facts about a class and its secrets.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use ostler_api::{
    MachineClass, OperationId, ProviderName, Revision, SpecDigest, machine::OperationIntent, names,
};
use serde_json::{Value, json};

use crate::{
    class_rules, digest,
    max_parallel::MaxParallel,
    operation::{ClassReference, Dispatch, Lane, Request, Target, UserData},
};

/// The class of a Machine.
#[derive(Debug, Clone, Default)]
pub enum ClassView {
    /// Could not be looked up yet.
    #[default]
    Unknown,
    /// There is no such class.
    Missing,
    /// The class is of another namespace.
    NamespaceDenied,
    /// The class has no finalizer, and this is why: nothing is made with a class that could vanish.
    NotHeld(String),
    /// The class is gone. Its last known state is good enough to delete its instances.
    LastKnown(ClassFacts),
    /// The class.
    Known(ClassFacts),
}

impl ClassView {
    /// The class, if it is there.
    pub const fn known(&self) -> Option<&ClassFacts> {
        match self {
            Self::Known(class) => Some(class),
            Self::Unknown
            | Self::Missing
            | Self::NamespaceDenied
            | Self::NotHeld(_)
            | Self::LastKnown(_) => None,
        }
    }
}

/// The facts about a class for decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFacts {
    /// Name of the class.
    pub name: String,
    /// Provider: the driver with this name serves the class.
    pub provider: ProviderName,
    /// The class author's choice about instances without a UID.
    pub adopt_by_name: AdoptByName,
    /// The provider spec as canonical JSON.
    pub provider_spec: String,
    /// Digest of `provider_spec`.
    pub spec_digest: SpecDigest,
    /// Capacity of the Nodes that no kubelet reports.
    pub virtual_capacity: BTreeMap<String, String>,
    /// Digest of everything in the class but its metadata and what only the core reads. Changes
    /// when, and only when, a driver could see a difference.
    pub revision: Revision,
    /// How many instances are updated at the same time.
    pub max_parallel: MaxParallel,
    /// Whether a Machine is replaced as soon as the end of its instance is announced.
    pub drain_on_notice: bool,
    /// `namespace/name` of the named secrets.
    pub secrets: Vec<String>,
    /// Whether a user paused the Machines of the class.
    pub paused: bool,
    /// The broken rules, for people; see [`class_rules`].
    pub broken_rules: Vec<String>,
}

impl ClassFacts {
    /// Reads a class.
    pub fn of(class: &MachineClass) -> Self {
        let provider_spec = digest::canonical(&class.spec.provider_spec);
        let mut content = serde_json::to_value(&class.spec).unwrap_or_else(|_| json!({}));
        if let Some(all) = content.as_object_mut() {
            let of_the_core = ["hotUpdate", "drainOnNotice"];
            all.retain(|key, value| *value != Value::Null && !of_the_core.contains(&key.as_str()));
        }
        let hot_update = class.spec.hot_update.as_ref();
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            provider: class.provider().into(),
            adopt_by_name: AdoptByName::of(class),
            virtual_capacity: virtual_capacity(class),
            spec_digest: digest::of_text(&provider_spec).into(),
            provider_spec,
            revision: digest::of_text(&digest::canonical(&content)).into(),
            max_parallel: MaxParallel::of(hot_update.and_then(|it| it.max_parallel.as_ref())),
            drain_on_notice: class.spec.drain_on_notice.unwrap_or(true),
            secrets: class.secret_refs().iter().map(|(of, name)| format!("{of}/{name}")).collect(),
            paused: class.is_paused(),
            broken_rules: class_rules::broken(class),
        }
    }

    /// An operation for the driver of the class, about an object in the namespace of the class.
    pub fn dispatch(
        &self,
        id: OperationId,
        target: Target,
        request: Request,
        timeout: Duration,
    ) -> Dispatch {
        Dispatch {
            id,
            idempotency_key: format!("{}:{}", target.uid, request.kind().letter()),
            provider: self.provider.clone(),
            class: Some(ClassReference {
                namespace: target.namespace.clone(),
                name: self.name.clone(),
                revision: self.revision.clone(),
            }),
            target,
            machine: None,
            timeout,
            adopt_by_name: false,
            checkpoint: String::new(),
            lane: Lane::Background,
            request,
        }
    }

    /// The record before a mutation is sent.
    pub(crate) fn intent(
        &self,
        dispatch: &Dispatch,
        term: i64,
        attempt: i32,
        now: Timestamp,
    ) -> OperationIntent {
        OperationIntent {
            id: dispatch.id.clone(),
            kind: dispatch.kind().into(),
            idempotency_key: dispatch.idempotency_key.clone(),
            class_revision: Some(self.revision.clone()),
            spec_digest: Some(self.spec_digest.clone()),
            term,
            attempt,
            started_at: Some(now.into()),
            provider_id: None,
            outcome_unknown: false,
        }
    }
}

/// Whether a Machine takes over an instance with its name and no UID, made by another controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AdoptByName {
    /// The operator did not say: nothing is taken over, and nothing is made in place of what may be
    /// there.
    #[default]
    Undecided,
    /// Annotated `"true"`.
    Allowed,
    /// Annotated `"false"`.
    Refused,
}

impl AdoptByName {
    fn of(class: &MachineClass) -> Self {
        let annotations = class.metadata.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(names::annotation::ADOPT_BY_NAME));
        match value.map(String::as_str) {
            Some("true") => Self::Allowed,
            Some("false") => Self::Refused,
            Some(_) | None => Self::Undecided,
        }
    }
}

/// Quantities may be written as numbers.
fn virtual_capacity(class: &MachineClass) -> BTreeMap<String, String> {
    let template = class.spec.node_template.as_ref();
    let wanted = template.and_then(|template| template.get("virtualCapacity")?.as_object());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    wanted.into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// The secrets of a class, merged.
#[derive(Debug, Clone, Default)]
pub enum SecretView {
    /// Could not be looked up yet.
    #[default]
    Unknown,
    /// The class names no secret.
    NotReferenced,
    /// At least one does not exist: `namespace/name` of each.
    Missing(Vec<String>),
    /// At least one secret is in another namespace: `namespace/name` of each.
    NamespaceDenied(Vec<String>),
    /// At least one secret is gone, with `namespace/name` of each. The last known state is good
    /// enough to delete the instances.
    LastKnown(SecretFacts, Vec<String>),
    /// The secrets.
    Known(SecretFacts),
}

impl SecretView {
    /// Of the secrets, as far as they are, or were, known.
    pub const fn revision(&self) -> Option<&Revision> {
        match self {
            Self::Known(secret) | Self::LastKnown(secret, _) => Some(&secret.revision),
            Self::Unknown | Self::NotReferenced | Self::Missing(_) | Self::NamespaceDenied(_) => {
                None
            }
        }
    }
}

/// The facts about a class's secrets for decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFacts {
    /// Made of the revisions of all of them.
    pub revision: Revision,
    /// The user data, with its placeholders.
    pub user_data: Option<UserData>,
}
