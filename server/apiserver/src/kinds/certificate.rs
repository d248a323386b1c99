//! Certificate signing requests.
//!
//! * [`request`]: what stands in a PKCS#10 request. `refusal`: why one is refused.
//! * [`kubelet`]: which requests the signer `kubernetes.io/kube-apiserver-client-kubelet` signs.

pub(crate) mod kubelet;
pub(crate) mod refusal;
pub(crate) mod request;

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

pub(crate) use self::request::Request;
use super::{
    NameRule, Subresource,
    access::{items, items_mut, keep, number, object_in, preset, remove, set, text},
};
use crate::kinds::{
    field::{FieldError, child, index},
    identity::Identity,
};

/// Conditions that decide over a request; each is true or not there.
pub(crate) const APPROVED: &str = "Approved";
pub(crate) const DENIED: &str = "Denied";
pub(crate) const FAILED: &str = "Failed";

/// The usages of certificates.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The shortest life that can be asked for, in seconds.
const SHORTEST: i64 = 600;

/// The PKCS#10 request in an object, if it can be read.
pub(crate) fn request_of(object: &Value) -> Option<Request> {
    Request::parse(&bytes(object, "/spec/request")?).ok()
}

/// The value of a field of bytes.
pub(crate) fn bytes(object: &Value, pointer: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text(object, pointer)).ok()
}

/// Whether a condition is there.
pub(crate) fn has_condition(object: &Value, kind: &str) -> bool {
    conditions(object, kind).next().is_some()
}

/// The conditions of one type.
pub(crate) fn conditions<'a>(object: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    items(object, "/status/conditions").iter().filter(move |one| text(one, "/type") == kind)
}

/// `Pending`, `Approved,Issued` and the like, as tables show it.
pub(crate) fn summary(object: &Value) -> String {
    let has = |kind| has_condition(object, kind);
    let mut words = match (has(DENIED), has(APPROVED)) {
        (true, _) => DENIED.to_owned(),
        (false, true) => APPROVED.to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if has(FAILED) {
        words.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        words.push_str(",Issued");
    }
    words
}

/// Who asks is known to the server: what the client says of it does not count.
pub(crate) fn set_requester(object: &mut Value, requester: Option<&Identity>) {
    let Some(spec) = object_in(object, "spec") else { return };
    for name in ["username", "uid", "groups", "extra"] {
        remove(spec, name);
    }
    let Some(requester) = requester else { return };
    set(spec, "username", requester.username.clone());
    set(spec, "groups", json!(requester.groups));
    if let Some(uid) = &requester.uid {
        set(spec, "uid", uid.clone());
    }
    if !requester.extra.is_empty() {
        set(spec, "extra", json!(requester.extra));
    }
}

/// Gives conditions without times theirs.
pub(crate) fn stamp(new: &mut Value, old: &Value, now: Timestamp) {
    let now = Value::from(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    for condition in items_mut(new, "/status/conditions") {
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        let same = conditions(old, kind).find(|one| text(one, "/status") == status);
        let since = same.and_then(|one| one.get("lastTransitionTime")).cloned();
        for (name, time) in [
            ("lastUpdateTime", now.clone()),
            ("lastTransitionTime", since.unwrap_or_else(|| now.clone())),
        ] {
            if condition.get(name).is_none_or(Value::is_null) {
                set(condition, name, time);
            }
        }
    }
}

pub(super) fn prepare_create(object: &mut Value) {
    set(object, "status", json!({}));
}

/// The request never changes; `/approval` decides, `/status` brings the certificate.
pub(super) fn prepare_update(new: &mut Value, old: &Value, part: Option<Subresource>) {
    keep(new, old, "spec");
    preset(new, "status", json!({}));
    let Some(status) = new.get_mut("status") else { return };
    match part {
        Some(Subresource::Approval) => {
            keep(status, old.get("status").unwrap_or(&Value::Null), "certificate");
        }
        Some(Subresource::Status) => {
            for kind in [APPROVED, DENIED] {
                keep_conditions(status, old, kind);
            }
        }
        Some(_) | None => {}
    }
}

/// Keeps existing decisions unchanged. Added and removed conditions are left for validation.
fn keep_conditions(status: &mut Value, old: &Value, kind: &str) {
    let before: Vec<Value> = conditions(old, kind).cloned().collect();
    let after = items_mut(status, "/conditions").filter(|one| text(one, "/type") == kind);
    let after: Vec<&mut Value> = after.collect();
    if before.len() == after.len() {
        for (slot, condition) in after.into_iter().zip(before) {
            *slot = condition;
        }
    }
}

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let request = bytes(object, "/spec/request").unwrap_or_default();
    if let Err(error) = Request::parse(&request) {
        let path = "spec.request";
        let sent = text(object, "/spec/request");
        errors.push(FieldError::invalid_text(path, sent, &error.to_string()));
    }
    errors.extend(validate_usages(object));
    errors.extend(validate_signer(text(object, "/spec/signerName")));
    if let Some(seconds) = number(object, "/spec/expirationSeconds").filter(|one| *one < SHORTEST) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", &json!(seconds), detail));
    }
    errors.extend(validate_conditions(object));
    errors.extend(validate_certificate(object));
    errors
}

