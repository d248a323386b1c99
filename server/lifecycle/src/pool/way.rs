//! How an instance of another model gets the current model: while running, in place once its Node is drained, or by
//! replacement. The driver knows the changes that a running instance can take: it is asked with the first instance of
//! each old model.

use ostler_api::{SpecDigest, machine_pool::PoolHotUpdate};

/// Most refusals that are remembered: old models that a group has at the same time.
const MOST_REFUSALS: usize = 10;

/// How an instance gets the current model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The instance has the wanted model.
    Current,
    /// The driver changes the running instance.
    Hot,
    /// The Node is drained, then the driver changes the instance.
    InPlace,
    /// The instance is replaced.
    Replace,
    /// Not at all: the strategy wants it changed in place, and the driver cannot.
    Stays,
}

/// The facts of an instance and its pool for the choice.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Situation<'a> {
    /// The current model.
    pub has: &'a SpecDigest,
    /// The wanted model.
    pub wanted: &'a SpecDigest,
    /// The instance may have a part of another model.
    pub unfinished: bool,
    /// The driver can change one instance.
    pub can_update: bool,
    /// The driver said that a running instance cannot get from the current model to the wanted one.
    pub refused: bool,
    /// A user or the pool asked for an update in place.
    pub asked: bool,
    /// The pool updates all instances in place.
    pub in_place: bool,
    /// The update failed, and the pool replaces such instances.
    pub given_up: bool,
}

/// How this instance gets the current model.
pub fn way(of: &Situation<'_>) -> Way {
    let is_current = of.has == of.wanted;
    let hot = of.can_update && !of.refused && differ_in_spec_alone(of.has, of.wanted);
    match (is_current, hot) {
        (true, false) => Way::Current,
        (true, true) if !of.unfinished => Way::Current,
        (_, true) => Way::Hot,
        (false, false) if of.given_up => Way::Replace,
        (false, false) if of.can_update && (of.asked || of.in_place) => Way::InPlace,
        (false, false) if of.in_place => Way::Stays,
        (false, false) => Way::Replace,
    }
}

/// The name of a model: what only a new instance has, and the provider spec, of which a running one may take a part.
pub(super) fn hash_of(fixed: &str, spec: &SpecDigest) -> SpecDigest {
    format!("{fixed}-{spec}").into()
}

/// Whether two models differ in nothing but the provider spec.
fn differ_in_spec_alone(one: &SpecDigest, other: &SpecDigest) -> bool {
    let fixed =
        |hash: &SpecDigest| hash.as_str().split_once('-').map(|(fixed, _)| fixed.to_owned());
    fixed(one).is_some_and(|it| Some(it) == fixed(other))
}

/// Whether the driver refused to bring a running instance of this model to the wanted one. After as many refusals as
/// are remembered, the driver is not asked about other models.
pub(super) fn is_refused(known: &PoolHotUpdate, from: &SpecDigest) -> bool {
    let is_other = known.model_hash.as_ref() != Some(from);
    known.refused.contains(from) || is_other && known.refused.len() >= MOST_REFUSALS
}

/// Refusals for another model, or by another driver, count no more. `driver`: `None` if none is there.
pub(super) fn forget_refusals(
    known: &mut PoolHotUpdate,
    wanted: &SpecDigest,
    driver: Option<&str>,
) {
    let same_driver = driver.is_none_or(|it| known.driver.as_deref() == Some(it));
    if known.model_hash.as_ref() != Some(wanted) || !same_driver {
        let unfinished = std::mem::take(&mut known.unfinished);
        *known = PoolHotUpdate { unfinished, ..PoolHotUpdate::default() };
    }
}

/// Records that a running instance of this model cannot get the wanted model.
pub(super) fn refuse(
    known: &mut PoolHotUpdate,
    (from, wanted): (SpecDigest, &SpecDigest),
    driver: Option<&str>,
    why: &str,
) {
    forget_refusals(known, wanted, driver);
    known.model_hash = Some(wanted.clone());
    known.driver = driver.map(ToOwned::to_owned);
    known.message = Some(why.to_owned());
    if !is_refused(known, &from) {
        known.refused.push(from);
    }
}
