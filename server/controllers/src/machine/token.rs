//! The bootstrap tokens of machines.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::Machine;
use ostler_api::machine::MachinePhase;
use ostler_lifecycle::bootstrap::{BootstrapView, may_want_token};
use ostler_lifecycle::plan::TokenRequest;
use ostler_lifecycle::snapshot::{BootstrapToken, Observed, SecretView};
use ostler_lifecycle::user_data::token_id_of;

use super::{Machines, PassError};
use crate::by_machine::ByMachine;
use crate::client::WriteError;
use crate::stores::MachineIndex;
use crate::target::{Target, TargetOf};
use crate::tokens::{self, Put, is_of, look_up, read};
use crate::watch::Cache;

/// The token of each machine that was read or written last.
#[derive(Debug)]
pub(crate) struct Tokens(ByMachine<Seen>);

#[derive(Debug, Clone)]
struct Seen {
    id: String,
    token: Observed<BootstrapToken>,
    /// UID of its Secret, if the token is the machine's.
    secret: Option<String>,
    /// This core deleted the token, and did not begin to make it again.
    deleted: bool,
}

impl Tokens {
    /// The tokens of the given machines.
    pub(super) fn of_machines(machines: &Arc<Cache<MachineIndex>>) -> Self {
        Self(ByMachine::of(machines))
    }

    /// The known state of the token with this id, which the machine has or would take.
    fn of(&self, uid: &str, id: &str) -> Observed<BootstrapToken> {
        self.0.get(uid).filter(|seen| seen.id == id).map(|seen| seen.token).unwrap_or_default()
    }

    /// UID of the Secret of the machine's own token with this id.
    fn secret_of(&self, uid: &str, id: &str) -> Option<String> {
        self.0.get(uid).filter(|seen| seen.id == id)?.secret
    }

    /// Keeps the token in this Secret, which the machine has or would take.
    fn keep(&self, uid: &str, id: &str, there: Option<&Secret>) {
        let ours = there.filter(|it| is_of(it, uid)).and_then(|it| it.metadata.uid.clone());
        let token = there.map_or(Observed::Absent, |it| Observed::Known(read(it)));
        self.0.set(uid, Seen { id: id.to_owned(), token, secret: ours, deleted: false });
    }

    fn keep_deleted(&self, uid: &str, id: &str) {
        let (id, token) = (id.to_owned(), Observed::Absent);
        self.0.set(uid, Seen { id, token, secret: None, deleted: true });
    }

    fn is_deleted(&self, uid: &str, id: &str) -> bool {
        self.0.get(uid).is_some_and(|seen| seen.id == id && seen.deleted)
    }

    /// The machine is gone.
    pub(super) fn remove(&self, uid: &str) {
        self.0.remove(uid);
    }
}

impl Machines {
    /// The token of a machine. Reads the API only if an earlier core may have created a token that matters.
    pub(super) async fn token_of(
        &self,
        machine: &Machine,
        secret: &SecretView,
        bootstrap: &BootstrapView,
        target: &TargetOf,
    ) -> Result<Observed<BootstrapToken>, PassError> {
        let target = match target {
            TargetOf::None => return Ok(Observed::Absent),
            TargetOf::Lacking { .. } => return Ok(Observed::Unknown),
            TargetOf::Cluster(target) => target,
        };
        let (id, uid) = (token_id_of(machine), machine.uid());
        let known = self.state.tokens.of(uid, &id);
        if known != Observed::Unknown {
            return Ok(known);
        }
        if never_asked_for_an_instance(machine) {
            return Ok(Observed::Absent);
        }
        if !joins(machine) || !may_want_token(machine, secret, bootstrap) {
            return Ok(Observed::Unknown);
        }
        let found = look_up(&self.writer.to(&target.client), &id).await;
        let found =
            found.map_err(|source| PassError::Api { what: "cannot read the token", source })?;
        let found = found.filter(|there| is_whole(&read(there), uid));
        self.state.tokens.keep(uid, &id, found.as_ref());
        Ok(self.state.tokens.of(uid, &id))
    }