fn validate_usages(object: &Value) -> Vec<FieldError> {
    let usages = items(object, "/spec/usages");
    if usages.is_empty() {
        return vec![FieldError::required("spec.usages", "")];
    }
    let mut errors = Vec::new();
    for (at, usage) in usages.iter().enumerate() {
        let path = index("spec.usages", at);
        if !USAGES.contains(&usage.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(path, usage, &USAGES));
        } else if usages.iter().take(at).any(|other| other == usage) {
            errors.push(FieldError::duplicate(path, usage));
        }
    }
    errors
}

/// `domain/path`, with at least two parts before the slash.
fn validate_signer(name: &str) -> Vec<FieldError> {
    let path = "spec.signerName";
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let invalid = |detail: &str| vec![FieldError::invalid_text(path, name, detail)];
    let form = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    let Some((domain, rest)) = name.split_once('/') else { return invalid(form) };
    if let Some(problem) = super::names::subdomain(domain).first() {
        return invalid(problem);
    }
    if !domain.contains('.') {
        return invalid("should be a domain with at least two segments separated by dots");
    }
    if rest.is_empty() {
        return invalid(form);
    }
    let problems = NameRule::PathSegment.problems(rest, false);
    FieldError::invalid_for(path, name, problems).collect()
}

fn validate_conditions(object: &Value) -> Vec<FieldError> {
    let all = items(object, "/status/conditions");
    let mut errors = Vec::new();
    for (at, condition) in all.iter().enumerate() {
        let path = index("status.conditions", at);
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        if kind.is_empty() {
            errors.push(FieldError::required(child(&path, "type"), ""));
        }
        let decides = [APPROVED, DENIED, FAILED].contains(&kind);
        let known: &[&str] = if decides { &["True"] } else { &["False", "True", "Unknown"] };
        errors.extend(FieldError::unless_one_of(&child(&path, "status"), status, known));
        let has = |wanted: &str| all.iter().take(at).any(|one| text(one, "/type") == wanted);
        if (kind == APPROVED && has(DENIED)) || (kind == DENIED && has(APPROVED)) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid_text(child(&path, "type"), kind, detail));
        } else if has(kind) {
            errors.push(FieldError::duplicate(child(&path, "type"), &json!(kind)));
        }
    }
    errors
}

fn validate_certificate(object: &Value) -> Option<FieldError> {
    let sent = text(object, "/status/certificate");
    if sent.is_empty() {
        return None;
    }
    let pem = bytes(object, "/status/certificate").unwrap_or_default();
    CertificateDer::from_pem_slice(&pem).is_err().then(|| {
        let detail = "must contain at least one CERTIFICATE PEM block";
        FieldError::invalid_shown("status.certificate", "\"<certificate data>\"", detail)
    })
}

