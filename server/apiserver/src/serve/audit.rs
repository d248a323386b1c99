//! Who did what: an event of the target `ostler::audit` for every write, every read of secrets, and
//! every refusal of a stranger. No bodies and no credentials.

use std::{fmt::Write as _, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    auth::{Attributes, Target},
    kinds::identity::Identity,
    rest::Named,
};

/// The most characters of a user or of an object in a record: names are shorter, paths need not be.
const LONGEST: usize = 512;
/// Records of refusals that may come in a row, and one more in each [`EVERY`]: a client without rights must not fill
/// the log. Dropped records are counted in the next record.
const BURST: u32 = 100;
const EVERY: Duration = Duration::from_millis(100);

const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// Requests that look like writes, and only ask.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Writes the records. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    /// Apart, so that anonymous requests cannot crowd out the records of known users.
    strangers: Arc<Mutex<Budget>>,
    known: Arc<Mutex<Budget>>,
}

/// How many records there may be.
#[derive(Debug)]
struct Budget {
    left: u32,
    filled: Instant,
    suppressed: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now, suppressed: 0 }
    }

    /// How many records were dropped before this record; none if this record is dropped, too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.filled).as_millis() / EVERY.as_millis();
        if passed > 0 {
            let gained = u32::try_from(passed).unwrap_or(BURST).min(BURST);
            self.left = self.left.saturating_add(gained).min(BURST);
            self.filled = now;
        }
        if self.left == 0 {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// The part of a record that is known before the answer.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    verb: String,
    object: String,
    from: String,
    /// Whether the request is recorded whatever its result.
    always: bool,
    collection: bool,
}

impl Entry {
    pub(super) fn of(attributes: &Attributes, request: &Request<Body>) -> Self {
        let verb = attributes.verb.clone();
        let from = request.extensions().get::<SocketAddr>();
        let from = from.map_or_else(|| "-".to_owned(), ToString::to_string);
        let (object, always, collection) = match &attributes.target {
            Target::Path(path) => (path.clone(), false, false),
            Target::Resource { group, resource, subresource, namespace, name } => {
                let writes = WRITES.contains(&verb.as_str()) && !REVIEWS.contains(&group.as_str());
                let secrets = group.is_empty() && resource == "secrets";
                let object = object(group, resource, subresource, namespace, name);
                (object, writes || secrets, name.is_empty())
            }
        };
        Self { verb, object, from, always, collection }
    }
}

/// `machines.machine.sapcloud.io/default/web-1`, `pods/default/a/status`, `nodes/n1`.
fn object(group: &str, resource: &str, subresource: &str, namespace: &str, name: &str) -> String {
    let mut text = resource.to_owned();
    if !group.is_empty() {
        text.push('.');
        text.push_str(group);
    }
    let own = resource == "namespaces";
    for part in [if own { "" } else { namespace }, name, subresource] {
        if !part.is_empty() {
            text.push('/');
            text.push_str(part);
        }
    }
    text
}

impl Audit {
    pub(super) fn new() -> Self {
        let budget = || Arc::new(Mutex::new(Budget::new(Instant::now())));
        Self { strangers: budget(), known: budget() }
    }

    /// Writes the record of an answered request, if such requests are recorded.
    pub(super) fn record(
        &self,
        entry: &Entry,
        who: Option<&Identity>,
        response: &Response<Body>,
        audit_id: &str,
    ) {
        let code = response.status();
        let refused = matches!(
            code,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        );
        if !entry.always && !refused {
            return;
        }
        let stranger = who.is_none_or(|who| !who.is_authenticated());
        let mut suppressed = 0;
        if refused || stranger {
            let budget = if stranger { &self.strangers } else { &self.known };
            let taken = budget.lock().take(Instant::now());
            let Some(left_out) = taken else { return };
            suppressed = left_out;
        }
        let who = who.map_or("-", |who| who.username.as_str());
        let mut object = entry.object.clone();
        if entry.collection
            && let Some(Named(name)) = response.extensions().get()
        {
            // a String takes everything
            let _ = write!(object, "/{name}");
        }
        tracing::info!(
            target: "ostler::audit",
            who = cut(who),
            from = entry.from.as_str(),
            verb = entry.verb.as_str(),
            object = cut(&object),
            code = code.as_u16(),
            audit_id,
            suppressed,
        );
    }
}

fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(LONGEST).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_up_to_a_budget_and_those_left_out_are_counted() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let told = (0..1000).filter(|_| budget.take(start).is_some()).count();
        assert_eq!(told, 100);
        assert_eq!(budget.take(start + EVERY), Some(900));
        assert_eq!(budget.take(start + EVERY), None);
        let later = start + Duration::from_hours(1);
        assert_eq!(budget.take(later), Some(1));
        assert_eq!((0..1000).filter(|_| budget.take(later).is_some()).count(), 99);
    }

    #[test]
    fn an_object_is_named_with_group_place_and_part() {
        for (parts, expected) in [
            (["", "nodes", "", "", "n1"], "nodes/n1"),
            (["", "pods", "status", "default", "a"], "pods/default/a/status"),
            (["", "secrets", "", "kube-system", ""], "secrets/kube-system"),
            (["", "namespaces", "finalize", "x", "x"], "namespaces/x/finalize"),
            (["g.io", "machines", "", "default", "m"], "machines.g.io/default/m"),
        ] {
            let [group, resource, subresource, namespace, name] = parts;
            assert_eq!(object(group, resource, subresource, namespace, name), expected);
        }
    }

    #[test]
    fn what_is_told_of_is_decided_by_verb_and_object() {
        for (method, path, always) in [
            ("POST", "/api/v1/nodes", true),
            ("PATCH", "/api/v1/nodes/n1/status", true),
            ("DELETE", "/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines/b", true),
            ("GET", "/api/v1/nodes/n1", false),
            ("GET", "/api/v1/namespaces/a/secrets/s", true),
            ("GET", "/api/v1/secrets", true),
            ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token", true),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false),
            ("GET", "/readyz", false),
        ] {
            let method = method.parse().unwrap();
            let attributes = Attributes::of(&method, path, None);
            let entry = Entry::of(&attributes, &Request::new(Body::empty()));
            assert_eq!(entry.always, always, "{method} {path}");
        }
    }
}
