//! Bootstrap tokens: Secrets `kube-system/bootstrap-token-<id>`, read by name only.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use ostler_api::Machine;
use ostler_api::machine::MachinePhase;
use ostler_api::names::{annotation, bootstrap};
use ostler_lifecycle::bootstrap::{BootstrapView, may_want_token};
use ostler_lifecycle::operation::SecretText;
use ostler_lifecycle::plan::TokenRequest;
use ostler_lifecycle::snapshot::{BootstrapToken, Observed, SecretView};
use ostler_lifecycle::user_data::token_id_of;

use super::{Machines, PassError};
use crate::by_machine::ByMachine;
use crate::client::{Deletion, WriteError, Writer};
use crate::stores::MachineIndex;
use crate::target::{Target, TargetOf};
use crate::watch::Cache;

/// The alphabet of tokens.
pub(super) const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The token of each machine that was read or written last.
#[derive(Debug)]
pub(crate) struct Tokens(ByMachine<Seen>);

#[derive(Debug, Clone)]
struct Seen {
    id: String,
    token: Observed<BootstrapToken>,
    /// UID of its Secret, if the token is the machine's.
    secret: Option<String>,
    /// This core deleted it, and did not begin to make it again.
    deleted: bool,
}

impl Tokens {
    /// The tokens of these machines.
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
        let (id, uid) = (request.id.as_str(), request.machine_uid.as_str());
        if self.state.tokens.is_deleted(uid, id) {
            // It may exist from now on, whatever the answer.
            self.state.tokens.remove(uid);
        }
        let mut secret = self.write(request);
        // A known token need not be created.
        let known = matches!(self.state.tokens.of(uid, id), Observed::Known(_));
        let there = if known { look_up(&writer, id).await? } else { None };
        let made = match &there {
            Some(_) => Err(WriteError::Conflict),
            None => writer.create(&tokens(&writer), &secret).await,
        };
        let written = match made {
            Err(WriteError::Conflict) => {
                let there = match there {
                    Some(there) => Some(there),
                    None => look_up(&writer, id).await?,
                };
                let Some(there) = there else { return Err(WriteError::Conflict) };
                if !is_of(&there, uid) {
                    self.state.tokens.keep(uid, id, Some(&there));
                    return Err(WriteError::Conflict);
                }
                secret.metadata.resource_version = there.metadata.resource_version;
                writer.replace(&tokens(&writer), &secret_name(id), &secret).await?
            }
            other => other?,
        };
        secret.metadata.uid = written.metadata.uid;
        self.state.tokens.keep(uid, id, Some(&secret));
        Ok(())
    }

    /// Deletes the token if it was created for the machine. One that this core wrote or read need not be looked up, and
    /// one that it deleted is gone: a pass repeats that if another of its requests failed.
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
            Some(secret) => delete(&writer, id, &secret).await,
            None => Err(WriteError::Conflict),
        };
        match deleted {
            // The Secret of this name may be another one by now, and the machine's all the same.
            Err(WriteError::Conflict) => {
                let there = look_up(&writer, id).await?.filter(|there| is_of(there, uid));
                if let Some(secret) = there.and_then(|there| there.metadata.uid) {
                    delete(&writer, id, &secret).await?;
                }
            }
            other => other?,
        }
        self.state.tokens.keep_deleted(uid, id);
        Ok(())
    }

    fn write(&self, request: &TokenRequest) -> Secret {
        let pairs = [
            ("description", request.description.as_str()),
            ("token-id", &request.id),
            ("token-secret", request.secret.expose()),
            ("expiration", &request.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "true"),
            ("auth-extra-groups", &self.settings.bootstrap_token_groups),
        ];
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data: BTreeMap<_, _> =
            pairs.into_iter().map(|(key, value)| (key.to_owned(), bytes(value))).collect();
        let mut annotations: BTreeMap<_, _> =
            [(annotation::TOKEN_OF.to_owned(), request.machine_uid.to_string())].into();
        if let Some(node) = &request.node {
            annotations.insert(annotation::TOKEN_NODE.to_owned(), node.clone());
        }
        Secret {
            metadata: ObjectMeta {
                name: Some(secret_name(&request.id)),
                namespace: Some(bootstrap::NAMESPACE.to_owned()),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            type_: Some(bootstrap::SECRET_TYPE.to_owned()),
            data: Some(data),
            ..Secret::default()
        }
    }
}

fn tokens(writer: &Writer) -> Api<Secret> {
    writer.api(bootstrap::NAMESPACE)
}

async fn look_up(writer: &Writer, id: &str) -> Result<Option<Secret>, WriteError> {
    writer.get(&tokens(writer), &secret_name(id)).await
}

/// Deletes the Secret with this UID; fine if it is gone.
async fn delete(writer: &Writer, id: &str, secret: &str) -> Result<(), WriteError> {
    let only = Deletion { uid: Some(secret), ..Deletion::default() };
    match writer.delete(&tokens(writer), &secret_name(id), only).await {
        Err(WriteError::NotFound) => Ok(()),
        other => other,
    }
}

/// Whether the token in this Secret was created for the machine.
fn is_of(secret: &Secret, uid: &str) -> bool {
    read(secret).machine_uid.is_some_and(|it| it == uid)
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

fn secret_name(id: &str) -> String {
    format!("{}{id}", bootstrap::SECRET_PREFIX)
}

/// A token of ours without its secret half counts as missing.
fn is_whole(token: &BootstrapToken, uid: &str) -> bool {
    token.machine_uid.as_ref().is_none_or(|it| it != uid) || !token.secret.expose().is_empty()
}

fn read(secret: &Secret) -> BootstrapToken {
    let annotations = secret.metadata.annotations.as_ref();
    let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    let expires = text("expiration").and_then(|text| text.parse::<Timestamp>().ok());
    BootstrapToken {
        machine_uid: annotations
            .and_then(|all| all.get(annotation::TOKEN_OF))
            .map(|uid| uid.as_str().into()),
        secret: SecretText::new(text("token-secret").unwrap_or_default()),
        expires,
        node: annotations.and_then(|all| all.get(annotation::TOKEN_NODE).cloned()),
    }
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

    #[test]
    fn a_token_reads_as_it_was_written() {
        let data = |value: &str| ByteString(value.as_bytes().to_vec());
        let secret = Secret {
            metadata: ObjectMeta {
                annotations: Some(
                    [
                        (annotation::TOKEN_OF.to_owned(), "u".to_owned()),
                        (annotation::TOKEN_NODE.to_owned(), "n1".to_owned()),
                    ]
                    .into(),
                ),
                ..ObjectMeta::default()
            },
            data: Some(
                [
                    ("token-secret".to_owned(), data("abcdefghijklmnop")),
                    ("expiration".to_owned(), data("2026-01-01T00:20:00Z")),
                ]
                .into(),
            ),
            ..Secret::default()
        };
        let token = read(&secret);
        assert_eq!(token.machine_uid, Some("u".into()));
        assert_eq!(token.node.as_deref(), Some("n1"));
        assert_eq!(token.secret.expose(), "abcdefghijklmnop");
        assert_eq!(token.expires.unwrap().to_string(), "2026-01-01T00:20:00Z");
        assert!(!format!("{token:?}").contains("abcdef"));
        assert_eq!(read(&Secret::default()).machine_uid, None, "another owner's");
    }
}
