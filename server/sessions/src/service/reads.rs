//! Classes and secrets, for drivers in need of them.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_proto::v1alpha1::{
    self, GetMachineClassResponse, GetSecretRequest, GetSecretResponse, ObjectRevision,
};
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use ostler_api::operation::ClassReference;

use super::{named, status, status_with};
use crate::convert::class_reference;
use crate::hub::{Denial, Hub, OperationId, PROVIDER_SPEC, Scope};
use crate::session::frames;
use crate::shell::Shell;
use crate::{ClassContent, ClassError, MachineShape, Principal};

/// The class of an operation that is in flight on a session of the caller.
pub(super) fn machine_class(
    shell: &Arc<Shell>,
    principal: &Principal,
    wanted: ObjectRevision,
    session_id: &str,
) -> Result<GetMachineClassResponse, Status> {
    let refused = || {
        let same = |class: &ObjectRevision| {
            (&class.namespace, &class.name) == (&wanted.namespace, &wanted.name)
        };
        let denial =
            |hub: &Hub| hub.denial(&principal.name, session_id, |_, it| it.is_some_and(same));
        let named = !session_id.is_empty();
        class_denied(named.then(|| shell.with(|hub, _| denial(hub))))
    };
    if !shell.with(|hub, _| hub.may_see(&principal.name, &wanted)) {
        tracing::warn!(principal = principal.name, class = named_by(&wanted), "class refused");
        return Err(refused());
    }
    let gone = || {
        let message = format!("class {} is not at that revision any more", named_by(&wanted));
        status(Code::NotFound, "REVISION_GONE", message)
    };
    let class = match shell.revisions.find(shell.classes.as_ref(), &wanted) {
        Ok(Some(class)) => class,
        Ok(None) | Err(ClassError::NotFound) => return Err(gone()),
        Err(ClassError::NamespaceDenied) => return Err(refused()),
        Err(error @ ClassError::Unavailable(_)) => {
            return Err(unavailable(&error, "class", &wanted));
        }
    };
    let provider = shell.options.canonical(class.provider.as_str());
    if !principal.providers.allow(provider.as_str()) {
        return Err(refused());
    }
    if class.provider_spec_json.len() > PROVIDER_SPEC {
        let bytes = class.provider_spec_json.len();
        let message = format!(
            "the provider spec of class {} has {bytes} bytes, the limit is {PROVIDER_SPEC}",
            named_by(&wanted)
        );
        return Err(status(Code::FailedPrecondition, "CLASS_TOO_LARGE", message));
    }
    shell.with(|hub, _| hub.class_read(&wanted, class.secret()));
    Ok(response(&class, provider.as_str(), wanted))
}

fn response(
    class: &ClassContent,
    provider: &str,
    wanted: ObjectRevision,
) -> GetMachineClassResponse {
    let secret = class.secret_revision.clone();
    let wanted = ObjectRevision { uid: class.uid.clone().into(), ..wanted };
    GetMachineClassResponse {
        secret: secret
            .map(|revision| ObjectRevision { revision: revision.into(), ..wanted.clone() }),
        r#ref: Some(ObjectRevision { revision: class.revision.clone().into(), ..wanted }),
        provider: provider.to_owned(),
        format: class.format.clone(),
        provider_spec_json: class.provider_spec_json.clone(),
        provider_spec_sha256: hex::encode(Sha256::digest(&class.provider_spec_json)),
        labels: class.labels.clone().into_iter().collect(),
        shape: class.shape.as_ref().map(shape),
    }
}

fn shape(of: &MachineShape) -> v1alpha1::MachineShape {
    let MachineShape { capacity, instance_type, region, zone, architecture } = of.clone();
    let capacity = capacity.into_iter().collect();
    v1alpha1::MachineShape { capacity, instance_type, region, zone, architecture }
}

