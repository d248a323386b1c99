//! Revisions of rollouts: the revision of each set, the kept sets, and the rollback.

use ostler_api::bootstrap::Bootstrap;
use ostler_api::machine_set::MachineTemplateSpec;
use ostler_api::names::{annotation, label};
use ostler_api::{MachineDeployment, MachineSet};

use super::edit::{annotate, annotations_mut};
use crate::template_identity::identity;

/// The revision of a set; 0 if it has none.
pub fn of(set: &MachineSet) -> i64 {
    set.annotation(annotation::REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Gives the new set a revision above the old sets'. The previous revision goes to the set's history.
pub(super) fn number<'a>(new: &mut MachineSet, old: impl Iterator<Item = &'a MachineSet>) {
    let wanted = old.map(of).max().unwrap_or_default().saturating_add(1);
    let before = of(new);
    if before >= wanted {
        return;
    }
    if before > 0 {
        let history = new.annotation(annotation::REVISION_HISTORY).unwrap_or_default();
        let history = history.split(',').filter(|one| !one.is_empty()).map(str::to_owned);
        let history: Vec<_> = history.chain([before.to_string()]).collect();
        annotate(&mut new.metadata, annotation::REVISION_HISTORY, &history.join(","));
    }
    annotate(&mut new.metadata, annotation::REVISION, &wanted.to_string());
}

/// The old sets that are not kept: those beyond the limit, oldest revision first, if nothing is left of them.
/// `old` is oldest first.
pub fn superfluous<'a>(
    deployment: &MachineDeployment,
    old: &[&'a MachineSet],
) -> Vec<&'a MachineSet> {
    let limit = deployment.spec.revision_history_limit.and_then(|it| usize::try_from(it).ok());
    let Some(limit) = limit else { return Vec::new() };
    let mut kept: Vec<_> = old.iter().copied().filter(|set| !set.is_deleting()).collect();
    kept.sort_by_key(|set| of(set));
    kept.truncate(kept.len().saturating_sub(limit));
    kept.into_iter().filter(|set| is_spent(set)).collect()
}

fn is_spent(set: &MachineSet) -> bool {
    let status = set.status.as_ref();
    set.spec.replicas() == 0
        && status.is_some_and(|status| {
            status.replicas == 0 && status.observed_generation >= set.metadata.generation
        })
}

/// The result of a rollback.
#[derive(Debug, Clone, PartialEq)]
pub enum Rollback<'a> {
    /// There is no such revision.
    NotFound,
    /// The template already has this revision.
    Unchanged(&'a MachineSet),
    /// To the template of this set.
    To(&'a MachineSet),
}

/// Looks for the set of a revision; 0 is the revision before the newest.
pub fn find<'a>(
    deployment: &MachineDeployment,
    sets: &[&'a MachineSet],
    revision: i64,
) -> Rollback<'a> {
    let revision = if revision == 0 {
        let mut known: Vec<_> = sets.iter().map(|set| of(set)).filter(|it| *it > 0).collect();
        known.sort_unstable();
        known.dedup();
        known.iter().rev().nth(1).copied().unwrap_or(-1)
    } else {
        revision
    };
    match sets.iter().find(|set| of(set) == revision) {
        None => Rollback::NotFound,
        Some(set) if identity(&set.spec.template) == identity(&deployment.spec.template) => {
            Rollback::Unchanged(set)
        }
        Some(set) => Rollback::To(set),
    }
}

/// Takes template and annotations over from a set.
pub(super) fn go_back(deployment: &mut MachineDeployment, set: &MachineSet) {
    let before = std::mem::replace(&mut deployment.spec.template, without_hash(&set.spec.template));
    // The CRD refuses a write without these fields, since a client that does not know the fields would
    // drop them.
    let (before, now) = (before.spec, &mut deployment.spec.template.spec);
    now.version = now.version.take().or_else(|| before.version.map(|_| String::new()));
    now.bootstrap = now.bootstrap.take().or_else(|| before.bootstrap.map(|_| Bootstrap::default()));
    let of_set = set.metadata.annotations.iter().flatten();
    let annotations = annotations_mut(&mut deployment.metadata);
    annotations.retain(|key, _| super::edit::is_own(key));
    for (key, value) in of_set.filter(|(key, _)| !super::edit::is_own(key)) {
        annotations.insert(key.clone(), value.clone());
    }
}

fn without_hash(template: &MachineTemplateSpec) -> MachineTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|it| it.labels.as_mut()) {
        labels.remove(label::TEMPLATE_HASH);
    }
    template
}
