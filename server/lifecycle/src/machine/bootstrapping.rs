//! Before there is an instance: the data that it is to become a Node with.
//!
//! A Machine without `spec.bootstrap` takes the user data of its class. With `spec.bootstrap`, the Machine stays
//! Pending until a user or the named object supplies the data.

use ostler_api::Revision;
use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ostler_api::{
    Machine,
    bootstrap::{Bootstrap, BootstrapConfigRef, BootstrapText},
    machine::{FailureReason, MachineOperationType, WaitReason},
    names,
};
use serde_json::json;

use super::{
    pass::Pass,
    preconditions::MissingPrecondition,
    token,
    transition::{Outcome, Transition, fail},
};
use crate::{
    bootstrap::{self, ConfigFacts, ConfigName, ConfigView, DataSecretView},
    copies,
    operation::UserData,
    plan::{Action, BootstrapPatch, Next, OwnConfig},
    snapshot::{Snapshot, TargetView},
    user_data::{self, MAX_USER_DATA},
};

/// Where the bootstrap of a Machine stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BootstrapState {
    /// The Machine says nothing: the user data of its class are taken.
    OfClass,
    /// No data are needed.
    NotNeeded,
    /// The data are there.
    Ready,
    /// The data are there and have to be taken over into the Machine first.
    Copy(BootstrapPatch),
    /// Something is missing.
    Missing(MissingPrecondition),
    /// The controller that makes the data gave up.
    Failed(FailureReason, String),
}

fn missing(reason: WaitReason, message: String) -> BootstrapState {
    BootstrapState::Missing(MissingPrecondition { reason, message })
}

/// Where the bootstrap of a Machine stands.
pub(crate) fn state(snap: &Snapshot) -> BootstrapState {
    let Some(bootstrap) = &snap.machine.spec.bootstrap else { return BootstrapState::OfClass };
    let settled = was_ready(&snap.machine) && has_data(bootstrap);
    let of_config = if settled { None } else { of_config(snap, bootstrap) };
    of_config.unwrap_or_else(|| of_data(snap, bootstrap))
}

/// Once the data were there, the object that they came from may change or go.
pub(crate) fn was_ready(machine: &Machine) -> bool {
    machine.status.as_ref().and_then(|status| status.bootstrap_ready) == Some(true)
}

fn has_data(bootstrap: &Bootstrap) -> bool {
    bootstrap.data.is_some() || bootstrap.data_secret_name.is_some()
}

/// The state of the named bootstrap object; `None`: nothing against going on.
fn of_config(snap: &Snapshot, bootstrap: &Bootstrap) -> Option<BootstrapState> {
    let wanted = bootstrap.config_ref.as_ref()?;
    let kind = match bootstrap::config_of(&snap.machine) {
        Ok(name) => name?.kind,
        Err(fault) => return Some(missing(fault.reason, fault.message)),
    };
    if let ConfigView::Known(facts) = &snap.bootstrap.config {
        return of_facts(&snap.machine, bootstrap, wanted, facts);
    }
    let (reason, message) = bootstrap::lack(&snap.bootstrap.config, &kind, wanted)?;
    Some(missing(reason, message))
}

fn of_facts(
    machine: &Machine,
    bootstrap: &Bootstrap,
    wanted: &BootstrapConfigRef,
    facts: &ConfigFacts,
) -> Option<BootstrapState> {
    if let Some(other) = other_owner(machine, facts) {
        let message = format!(
            "{wanted} belongs to {} {}; every machine needs one of its own",
            other.kind, other.name
        );
        return Some(missing(WaitReason::BootstrapConfigOwned, message));
    }
    if facts.failure_reason.is_some() || facts.failure_message.is_some() {
        let reason = facts.failure_reason.as_deref();
        let reason = reason.map_or(FailureReason::BootstrapFailed, FailureReason::from);
        let text = facts.failure_message.as_deref().unwrap_or("it gives no message");
        return Some(BootstrapState::Failed(reason, format!("{wanted} failed: {text}")));
    }
    if !facts.ready {
        let message = format!("{wanted} is not ready");
        return Some(missing(WaitReason::BootstrapNotReady, message));
    }
    if has_data(bootstrap) { None } else { Some(copy(wanted, facts)) }
}

