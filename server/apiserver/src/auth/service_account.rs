//! Tokens of ServiceAccounts: issued on request, true as long as their objects live.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest};
use serde_json::Value;

use crate::{
    kinds::{
        BuiltIn,
        access::{preset, set},
        field::FieldError,
        identity::Identity,
        status::{Answer, Status},
    },
    store::Key,
};

use super::{
    Auth,
    token::{Claims, ISSUER, Kubernetes, Named},
};

/// The shortest life of a token, and the usual one, in seconds.
const MIN_SECONDS: i64 = 600;
const DEFAULT_SECONDS: i64 = 3600;
/// What can be asked for, and what is granted at most: nothing takes a token back that leaked, but
/// the end of its ServiceAccount. Who asks for more gets this and is told, as kube-apiserver does it
/// with `--service-account-max-token-expiration`.
const MAX_SECONDS: i64 = 1 << 32;
const MOST_SECONDS: i64 = 24 * 3600;

/// The kinds that a token may be bound to, with their resources and whether they have a namespace.
const BINDABLE: [(&str, &str, bool); 3] =
    [("Pod", "pods", true), ("Secret", "secrets", true), ("Node", "nodes", false)];

impl Auth {
    /// Whether the server itself is among the audiences that count.
    pub(super) fn own_audience() -> Vec<String> {
        vec![ISSUER.to_owned()]
    }

    /// Answers a TokenRequest for a ServiceAccount.
    pub(super) fn issue(
        &self,
        namespace: &str,
        name: &str,
        mut request: TokenRequest,
    ) -> Answer<Value> {
        let uid = self
            .uid_of("serviceaccounts", namespace, name)
            .ok_or_else(|| Status::not_found(&BuiltIn::ServiceAccount.resource(), name))?;
        let now = (self.context.clock)();
        let seconds = request.spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
        valid_duration(seconds)?;
        let seconds = seconds.min(MOST_SECONDS);
        if request.spec.audiences.is_empty() {
            request.spec.audiences = Self::own_audience();
        }
        request.spec.expiration_seconds = Some(seconds);
        let account = Named { name: name.to_owned(), uid: uid.clone() };
        let mut kubernetes = Kubernetes {
            namespace: namespace.to_owned(),
            serviceaccount: account,
            pod: None,
            secret: None,
            node: None,
        };
        if let Some(reference) = &request.spec.bound_object_ref {
            self.bind(namespace, reference, &mut kubernetes)?;
        }
        let expires = now
            .checked_add(SignedDuration::from_secs(seconds))
            .map_err(|error| Status::internal(error.to_string()))?;
        let claims = Claims {
            aud: request.spec.audiences.clone(),
            exp: expires.as_second(),
            iat: now.as_second(),
            nbf: now.as_second(),
            iss: ISSUER.to_owned(),
            jti: uuid::Uuid::new_v4().to_string(),
            sub: format!("system:serviceaccount:{namespace}:{name}"),
            kubernetes,
        };
        let token =
            self.signer.sign(&claims).map_err(|error| Status::internal(error.to_string()))?;
        request.metadata.name = Some(name.to_owned());
        request.metadata.namespace = Some(namespace.to_owned());
        request.metadata.uid = Some(uid);
        request.metadata.creation_timestamp = Some(now.into());
        Ok(answer(&request, &token, expires))
    }

    fn bind(
        &self,
        namespace: &str,
        reference: &BoundObjectReference,
        kubernetes: &mut Kubernetes,
    ) -> Answer<()> {
        let kind = reference.kind.as_deref().unwrap_or_default();
        let name = reference.name.as_deref().unwrap_or_default();
        let Some((_, resource, namespaced)) = BINDABLE.iter().find(|(known, ..)| *known == kind)
        else {
            let why = format!("cannot bind token for serviceaccount to object of kind {kind:?}");
            return Err(Status::bad_request(why));
        };
        let namespace = if *namespaced { namespace } else { "" };
        let uid = self.uid_of(resource, namespace, name).ok_or_else(|| {
            Status::bad_request(format!("the object {resource} {name:?} to bind to is not there"))
        })?;
        if reference.uid.as_ref().is_some_and(|wanted| !wanted.is_empty() && *wanted != uid) {
            let wanted = reference.uid.as_deref().unwrap_or_default();
            let why = format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in \
                 record. The object might have been deleted and then recreated"
            );
            return Err(Status::conflict_on(resource, name, &why));
        }
        let bound = Some(Named { name: name.to_owned(), uid });
        match kind {
            "Pod" => kubernetes.pod = bound,
            "Secret" => kubernetes.secret = bound,
            _ => kubernetes.node = bound,
        }
        Ok(())
    }

    /// The identity of a token, and those of `audiences` that the token is meant for. None if the token is foreign, not
    /// valid now, meant for others, or its objects are gone.
    pub(super) fn service_account(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<(Identity, Vec<String>)> {
        let claims = self.signer.verify(token)?;
        let now = (self.context.clock)().as_second();
        let meant: Vec<String> =
            audiences.iter().filter(|audience| claims.aud.contains(audience)).cloned().collect();
        if now >= claims.exp || now < claims.nbf || claims.iss != ISSUER || meant.is_empty() {
            return None;
        }
        let Kubernetes { namespace, serviceaccount, pod, secret, node } = claims.kubernetes;
        self.lives("serviceaccounts", &namespace, &serviceaccount)?;
        let Named { name, uid } = serviceaccount;
        let mut identity = Identity::service_account(&namespace, &name, &uid);
        let mut note = |key: &str, value: String| {
            identity.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        };
        note("credential-id", format!("JTI={}", claims.jti));
        if let Some(pod) = pod {
            self.lives("pods", &namespace, &pod)?;
            note("pod-name", pod.name);
            note("pod-uid", pod.uid);
        }
        if let Some(secret) = secret {
            self.lives("secrets", &namespace, &secret)?;
        }
        if let Some(node) = node {
            self.lives("nodes", "", &node)?;
            note("node-name", node.name);
            note("node-uid", node.uid);
        }
        Some((identity, meant))
    }

    fn lives(&self, resource: &str, namespace: &str, named: &Named) -> Option<()> {
        (self.uid_of(resource, namespace, &named.name)? == named.uid).then_some(())
    }

    fn uid_of(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let object =
            self.context.store.get(&Key::new("", resource, namespace, name))?.readable()?;
        object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned)
    }
}

fn valid_duration(seconds: i64) -> Answer<()> {
    let why = if seconds < MIN_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MAX_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), why);
    Err(Status::invalid_kind("authentication.k8s.io", "TokenRequest", "", &[error]))
}

fn answer(request: &TokenRequest, token: &str, expires: Timestamp) -> Value {
    let mut answer = serde_json::to_value(request).unwrap_or_default();
    let expires = expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = serde_json::json!({"token": token, "expirationTimestamp": expires});
    set(&mut answer, "status", status);
    if let Some(spec) = answer.get_mut("spec") {
        preset(spec, "boundObjectRef", Value::Null);
    }
    answer
}
