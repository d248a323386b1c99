//! The core that serves a namespace, as far as Leases show: a Lease names its holder and the namespaces that the holder
//! serves.

use std::fmt::{Display, Formatter};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use ostler_api::names::annotation::SERVED_NAMESPACES;
use ostler_api::names::{LEADER_LEASE, SETS_LEASE};
use ostler_controllers::Namespaces;
use serde::Serialize;

use crate::table::span;

/// How the holder of the core in `ostler up` is called.
const UP: &str = "ostler-up_";

/// The Leases that could be read.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    found: Vec<Lease>,
    /// Whether Leases of all namespaces were read.
    all: bool,
}

/// The process that serves a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Server {
    /// The Leases cannot be read, or do not say it.
    #[default]
    Unknown,
    /// This process.
    Process {
        /// Its name.
        holder: String,
        /// How long ago the holder renewed its Lease, if the Lease has expired by the clock of this computer.
        silent: Option<SignedDuration>,
    },
    /// None.
    Nobody,
}

/// A core with its Lease.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Serving {
    /// Its name.
    holder: String,
    /// The namespaces that the core serves.
    namespaces: String,
    /// How many seconds ago the core renewed its Lease, if the Lease has expired by the clock of this computer.
    silent_for: Option<i64>,
}

impl Display for Serving {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let namespaces = if self.namespaces == "*" { "all namespaces" } else { &self.namespaces };
        write!(f, "{} serves {namespaces}", self.holder)?;
        match self.silent_for {
            Some(ago) => {
                let ago = span(SignedDuration::from_secs(ago));
                write!(f, "; it renewed its Lease {ago} ago by this computer's clock")
            }
            None => Ok(()),
        }
    }
}

impl Leases {
    /// All that there are.
    #[cfg(test)]
    pub(crate) const fn of(found: Vec<Lease>) -> Self {
        Self { found, all: true }
    }

    /// Reads the Leases of all cores, or those of `namespace` where a user may read no others.
    pub(crate) async fn read(client: &Client, namespace: &str) -> Self {
        let mut leases = Self { found: Vec::new(), all: true };
        for name in [LEADER_LEASE, SETS_LEASE] {
            let only = ListParams::default().fields(&format!("metadata.name={name}"));
            if let Ok(list) = Api::<Lease>::all(client.clone()).list(&only).await {
                leases.found.extend(list);
                continue;
            }
            leases.all = false;
            let here = Api::<Lease>::namespaced(client.clone(), namespace);
            leases.found.extend(here.get_opt(name).await.ok().flatten());
        }
        leases
    }

    /// The holder of the Lease `name` for `namespace`. A live holder comes first.
    pub(crate) fn server(&self, name: &str, namespace: &str, now: Timestamp) -> Server {
        let named = || self.found.iter().filter(|lease| lease.name_any() == name);
        let held = |lease: &Lease| {
            let (holder, silent) = held(lease, now)?;
            Some(Server::Process { holder, silent })
        };
        let serving = named().filter(|lease| serves(lease, namespace) == Some(true));
        let mut serving: Vec<_> = serving.filter_map(held).collect();
        serving.sort_by_key(|it| matches!(it, Server::Process { silent: Some(_), .. }));
        if let Some(found) = serving.into_iter().next() {
            return found;
        }
        // A core of an earlier version says it nowhere.
        let may_serve = |lease: &Lease| serves(lease, namespace).is_none() && held(lease).is_some();
        let here = || self.found.iter().any(|it| it.namespace().as_deref() == Some(namespace));
        if named().any(may_serve) || !self.all && !here() {
            return Server::Unknown;
        }
        Server::Nobody
    }

    /// That no core looks after the Machines, classes and pools of a namespace, and what to do about it.
    pub(crate) fn unserved(&self, namespace: &str, now: Timestamp) -> Option<String> {
        match self.server(LEADER_LEASE, namespace, now) {
            Server::Unknown | Server::Process { silent: None, .. } => None,
            Server::Process { holder, silent: Some(ago) } => Some(format!(
                "no core serves namespace {namespace}: {holder} did, and renewed its Lease {} ago by this computer's clock; \
                 start it again",
                span(ago)
            )),
            Server::Nobody => Some(nobody(namespace, &self.others(now))),
        }
    }

    /// Every core that holds a Lease.
    pub(crate) fn cores(&self, now: Timestamp) -> Vec<Serving> {
        let leading = self.found.iter().filter(|it| it.name_any() == LEADER_LEASE);
        let of = |lease: &Lease| {
            let (holder, silent) = held(lease, now)?;
            let served = lease.annotations().get(SERVED_NAMESPACES).cloned();
            let namespaces = served.or_else(|| lease.namespace()).unwrap_or_default();
            let silent_for = silent.map(|ago| ago.as_secs());
            Some(Serving { holder, namespaces, silent_for })
        };
        leading.filter_map(of).collect()
    }