fn copy(wanted: &BootstrapConfigRef, facts: &ConfigFacts) -> BootstrapState {
    if let Some(name) = &facts.data_secret_name {
        return BootstrapState::Copy(BootstrapPatch::DataSecretName(name.clone()));
    }
    match &facts.data {
        Some(text) if text.expose().len() > MAX_USER_DATA => {
            let message = format!(
                "status.bootstrapData of {wanted} has more than {MAX_USER_DATA} bytes, which is \
                 the most that can be sent"
            );
            missing(WaitReason::UserDataTooLarge, message)
        }
        Some(text) => BootstrapState::Copy(BootstrapPatch::Data(text.clone())),
        None => {
            let message = format!(
                "{wanted} is ready, and has neither status.dataSecretName nor status.bootstrapData"
            );
            missing(WaitReason::BootstrapDataMissing, message)
        }
    }
}

fn of_data(snap: &Snapshot, bootstrap: &Bootstrap) -> BootstrapState {
    if let Some(text) = &bootstrap.data {
        return of_text(text);
    }
    let Some(name) = &bootstrap.data_secret_name else {
        let message = "spec.bootstrap has neither data nor dataSecretName".to_owned();
        return missing(WaitReason::BootstrapDataMissing, message);
    };
    if name.is_empty() {
        return BootstrapState::NotNeeded;
    }
    let what = format!("secret {name:?}, which spec.bootstrap.dataSecretName names,");
    match &snap.bootstrap.secret {
        DataSecretView::Unknown => {
            missing(WaitReason::NotObserved, format!("{what} has not been read yet"))
        }
        DataSecretView::Missing => {
            missing(WaitReason::BootstrapSecretMissing, format!("{what} does not exist"))
        }
        DataSecretView::WithoutValue => {
            missing(WaitReason::BootstrapSecretInvalid, format!("{what} has no key value"))
        }
        DataSecretView::Known { data, .. } if data.len() > MAX_USER_DATA => {
            let (what, length) = (format!("key value of secret {name:?}"), data.len());
            missing(WaitReason::UserDataTooLarge, too_large(&what, length))
        }
        DataSecretView::Known { .. } => BootstrapState::Ready,
    }
}

fn of_text(text: &BootstrapText) -> BootstrapState {
    match text.expose().len() {
        0 => BootstrapState::NotNeeded,
        length if length > MAX_USER_DATA => {
            missing(WaitReason::UserDataTooLarge, too_large("spec.bootstrap.data", length))
        }
        _ => BootstrapState::Ready,
    }
}

fn too_large(what: &str, length: usize) -> String {
    format!("{what} has {length} bytes, at most {MAX_USER_DATA} can be sent")
}

/// Follows the bootstrap of the Machine. Goes on if nothing is in the way of asking a driver, who may
/// have been asked already; then only a create has to wait for the data.
pub(crate) fn gate(pass: &mut Pass<'_>) -> Outcome<()> {
    own(pass);
    let state = state(pass.snap);
    if let BootstrapState::Copy(patch) = state {
        pass.effects.patch.bootstrap = Some(patch);
        return Err(Transition::Rest(Next::OnChange));
    }
    if pass.ever_asked() { Ok(()) } else { obstacle(state) }
}

/// The user data with its placeholders replaced. Makes the bootstrap token if the template asks for one.
pub(crate) fn user_data(pass: &mut Pass<'_>) -> Outcome<Option<UserData>> {
    let Some(template) = template(pass)? else { return Ok(None) };
    // Without a target cluster there is nothing to join, and no place for a token.
    let joins = pass.snap.target != TargetView::None;
    let wanted = joins && user_data::wants_token(&template);
    let token = if wanted { Some(token::for_create(pass)?) } else { None };
    let filled = user_data::fill(&template, pass.name(), token.as_ref());
    if filled.len() > MAX_USER_DATA {
        let message =
            format!("user data has {} bytes, at most {MAX_USER_DATA} can be sent", filled.len());
        return Err(MissingPrecondition { reason: WaitReason::UserDataTooLarge, message }.into());
    }
    Ok(Some(filled))
}

/// The user data, with their placeholders. Else how the pass ends.
fn template<'a>(pass: &Pass<'a>) -> Outcome<Option<Cow<'a, UserData>>> {
    let snap: &'a Snapshot = pass.snap;
    obstacle(state(snap))?;
    Ok(bootstrap::template(&snap.machine, &snap.secret, &snap.bootstrap))
}