/// The secret of the class of an operation that is in flight on the caller's own session. INV-7.
pub(super) async fn secret(
    shell: &Arc<Shell>,
    principal: &Principal,
    request: GetSecretRequest,
) -> Result<GetSecretResponse, Status> {
    let GetSecretRequest { r#ref, session_id, operation_id } = request;
    let wanted = named(r#ref)?;
    let refused = || {
        let about = |id: &OperationId, _: Option<&ObjectRevision>| id.as_str() == operation_id;
        denied(shell.with(|hub, _| hub.denial(&principal.name, &session_id, about)))
    };
    let scope = shell.with(|hub, _| hub.scope(&principal.name, &session_id, &operation_id));
    let Some(class) = scope.and_then(|scope| entitled(shell, &scope, &wanted)) else {
        tracing::warn!(
            principal = principal.name,
            operation = operation_id,
            secret = named_by(&wanted),
            "secret refused"
        );
        return Err(refused());
    };
    let secret = match shell.classes.secret(&class).await {
        Ok(secret) => secret,
        Err(ClassError::NotFound | ClassError::NamespaceDenied) => return Err(refused()),
        Err(error @ ClassError::Unavailable(_)) => {
            return Err(unavailable(&error, "secret of class", &wanted));
        }
    };
    if !wanted.revision.is_empty() && secret.revision != *wanted.revision {
        let message = format!(
            "the secret of class {} has changed; ask with an empty revision for the newest",
            named_by(&wanted)
        );
        return Err(status(Code::NotFound, "REVISION_GONE", message));
    }
    Ok(GetSecretResponse {
        r#ref: Some(ObjectRevision { revision: secret.revision.into(), ..wanted }),
        data: secret.data.into_iter().collect(),
        cache_for: Some(frames::duration(shell.options.timing.secret_cache)),
    })
}

/// The class of the operation, if the secret is the class's.
fn entitled(shell: &Shell, scope: &Scope, wanted: &ObjectRevision) -> Option<ClassReference> {
    let class = class_reference(scope.covering(wanted)?);
    // The class may be another provider's by now, and so is its secret then.
    let newest = shell.classes.class(&class.namespace, &class.name).ok();
    let is_own = |it: ClassContent| shell.options.canonical(it.provider.as_str()) == scope.provider;
    newest.is_none_or(is_own).then_some(class)
}

/// The same for "not yours" and "not there", so that nothing can be learned by asking.
fn denied(denial: Denial) -> Status {
    let message = "only the secret of the class of an operation in flight on this session";
    status_with(Code::PermissionDenied, "SECRET_DENIED", message, said(Some(denial)))
}

/// The same for "not yours" and "not there" here as well.
fn class_denied(denial: Option<Denial>) -> Status {
    let message = "only the class of an operation in flight on a session of this driver";
    status_with(Code::PermissionDenied, "CLASS_DENIED", message, said(denial))
}

fn said(denial: Option<Denial>) -> HashMap<String, String> {
    denial.map(|denial| ("denial".to_owned(), denial.word().to_owned())).into_iter().collect()
}

fn unavailable(error: &ClassError, what: &str, wanted: &ObjectRevision) -> Status {
    let message = format!("{what} {}: {error}", named_by(wanted));
    status(Code::Unavailable, "CLASS_UNAVAILABLE", message)
}

fn named_by(wanted: &ObjectRevision) -> String {
    let mut name = format!("{}/{}", wanted.namespace, wanted.name);
    name.truncate(name.floor_char_boundary(512));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf '{"size":2,"täg":"x"}' | sha256sum`
    const DIGEST: &str = "7389ca3c3fa1f9c443b6f0039af25e738d9b52f4ce46afc779c9294c28f3945e";

    #[test]
    fn the_digest_is_over_the_bytes_of_the_provider_spec_as_the_contract_says() {
        let class = ClassContent {
            uid: "u".into(),
            revision: "7".into(),
            provider_spec_json: r#"{"size":2,"täg":"x"}"#.to_owned(),
            ..Default::default()
        };
        let wanted = ObjectRevision { name: "c".to_owned(), ..Default::default() };
        let served = response(&class, "p", wanted);
        assert_eq!(served.provider_spec_sha256, DIGEST);
        let named = served.r#ref.unwrap();
        assert_eq!((named.uid.as_str(), named.revision.as_str()), ("u", "7"));
    }
}
