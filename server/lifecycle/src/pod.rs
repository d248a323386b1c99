//! A pod, as a drain sees it.

use ostler_api::Uid;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use ostler_api::{differ_by_numbers_only, machine::DrainProgress, names};

use crate::budget::BudgetFacts;

/// Of an error of an eviction, so many bytes are kept.
const TEXT_BYTES: usize = 512;

/// A pod on the Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts of a pod, independent of each other")]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Name of the pod's Node.
    pub node: String,
    /// UID: a pod of the same name that came later is another pod.
    pub uid: Uid,
    /// Made by the kubelet itself.
    pub mirror: bool,
    /// Controlled by a DaemonSet.
    pub daemon: bool,
    /// Succeeded or failed.
    pub finished: bool,
    /// Being deleted.
    pub terminating: bool,
    /// When the pod's grace is over, if in deletion.
    pub ends_at: Option<Timestamp>,
    /// The priority; unset is 0.
    pub priority: i32,
    /// `namespace/name` of the used claims, generic ephemeral volumes included.
    pub claims: Vec<String>,
    /// The last failed eviction of the pod by this process. Kept in memory only.
    pub refused: Option<EvictionRefusal>,
}

/// Evictions that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionRefusal {
    /// When the last eviction was tried.
    pub at: Timestamp,
    /// Whether the refusing budget allows evictions since: the eviction is tried again without waiting.
    pub lifted: bool,
    /// How many, in a row, of this drain, and for such a cause.
    pub attempts: i32,
    /// Not before this much time has passed, as the API server said.
    pub retry_after: Option<Duration>,
    /// Why the last eviction failed.
    pub cause: RefusalCause,
}

impl EvictionRefusal {
    /// How many evictions failed in a row, including this failure. Budgets count apart from errors, since too many
    /// refusals by budgets end in a deletion without grace; so does each drain.
    pub fn count(
        before: Option<&Self>,
        cause: &RefusalCause,
        drain: Option<&DrainProgress>,
    ) -> i32 {
        let same_kind = |it: &&Self| it.cause.is_of_budgets() == cause.is_of_budgets();
        let before = before.filter(same_kind).filter(|it| it.is_of(drain));
        before.map_or(0, |it| it.attempts).saturating_add(1)
    }

    /// How many in a row were refused because of budgets, in this drain.
    pub(crate) fn by_budgets(&self, drain: Option<&DrainProgress>) -> i32 {
        if self.cause.is_of_budgets() && self.is_of(drain) { self.attempts } else { 0 }
    }

    fn is_of(&self, drain: Option<&DrainProgress>) -> bool {
        let begun = drain.and_then(|drain| drain.started_at.as_ref());
        begun.is_none_or(|begun| self.at >= begun.0)
    }
}

/// How the API server answered a request that a pod leaves, as far as that decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionAnswer {
    /// Too many requests (429): a budget refuses.
    Refused,
    /// The API server failed (500), also its answer to a pod with several budgets.
    Broke,
    /// Anything else.
    Failed,
}

impl EvictionAnswer {
    /// Whether the budgets of the pod have to be known to tell why.
    pub fn may_be_budgets(self) -> bool {
        self != Self::Failed
    }

    /// Why the pod did not leave. `budgets`: the budgets of the pod; `said`: the API server's message; `before`: the
    /// previous cause.
    pub fn cause(
        self,
        budgets: Vec<BudgetFacts>,
        said: &str,
        before: Option<&RefusalCause>,
    ) -> RefusalCause {
        let cut = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES)].to_owned();
        match self {
            Self::Refused => RefusalCause::Budgets(budgets),
            Self::Broke if budgets.len() > 1 => RefusalCause::Budgets(budgets),
            Self::Broke | Self::Failed => match before {
                Some(RefusalCause::Failed(before))
                    if differ_by_numbers_only(before, &cut(said)) =>
                {
                    RefusalCause::Failed(before.clone())
                }
                _ => RefusalCause::Failed(cut(said)),
            },
        }
    }
}