fn obstacle(state: BootstrapState) -> Outcome<()> {
    match state {
        BootstrapState::OfClass
        | BootstrapState::NotNeeded
        | BootstrapState::Ready
        | BootstrapState::Copy(_) => Ok(()),
        // The usual course of things: no user has to do anything about it.
        BootstrapState::Missing(lack) if lack.reason == WaitReason::BootstrapNotReady => {
            Err(lack.until(None))
        }
        BootstrapState::Missing(lack) => Err(lack.into()),
        BootstrapState::Failed(reason, text) => {
            Err(fail(reason, MachineOperationType::Create, text))
        }
    }
}

/// Makes the Machine the owner of the bootstrap object, so that both are deleted together.
fn own(pass: &mut Pass<'_>) {
    let ConfigView::Known(facts) = &pass.snap.bootstrap.config else { return };
    let Ok(Some(config)) = bootstrap::config_of(pass.machine) else { return };
    let mut owners = facts.owner_references.clone();
    if other_owner(pass.machine, facts).is_some()
        || owners.iter().any(|owner| is_ours(pass.machine, owner))
    {
        return;
    }
    owners.retain(|owner| !was_ours(pass.machine, owner));
    owners.push(OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: names::MACHINE.to_owned(),
        name: pass.machine.name().to_owned(),
        uid: pass.machine.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    });
    pass.effects.act(Action::OwnConfig(OwnConfig {
        config,
        resource_version: facts.resource_version.clone(),
        owner_references: json!(owners),
    }));
}

fn is_ours(machine: &Machine, owner: &OwnerReference) -> bool {
    owner.uid == machine.uid() && owner.controller == Some(true)
}

/// A reference without control of this Machine, of a Machine of the same name before a restore, or of the set that made
/// the copy.
fn was_ours(machine: &Machine, owner: &OwnerReference) -> bool {
    owner.uid == machine.uid()
        || (owner.api_version == names::API_VERSION
            && owner.kind == names::MACHINE
            && owner.name == machine.name())
        || copies::is_first_owner(machine, owner)
}

/// The copy of a template that a set made for the Machine, and that no other object owns.
fn own_copy<'a>(pass: &Pass<'a>) -> Option<(ConfigName, &'a ConfigFacts)> {
    let snap: &'a Snapshot = pass.snap;
    let config = bootstrap::config_of(pass.machine).ok()??;
    let ConfigView::Known(facts) = &snap.bootstrap.config else { return None };
    let owned = facts.owner_references.iter().any(|owner| was_ours(pass.machine, owner));
    let is_own = facts.copy_of.is_some() && owned && other_owner(pass.machine, facts).is_none();
    is_own.then_some((config, facts))
}

/// Whether the Machine has a copy, for whose end it waits.
pub(crate) fn has_copy(pass: &Pass<'_>) -> bool {
    own_copy(pass).is_some()
}

/// The copy of a template that a set made for the Machine goes, and the Machine after it: the garbage collector would not say
/// what holds it. `None`: there is none any more.
pub(crate) fn delete_copy(pass: &mut Pass<'_>) -> Option<MissingPrecondition> {
    if pass.snap.bootstrap.config == ConfigView::Unknown && copies::may_have(pass.machine) {
        let config = bootstrap::config_of(pass.machine).ok()??;
        let message = format!("{} {} has not been read yet", config.kind.kind, config.name);
        return Some(MissingPrecondition { reason: WaitReason::NotObserved, message });
    }
    let (config, facts) = own_copy(pass)?;
    let message = facts.goes_first(&format!("{} {}", config.kind.kind, config.name));
    if !facts.is_deleting {
        pass.effects.act(Action::DeleteConfig { config, uid: facts.uid.clone().into() });
    }
    Some(MissingPrecondition { reason: WaitReason::BootstrapConfigDeleting, message })
}

/// Another owner of the object, as controller or not: the object exists for the other owner, and must not go with the
/// Machine.
fn other_owner<'a>(machine: &Machine, facts: &'a ConfigFacts) -> Option<&'a OwnerReference> {
    facts.owner_references.iter().find(|owner| !was_ours(machine, owner))
}

/// The revision of the data behind an answer; other data may succeed where these failed. `None`: the class's data.
pub(crate) fn revision(snap: &Snapshot) -> Option<Revision> {
    snap.machine.spec.bootstrap.as_ref()?;
    let secret = match &snap.bootstrap.secret {
        DataSecretView::Known { revision, .. } => revision.as_str(),
        DataSecretView::Unknown | DataSecretView::Missing | DataSecretView::WithoutValue => "",
    };
    let generation = snap.machine.metadata.generation.unwrap_or_default();
    Some(format!("{generation}/{secret}").into())
}