    /// Creates the token, or replaces that of the same machine. A token of another owner is left alone: the next pass
    /// sees it and takes another id.
    pub(super) async fn ensure_token(
        &self,
        target: &Target,
        request: &TokenRequest,
    ) -> Result<(), WriteError> {
        let writer = self.writer.to(&target.client);
        let (id, uid) = (request.id.as_str(), request.owner.as_str());
        if self.state.tokens.is_deleted(uid, id) {
            // The token may exist from now on, whatever the answer.
            self.state.tokens.remove(uid);
        }
        // A known token need not be created.
        let known = matches!(self.state.tokens.of(uid, id), Observed::Known(_));
        match tokens::ensure(&writer, request, known).await? {
            Put::Done(secret) => {
                self.state.tokens.keep(uid, id, Some(&secret));
                Ok(())
            }
            Put::Taken(other) => {
                self.state.tokens.keep(uid, id, Some(&other));
                Err(WriteError::Conflict)
            }
        }
    }

    /// Deletes the token if it was created for the machine. A token written or read by this core needs no lookup, and a
    /// token deleted by this core is gone: a pass repeats the deletion if another of its requests failed.
    pub(super) async fn delete_token(
        &self,
        target: &Target,
        uid: &str,
        id: &str,
    ) -> Result<(), WriteError> {
        if self.state.tokens.is_deleted(uid, id) {
            return Ok(());
        }
        let writer = self.writer.to(&target.client);
        let deleted = match self.state.tokens.secret_of(uid, id) {
            Some(secret) => tokens::delete(&writer, id, &secret).await,
            None => Err(WriteError::Conflict),
        };
        match deleted {
            // The Secret of this name may be another one by now, and the machine's all the same.
            Err(WriteError::Conflict) => tokens::delete_of(&writer, id, uid).await?,
            other => other?,
        }
        self.state.tokens.keep_deleted(uid, id);
        Ok(())
    }
}

/// No create was ever sent for this machine, so no token was created for it.
fn never_asked_for_an_instance(machine: &Machine) -> bool {
    machine.provider_id().is_none()
        && machine.operation_record().is_none()
        && machine.status.as_ref().is_none_or(|status| {
            status.creation_started_at.is_none()
                && status.operation.is_none()
                && status.machine_phase() == MachinePhase::New
        })
}

/// Whether the instance may still need the token to join.
fn joins(machine: &Machine) -> bool {
    let phase = machine.phase();
    let joining = [MachinePhase::New, MachinePhase::Pending, MachinePhase::CrashLoopBackOff];
    !machine.is_deleting() && joining.contains(&phase)
}

/// A token of ours without its secret half counts as missing.
fn is_whole(token: &BootstrapToken, uid: &str) -> bool {
    token.owner.as_ref().is_none_or(|it| it != uid) || !token.secret.expose().is_empty()
}

#[cfg(test)]
mod tests {
    use ostler_lifecycle::operation::UserData;
    use ostler_lifecycle::snapshot::SecretFacts;
    use serde_json::{Value, json};

    use super::*;

    fn machine(status: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "uid": "u" }, "spec": {}, "status": status
        }))
        .unwrap()
    }

    #[test]
    fn no_token_is_read_for_a_machine_without_a_sent_operation() {
        assert!(never_asked_for_an_instance(&machine(&json!({}))));
        let begun = json!({ "creationStartedAt": "2026-01-01T00:00:00Z" });
        assert!(!never_asked_for_an_instance(&machine(&begun)));
        let upstream = json!({ "currentStatus": { "phase": "CrashLoopBackOff" } });
        assert!(!never_asked_for_an_instance(&machine(&upstream)));
    }

    #[test]
    fn only_a_machine_that_is_to_join_may_need_its_token() {
        let phase = |phase: &str| machine(&json!({ "currentStatus": { "phase": phase } }));
        assert!(joins(&phase("Pending")) && joins(&phase("CrashLoopBackOff")));
        assert!(!joins(&phase("Running")) && !joins(&phase("Failed")));
        let view = |user_data: &str| {
            let user_data = Some(UserData::new(user_data.as_bytes().to_vec()));
            SecretView::Known(SecretFacts { revision: "1".into(), user_data })
        };
        let wants = |secret: &SecretView| {
            may_want_token(&phase("Pending"), secret, &BootstrapView::default())
        };
        assert!(wants(&view("--token=<<BOOTSTRAP_TOKEN>>")));
        assert!(!wants(&view("no token")) && !wants(&SecretView::NotReferenced));
        assert!(wants(&SecretView::Unknown), "an unknown state does not prevent a read");
    }
}