    /// The live cores, and the namespaces of each.
    fn others(&self, now: Timestamp) -> Vec<(String, String)> {
        let alive = self.found.iter().filter(|it| it.name_any() == LEADER_LEASE);
        let of = |lease: &Lease| {
            let (holder, silent) = held(lease, now)?;
            let served = lease.annotations().get(SERVED_NAMESPACES)?.clone();
            silent.is_none().then_some((holder, served))
        };
        alive.filter_map(of).collect()
    }
}

/// Says that no core serves `namespace`, and how to start one.
fn nobody(namespace: &str, others: &[(String, String)]) -> String {
    let up = others.iter().find(|(holder, _)| holder.starts_with(UP));
    let start = match (up, others) {
        (Some((_, served)), _) => start_up(served, namespace),
        (None, _) => format!("start `ostler-server --namespace {namespace}`"),
    };
    let served: Vec<_> =
        others.iter().map(|(holder, served)| format!("{holder} serves {served}")).collect();
    let served =
        if served.is_empty() { String::new() } else { format!(" ({})", served.join("; ")) };
    format!("no core serves namespace {namespace}{served}; {start}")
}

/// How `up` is started with one namespace more.
pub(crate) fn start_up(served: &str, namespace: &str) -> String {
    let all =
        if served.ends_with('*') { "'*'".to_owned() } else { format!("{served},{namespace}") };
    format!("start `ostler up --namespace {all}`")
}

/// Whether the holder of a Lease serves a namespace; `None`: it does not say. One that says nothing serves its own, as
/// machine-controller-manager and earlier versions do.
fn serves(lease: &Lease, namespace: &str) -> Option<bool> {
    let Some(served) = lease.annotations().get(SERVED_NAMESPACES) else {
        return (lease.namespace().as_deref() == Some(namespace)).then_some(true);
    };
    Some(served.parse::<Namespaces>().ok()?.contains(namespace))
}

/// Who holds a Lease, and how long ago it was renewed if it has expired.
pub(crate) fn held(lease: &Lease, now: Timestamp) -> Option<(String, Option<SignedDuration>)> {
    let spec = lease.spec.as_ref()?;
    let lasts = i64::from(spec.lease_duration_seconds?).saturating_mul(2);
    let ago = now.duration_since(spec.renew_time.as_ref()?.0);
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    Some((holder, Some(ago).filter(|ago| ago.as_secs() > lasts)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn noon() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn lease(namespace: &str, holder: &str, served: Option<&str>, seconds: i64) -> Lease {
        let renewed = (noon() - SignedDuration::from_secs(seconds)).to_string();
        let notes: Value =
            served.map_or_else(|| json!({}), |served| json!({ (SERVED_NAMESPACES): served }));
        serde_json::from_value(json!({
            "metadata": { "name": LEADER_LEASE, "namespace": namespace, "annotations": notes },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed }
        }))
        .unwrap()
    }

    #[test]
    fn a_namespace_that_no_core_serves_is_named_with_what_would_serve_it() {
        for (found, all, expected) in [
            (
                vec![],
                true,
                Some("no core serves namespace shop; start `ostler-server --namespace shop`"),
            ),
            (vec![], false, None),
            (
                vec![lease("default", "ostler-up_1", Some("default"), 1)],
                true,
                Some(
                    "no core serves namespace shop (ostler-up_1 serves default); start `ostler up --namespace default,shop`",
                ),
            ),
            (
                vec![lease("ostler-system", "core-0", Some("a,b"), 1)],
                true,
                Some(
                    "no core serves namespace shop (core-0 serves a,b); start `ostler-server --namespace shop`",
                ),
            ),
            (vec![lease("ostler-system", "core-0", Some("a,shop"), 1)], true, None),
            (vec![lease("ostler-system", "core-0", Some("sh*"), 1)], true, None),
            // A holder whose Lease names no namespaces serves its own, and perhaps others.
            (vec![lease("shop", "mcm", None, 1)], true, None),
            (vec![lease("other", "mcm", None, 1)], true, None),
            (
                vec![lease("shop", "", Some("shop"), 1)],
                true,
                Some("start `ostler-server --namespace shop`"),
            ),
            (
                vec![lease("shop", "core-0", Some("shop"), 95)],
                true,
                Some("core-0 did, and renewed its Lease 1m35s ago"),
            ),
            // Only the Lease of the namespace itself may be read.
            (vec![lease("shop", "core-0", Some("shop"), 95)], false, Some("start it again")),
            // Two cores, a dead and a live one.
            (
                vec![lease("a", "dead", Some("shop"), 95), lease("b", "alive", Some("shop"), 1)],
                true,
                None,
            ),
        ] {
            let leases = Leases { found, all };
            let said = leases.unserved("shop", noon());
            match expected {
                None => assert_eq!(said, None, "{leases:?}"),
                Some(part) => {
                    assert!(said.as_ref().is_some_and(|it| it.contains(part)), "{part}: {said:?}");
                }
            }
        }
    }
}
