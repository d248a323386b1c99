//! Requests of nodes for client certificates are approved and signed, as kube-controller-manager
//! does it. Requests for other signers are for others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{Controller, Outcome, Plane, Queue, settled};
use crate::{
    auth::{
        Attributes, Bound, Target, bound_to,
        certificates::{Authority, sign},
        is_bootstrapper, permits, standing_token,
    },
    kinds::{
        access::{items, number, object_in, set, text},
        certificate::{APPROVED, DENIED, FAILED, Request, bytes, has_condition, kubelet},
        identity::{Identity, NODE_ANNOTATION},
        selector::FieldSelector,
    },
    store::Key,
};

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "certificatesigningrequests";

/// Approves and signs.
#[derive(Debug)]
pub(super) struct Certificates {
    plane: Plane,
    authority: Arc<Authority>,
    bound: Bound,
    /// By node: requests that wait until the node is gone. A replacement may have the name of the node that it
    /// replaces.
    waiting: BTreeMap<String, BTreeSet<Key>>,
}

impl Certificates {
    pub(super) fn new(plane: Plane, authority: Arc<Authority>) -> Self {
        let bound = Bound::new(plane.context.store.clone());
        Self { plane, authority, bound, waiting: BTreeMap::new() }
    }

    /// What a bootstrap token is good for: the node that its secret names, and without that any that
    /// is not there yet, as long as the token works. The holder of one machine's token must not become
    /// another's node.
    fn reach(&self, request: &Value, requester: &Identity, node: &str) -> Reach {
        if requester.is_master() || !is_bootstrapper(requester) {
            return Reach::Granted;
        }
        let store = &self.plane.context.store;
        let said = request.pointer("/spec/extra").and_then(|extra| extra.get(NODE_ANNOTATION));
        let said = said.and_then(|nodes| nodes.get(0)?.as_str()).map(str::to_owned);
        let token = standing_token(store, &requester.username, (self.plane.context.clock)());
        match said.or_else(|| token.as_ref().and_then(bound_to).map(str::to_owned)) {
            Some(bound) if bound == node => Reach::Granted,
            Some(bound) => Reach::Bound(bound),
            None if token.is_none() || store.get(&Key::new("", "nodes", "", node)).is_some() => {
                Reach::Taken
            }
            None => Reach::Granted,
        }
    }

    /// Whether the requester may have a certificate of this sort without an administrator.
    fn may(&self, requester: &Identity, sort: &str) -> bool {
        let target = Target::Resource {
            group: GROUP.to_owned(),
            resource: PLURAL.to_owned(),
            subresource: sort.to_owned(),
            namespace: String::new(),
            name: String::new(),
        };
        let fields = FieldSelector::default();
        let attributes = Attributes { verb: "create".to_owned(), target, fields };
        permits(requester, &attributes, &self.bound)
    }

    /// The certificate that a request asks for; none if it cannot be signed now.
    fn signed(&self, name: &str, request: &Request, seconds: Option<i64>) -> Option<String> {
        let user = &request.common_name;
        match sign(&self.authority, request, seconds, (self.plane.context.clock)()) {
            Ok(pem) => {
                tracing::info!(request = name, user, "a client certificate was signed");
                Some(pem)
            }
            Err(error) => {
                tracing::error!(request = name, %error, "a certificate was not signed");
                None
            }
        }
    }

    /// Adds a condition or a certificate; what has changed meanwhile is looked at again.
    async fn write(
        &self,
        key: &Key,
        mut object: Value,
        part: &str,
        field: &str,
        value: Value,
    ) -> Outcome {
        let Some(path) = self.plane.path(key) else { return Outcome::Done };
        if let Some(status) = object_in(&mut object, "status") {
            set(status, field, value);
        }
        settled(self.plane.loopback.replace(&format!("{path}/{part}"), &object).await.code)
    }
}

fn tell_of_taken(request: &str, node: &str) {
    tracing::warn!(
        request,
        node,
        "a bootstrap token asks for the certificate of a node that is there already, or is gone itself: the request \
        waits for `kubectl certificate approve`, or until that Node is gone"
    );
}

/// The conditions of a request and one more, which is true.
fn with(object: &Value, kind: &str, reason: &str, message: &str) -> Value {
    let mut conditions = items(object, "/status/conditions").to_vec();
    conditions.push(json!({"type": kind, "status": "True", "reason": reason, "message": message}));
    conditions.into()
}

