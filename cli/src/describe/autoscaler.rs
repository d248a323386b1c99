//! What an autoscaler may do with a deployment or pool, and what it did last.

use ostler_api::names::annotation::{LAST_SCALING, REPLICAS_CHANGED_BY_SCALER};
use ostler_lifecycle::autoscaler::group::Group;
use ostler_lifecycle::autoscaler::limits::limits;

use super::sheet::Page;

/// One line for the limits and one for the last decision, as far as there are any.
pub(super) fn lines(page: &mut Page, group: &Group) {
    let may = match (limits(group.meta()), group.limits()) {
        (Err(why), _) => Some(why),
        (Ok(Some(limits)), Some(_)) => Some(format!("{} to {} machines", limits.min, limits.max)),
        (Ok(Some(limits)), None) => Some(format!(
            "{} to {} machines, but it is deleted, paused, or scaled by another system",
            limits.min, limits.max
        )),
        (Ok(None), _) => None,
    };
    if let Some(may) = may {
        page.line("Autoscaler", &may);
    }
    // Others than cluster-autoscaler with externalgrpc write no more than the time.
    let last = group.annotation(LAST_SCALING);
    let marked = || {
        let at = group.annotation(REPLICAS_CHANGED_BY_SCALER)?;
        Some(format!("{at} chose machines for deletion"))
    };
    if let Some(last) = last.map(str::to_owned).or_else(marked) {
        page.line("Last scaled", &last);
    }
}