pub(super) fn validate_update(
    new: &Value,
    old: &Value,
    part: Option<Subresource>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let count = |object: &Value, kind: &str| conditions(object, kind).count();
    for kind in [APPROVED, DENIED, FAILED] {
        let (before, after) = (count(old, kind), count(new, kind));
        let detail = if after < before {
            format!("updates may not remove a condition of type {kind:?}")
        } else if after > before && kind != FAILED && part != Some(Subresource::Approval) {
            format!("updates may not add a condition of type {kind:?}")
        } else {
            continue;
        };
        errors.push(FieldError::forbidden("status.conditions", &detail));
    }
    let certificate = |object| text(object, "/status/certificate");
    if !certificate(old).is_empty() && certificate(old) != certificate(new) {
        let detail = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::{super::BuiltIn, *};

    fn object(status: &Value) -> Value {
        json!({"spec": {"request": "a", "signerName": "x.y/z"}, "status": status})
    }

    fn condition(kind: &str) -> Value {
        json!({"type": kind, "status": "True"})
    }

    /// The stored result of an update of a part, and the paths of its errors.
    fn update(part: Option<Subresource>, old: &Value, new: &Value) -> (Value, Vec<String>) {
        let resource = BuiltIn::CertificateSigningRequest.resource();
        let mut new = new.clone();
        resource.prepare_update(&mut new, old, part);
        let errors = validate_update(&new, old, part);
        (new, errors.iter().map(|error| error.path.clone()).collect())
    }

    #[test]
    fn each_part_changes_what_is_its_own() {
        let (none, approved) =
            (object(&json!({})), object(&json!({"conditions": [condition(APPROVED)]})));
        let issued = object(&json!({"conditions": [condition(APPROVED)], "certificate": "c"}));
        let other = object(&json!({"conditions": [condition(APPROVED)], "certificate": "d"}));
        let failed = object(&json!({"conditions": [condition(FAILED)]}));
        let (approval, status) = (Some(Subresource::Approval), Some(Subresource::Status));
        let decisions = || vec!["status.conditions".to_owned()];
        for (part, old, new, stored, refused) in [
            (None, &none, &approved, &none, vec![]),
            (approval, &none, &approved, &approved, vec![]),
            (approval, &approved, &none, &none, decisions()),
            (approval, &approved, &issued, &approved, vec![]),
            (status, &none, &approved, &approved, decisions()),
            (status, &approved, &issued, &issued, vec![]),
            (status, &issued, &other, &other, vec!["status.certificate".to_owned()]),
            (status, &none, &failed, &failed, vec![]),
            (status, &failed, &none, &none, decisions()),
        ] {
            assert_eq!(update(part, old, new), (stored.clone(), refused), "{part:?} {new}");
        }
    }

    #[test]
    fn what_is_asked_for_never_changes() {
        let old = object(&json!({}));
        let mut new = old.clone();
        new["spec"]["signerName"] = json!("other.y/z");
        for part in [None, Some(Subresource::Approval), Some(Subresource::Status)] {
            assert_eq!(update(part, &old, &new).0["spec"], old["spec"], "{part:?}");
        }
    }

    #[test]
    fn the_requester_is_who_the_server_says() {
        let mut sent = object(&json!({}));
        sent["spec"]["username"] = json!("system:admin");
        sent["spec"]["groups"] = json!(["system:masters"]);
        sent["spec"]["uid"] = json!("u");
        let bot = Identity::user("bot", vec!["a".to_owned()]);
        set_requester(&mut sent, Some(&bot));
        let spec = &sent["spec"];
        assert_eq!(spec["username"], "bot");
        assert_eq!(spec["groups"], json!(["a", "system:authenticated"]));
        assert_eq!(spec.get("uid"), None);
    }

    #[test]
    fn malformed_requests_are_refused_by_field() {
        let mut asked = json!({"spec": {"request": "bm8gUEVN", "signerName": "no-path",
            "usages": ["client auth", "client auth", "world peace"], "expirationSeconds": 599}});
        let fields: Vec<String> = validate(&asked).iter().map(|error| error.path.clone()).collect();
        assert_eq!(
            fields,
            [
                "spec.request",
                "spec.usages[1]",
                "spec.usages[2]",
                "spec.signerName",
                "spec.expirationSeconds"
            ]
        );
        asked["status"] = json!({"certificate": "bm8gUEVN", "conditions": [
            condition(APPROVED), condition(DENIED), condition(APPROVED), {"type": "Failed", "status": "False"},
        ]});
        let errors = validate(&asked);
        let fields: Vec<&str> = errors.iter().skip(5).map(|error| error.path.as_str()).collect();
        assert_eq!(
            fields,
            [
                "status.conditions[1].type",
                "status.conditions[2].type",
                "status.conditions[3].status",
                "status.certificate"
            ]
        );
    }
}