/// The next step for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: it is done, decided against, for another signer, or waits for an administrator.
    None,
    /// It can never be signed.
    Refuse(String),
    /// The request waits for an administrator or for the end of the node: it is for a node that exists. Once the token
    /// of the request is gone, it waits for an administrator alone.
    Wait(String),
    /// It is approved.
    Approve(&'static str),
    /// It is signed.
    Sign(Request),
}

/// Whether a requester may have the certificate of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    Granted,
    /// It is bound to another node.
    Bound(String),
    /// The node is there already, or the token is gone, and nothing says that the node is the requester's.
    Taken,
}

/// `may` says whether the requester may have a certificate of this sort without being asked, and
/// `reach` whether that of this node.
fn next(object: &Value, may: impl Fn(&str) -> bool, reach: impl Fn(&str) -> Reach) -> Step {
    let done = !text(object, "/status/certificate").is_empty();
    let ended = done || has_condition(object, DENIED) || has_condition(object, FAILED);
    if ended || text(object, "/spec/signerName") != kubelet::SIGNER {
        return Step::None;
    }
    let pem = bytes(object, "/spec/request").unwrap_or_default();
    let request = match Request::parse(&pem) {
        Ok(request) => request,
        Err(error) => return Step::Refuse(error.to_string()),
    };
    let usages: Vec<&str> =
        items(object, "/spec/usages").iter().filter_map(Value::as_str).collect();
    if let Err(refusal) = kubelet::check(&request, &usages) {
        return Step::Refuse(refusal.to_string());
    }
    if let Err(error) = request.key() {
        return Step::Refuse(error.to_string());
    }
    if has_condition(object, APPROVED) {
        return Step::Sign(request);
    }
    if request.common_name == text(object, "/spec/username") && may("selfnodeclient") {
        let why = "Auto approving self kubelet client certificate after SubjectAccessReview.";
        return Step::Approve(why);
    }
    if !may("nodeclient") {
        return Step::None;
    }
    let node = kubelet::node_of(&request.common_name).unwrap_or_default();
    match reach(node) {
        Reach::Granted => {
            Step::Approve("Auto approving kubelet client certificate after SubjectAccessReview.")
        }
        Reach::Bound(bound) => {
            Step::Refuse(format!("the bootstrap token is good for node {bound} alone"))
        }
        Reach::Taken => Step::Wait(node.to_owned()),
    }
}

/// The identity of the requester.
fn requester(object: &Value) -> Identity {
    let groups = items(object, "/spec/groups").iter().filter_map(Value::as_str);
    Identity::user(text(object, "/spec/username"), groups.map(str::to_owned).collect())
}

impl Controller for Certificates {
    type Key = Key;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn forget(&mut self) {
        self.waiting.clear();
    }

    fn note(&mut self, key: &Key, value: Option<&[u8]>, queue: &mut Queue<Key>) {
        if key.group() == GROUP && key.resource() == PLURAL {
            if value.is_some() {
                queue.push(key.clone());
            } else {
                self.waiting.retain(|_, requests| {
                    requests.remove(key);
                    !requests.is_empty()
                });
            }
        } else if value.is_none() && key.group().is_empty() && key.resource() == "nodes" {
            let freed = self.waiting.remove(key.name()).into_iter().flatten();
            freed.for_each(|request| queue.push(request));
        }
    }

    async fn act(&mut self, key: Key) -> Outcome {
        let Some(object) = self.plane.object(&key) else { return Outcome::Done };
        let requester = requester(&object);
        let reach = |node: &str| self.reach(&object, &requester, node);
        match next(&object, |sort| self.may(&requester, sort), reach) {
            Step::None => Outcome::Done,
            Step::Wait(node) => {
                tell_of_taken(key.name(), &node);
                self.waiting.entry(node).or_default().insert(key);
                Outcome::Done
            }
            Step::Refuse(why) => {
                tracing::info!(request = key.name(), why, "a certificate request cannot be signed");
                let conditions = with(&object, FAILED, "SignerValidationFailure", &why);
                self.write(&key, object, "status", "conditions", conditions).await
            }
            Step::Approve(message) => {
                let conditions = with(&object, APPROVED, "AutoApproved", message);
                self.write(&key, object, "approval", "conditions", conditions).await
            }
            Step::Sign(request) => {
                let seconds = number(&object, "/spec/expirationSeconds");
                let Some(pem) = self.signed(key.name(), &request, seconds) else {
                    return Outcome::Retry;
                };
                let encoded = BASE64_STANDARD.encode(pem);
                self.write(&key, object, "status", "certificate", encoded.into()).await
            }
        }
    }
}