/// Why an eviction failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalCause {
    /// Refused because of budgets: the observed budgets of the pod.
    Budgets(Vec<BudgetFacts>),
    /// The request failed with this error.
    Failed(String),
}

impl RefusalCause {
    const fn is_of_budgets(&self) -> bool {
        matches!(self, Self::Budgets(_))
    }
}

impl PodView {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reads a pod.
    pub fn of(pod: &Pod, refused: Option<EvictionRefusal>) -> Self {
        let meta = &pod.metadata;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let annotations = meta.annotations.as_ref();
        let owners = meta.owner_references.iter().flatten();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default().into(),
            mirror: annotations.is_some_and(|all| all.contains_key(names::annotation::MIRROR_POD)),
            daemon: owners
                .into_iter()
                .any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet"),
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            terminating: meta.deletion_timestamp.is_some(),
            ends_at: meta.deletion_timestamp.as_ref().map(|time| time.0),
            priority: pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default(),
            claims: claims(pod),
            refused,
        }
    }
}

/// `namespace/name` of the claims that a pod uses. A generic ephemeral volume has a claim of its
/// own, named after pod and volume.
pub fn claims(pod: &Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claim = |volume: &Volume| {
        let claimed = volume.persistent_volume_claim.as_ref();
        let ephemeral = volume.ephemeral.as_ref().map(|_| format!("{name}-{}", volume.name));
        claimed.map(|source| source.claim_name.clone()).or(ephemeral)
    };
    volumes.filter_map(claim).map(|claim| format!("{namespace}/{claim}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_that_breaks_is_refused_by_budgets_only_where_several_select_the_pod() {
        let budget = |name: &str| BudgetFacts { name: name.to_owned(), misconfigured: false };
        let (one, two) = (vec![budget("a")], vec![budget("a"), budget("b")]);
        for (answer, budgets, by_budget) in [
            (EvictionAnswer::Refused, Vec::new(), true),
            (EvictionAnswer::Refused, one.clone(), true),
            (EvictionAnswer::Broke, one.clone(), false),
            (EvictionAnswer::Broke, two.clone(), true),
            (EvictionAnswer::Failed, two, false),
        ] {
            let cause = answer.cause(budgets, "it broke", None);
            assert_eq!(
                matches!(cause, RefusalCause::Budgets(_)),
                by_budget,
                "{answer:?} {cause:?}"
            );
        }
    }

    #[test]
    fn an_error_that_names_another_id_or_time_at_each_try_stays_what_it_was() {
        let cause = |said: &str, before: &RefusalCause| {
            EvictionAnswer::Failed.cause(Vec::new(), said, Some(before))
        };
        let first = "webhook denied request 7f3-ab at 12:00:01";
        let before = cause(first, &RefusalCause::Budgets(Vec::new()));
        assert_eq!(before, RefusalCause::Failed(first.to_owned()));
        assert_eq!(cause("webhook denied request 9c1 at 12:00:21", &before), before);
        let other = RefusalCause::Failed("pods is forbidden".to_owned());
        assert_eq!(cause("pods is forbidden", &before), other);
        let long = cause(&"é".repeat(2000), &before);
        assert_eq!(long, RefusalCause::Failed("é".repeat(TEXT_BYTES / 2)));
        assert_eq!(cause(&"é".repeat(2000), &long), long);
    }

    #[test]
    fn claims_of_ephemeral_volumes_count_and_a_priority_that_is_not_set_is_zero() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "db-0", "namespace": "apps" },
            "spec": { "containers": [], "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } },
                { "name": "tmp", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
                { "name": "scratch", "emptyDir": {} },
                { "name": "inline", "csi": { "driver": "secrets-store.csi.k8s.io" } }
            ] }
        }))
        .unwrap();
        let view = PodView::of(&pod, None);
        assert_eq!(view.claims, ["apps/data-db-0", "apps/db-0-tmp"]);
        assert_eq!(view.priority, 0);
    }
}
