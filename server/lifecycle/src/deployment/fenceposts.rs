//! How many Machines a rollout may have beyond `replicas`, and how many may be missing.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::machine_deployment::{
    MachineDeploymentSpec, MachineDeploymentStrategy, OrchestrationType, StrategyType,
};

/// The limits of a rollout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fenceposts {
    /// Beyond `replicas`.
    pub surge: i32,
    /// Missing of `replicas`.
    pub unavailable: i32,
}

/// The numbers as the user wrote them, and whether a user chooses the updates.
pub(super) fn written(
    strategy: &MachineDeploymentStrategy,
) -> Option<(Option<&IntOrString>, Option<&IntOrString>)> {
    match strategy.type_.as_ref()? {
        StrategyType::RollingUpdate => {
            let block = strategy.rolling_update.as_ref()?;
            Some((block.max_surge.as_ref(), block.max_unavailable.as_ref()))
        }
        StrategyType::InPlaceUpdate => {
            let block = strategy.in_place_update.as_ref()?;
            Some((block.max_surge.as_ref(), block.max_unavailable.as_ref()))
        }
        StrategyType::Recreate | StrategyType::Other(_) => None,
    }
}

/// A number, or a percentage of `replicas`; `None` if it is neither, or negative.
pub(crate) fn resolve(value: &IntOrString, replicas: i32, up: bool) -> Option<i32> {
    let found = match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let of = percent.checked_mul(i64::from(replicas))?;
            let rounded = if up { of.checked_add(99)? } else { of };
            i32::try_from(rounded.div_euclid(100)).ok()?
        }
    };
    (found >= 0).then_some(found)
}

/// The limits of `spec`. A surge is rounded up, the unavailable number down; either is at least 1, or nothing could
/// ever be replaced.
pub fn of(spec: &MachineDeploymentSpec) -> Fenceposts {
    let Some((_, unavailable)) = written(&spec.strategy) else { return Fenceposts::default() };
    let surge = if is_manual(spec) { 0 } else { surge(spec) };
    let unavailable = unavailable.and_then(|value| resolve(value, spec.replicas(), false));
    let unavailable = unavailable.unwrap_or_default().max(i32::from(surge == 0));
    Fenceposts { surge, unavailable: unavailable.min(spec.replicas()) }
}

/// The surge as it is written. A freeze allows it also where users select Nodes, as with machine-controller-manager: an
/// update that was not theirs may have made it before. Replicas and surge together are a number: a sum that wraps would
/// scale in.
pub fn surge(spec: &MachineDeploymentSpec) -> i32 {
    let surge = written(&spec.strategy).and_then(|(surge, _)| surge);
    let surge = surge.and_then(|value| resolve(value, spec.replicas(), true)).unwrap_or_default();
    surge.min(i32::MAX.saturating_sub(spec.replicas()))
}

/// Whether a user chooses the Nodes that are updated in place: then nothing is created for it.
pub fn is_manual(spec: &MachineDeploymentSpec) -> bool {
    let block = spec.strategy.in_place_update.as_ref();
    spec.strategy.type_ == Some(StrategyType::InPlaceUpdate)
        && block.and_then(|block| block.orchestration_type.as_ref())
            == Some(&OrchestrationType::Manual)
}
