//! Secrets of bootstrap tokens, `kube-system/bootstrap-token-<id>` of a target cluster, read by name only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use ostler_api::names::{annotation, bootstrap};
use ostler_lifecycle::operation::SecretText;
use ostler_lifecycle::plan::TokenRequest;
use ostler_lifecycle::snapshot::BootstrapToken;
use rand::RngExt as _;

use crate::client::{Deletion, WriteError, Writer};

/// The alphabet of tokens.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The secret half of a new token.
pub(crate) fn fresh() -> SecretText {
    let mut random = rand::rng();
    let secret = (0..16).filter_map(|_| ALPHABET.get(random.random_range(0..ALPHABET.len())));
    SecretText::new(secret.map(|byte| char::from(*byte)).collect())
}

/// The outcome for a wanted token.
#[derive(Debug)]
pub(crate) enum Put {
    /// The token exists.
    Done(Secret),
    /// Another owner has the id.
    Taken(Secret),
}

/// Creates the token, or replaces that of the same owner. `known`: it is there, and need not be created.
pub(crate) async fn ensure(
    writer: &Writer,
    request: &TokenRequest,
    known: bool,
) -> Result<Put, WriteError> {
    let mut secret = secret(request);
    let id = request.id.as_str();
    let there = if known { look_up(writer, id).await? } else { None };
    let made = match &there {
        Some(_) => Err(WriteError::Conflict),
        None => writer.create(&tokens(writer), &secret).await,
    };
    let written = match made {
        Err(WriteError::Conflict) => {
            let there = match there {
                Some(there) => Some(there),
                None => look_up(writer, id).await?,
            };
            let Some(there) = there else { return Err(WriteError::Conflict) };
            if !is_of(&there, request.owner.as_str()) {
                return Ok(Put::Taken(there));
            }
            secret.metadata.resource_version = there.metadata.resource_version;
            writer.replace(&tokens(writer), &secret_name(id), &secret).await?
        }
        other => other?,
    };
    secret.metadata.uid = written.metadata.uid;
    Ok(Put::Done(secret))
}

/// Deletes the token of the id if the owner has it.
pub(crate) async fn delete_of(writer: &Writer, id: &str, owner: &str) -> Result<(), WriteError> {
    let there = look_up(writer, id).await?.filter(|there| is_of(there, owner));
    match there.and_then(|there| there.metadata.uid) {
        Some(secret) => delete(writer, id, &secret).await,
        None => Ok(()),
    }
}

/// Deletes the Secret with the UID; fine if already gone.
pub(crate) async fn delete(writer: &Writer, id: &str, secret: &str) -> Result<(), WriteError> {
    let only = Deletion { uid: Some(secret), ..Deletion::default() };
    match writer.delete(&tokens(writer), &secret_name(id), only).await {
        Err(WriteError::NotFound) => Ok(()),
        other => other,
    }
}

pub(crate) async fn look_up(writer: &Writer, id: &str) -> Result<Option<Secret>, WriteError> {
    writer.get(&tokens(writer), &secret_name(id)).await
}

fn tokens(writer: &Writer) -> Api<Secret> {
    writer.api(bootstrap::NAMESPACE)
}

fn secret_name(id: &str) -> String {
    format!("{}{id}", bootstrap::SECRET_PREFIX)
}

/// Whether the Secret's token was created for the owner.
pub(crate) fn is_of(secret: &Secret, owner: &str) -> bool {
    read(secret).owner.is_some_and(|it| it == owner)
}

fn secret(request: &TokenRequest) -> Secret {
    let pairs = [
        ("description", request.description.as_str()),
        ("token-id", &request.id),
        ("token-secret", request.secret.expose()),
        ("expiration", &request.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ("usage-bootstrap-authentication", "true"),
        ("usage-bootstrap-signing", "true"),
        ("auth-extra-groups", &request.groups),
    ];
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data: BTreeMap<_, _> =
        pairs.into_iter().map(|(key, value)| (key.to_owned(), bytes(value))).collect();
    let mut annotations: BTreeMap<_, _> =
        [(annotation::TOKEN_OF.to_owned(), request.owner.to_string())].into();
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

pub(crate) fn read(secret: &Secret) -> BootstrapToken {
    let annotations = secret.metadata.annotations.as_ref();
    let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    let expires = text("expiration").and_then(|text| text.parse::<Timestamp>().ok());
    BootstrapToken {
        owner: annotations
            .and_then(|all| all.get(annotation::TOKEN_OF))
            .map(|uid| uid.as_str().into()),
        secret: SecretText::new(text("token-secret").unwrap_or_default()),
        expires,
        node: annotations.and_then(|all| all.get(annotation::TOKEN_NODE).cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_as_it_was_written() {
        let written = secret(&TokenRequest {
            id: "abcdef".to_owned(),
            owner: "u".into(),
            secret: SecretText::new("abcdefghijklmnop".to_owned()),
            expires: "2026-01-01T00:20:00Z".parse().unwrap(),
            node: Some("n1".to_owned()),
            groups: "g".to_owned(),
            description: String::new(),
        });
        assert_eq!(written.data.as_ref().unwrap()["auth-extra-groups"].0, b"g");
        let token = read(&written);
        assert_eq!(token.owner, Some("u".into()));
        assert_eq!(token.node.as_deref(), Some("n1"));
        assert_eq!(token.secret.expose(), "abcdefghijklmnop");
        assert_eq!(token.expires.unwrap().to_string(), "2026-01-01T00:20:00Z");
        assert!(!format!("{token:?}").contains("abcdef"));
        assert_eq!(read(&Secret::default()).owner, None, "another owner's");
    }

    #[test]
    fn a_new_token_has_16_characters_of_the_alphabet_and_is_never_the_same() {
        let (one, other) = (fresh(), fresh());
        assert_eq!(one.expose().len(), 16);
        assert!(one.expose().bytes().all(|byte| ALPHABET.contains(&byte)) && one != other);
    }
}
