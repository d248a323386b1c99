//! The group of a pool is gone, and is made again: at once the first time, then after the pauses of the retry table, until
//! one has been there for a while.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::Retry,
    machine_pool::MachinePoolStatus,
    operation::Reason,
};

use super::{
    Facts,
    group::{GroupView, Reading},
};
use crate::{
    numbered,
    retry::{is_over, pause_after, rule},
    time::after,
};

/// A group that exists for so long after the end of its wait ends the series of losses.
const STEADY: Duration = Duration::from_mins(10);

/// The known earlier losses. With a provider id: the group of this id is gone, and the next group was not seen yet.
pub(super) fn known(
    status: &MachinePoolStatus,
    reading: Option<&Reading>,
    now: Timestamp,
) -> Option<Retry> {
    let before = status.group_retry.clone()?;
    if reading.is_none() {
        return Some(before);
    }
    let until = before.not_before.as_ref().map(|until| after(until.0, STEADY));
    let steady = until.is_none_or(|until| is_over(until, now, Duration::ZERO));
    (!steady).then_some(Retry { provider_id: None, ..before })
}

/// Until when a group that is gone is not made again.
pub(super) fn waits(facts: &Facts<'_>) -> Option<Timestamp> {
    let retry = facts.group_retry.as_ref().filter(|it| it.provider_id.is_none())?;
    let until = retry.not_before.as_ref()?.0;
    (is_lost(facts) && !is_over(until, facts.snap.now, Duration::ZERO)).then_some(until)
}

/// The group is about to be made again: that is written down with the intent.
pub(super) fn make_again(facts: &mut Facts<'_>) {
    let before = facts.group_retry.as_ref();
    if !is_lost(facts) || before.is_some_and(|it| it.provider_id.is_some()) {
        return;
    }
    let failures = before.map_or(0, |it| it.failures).saturating_add(1);
    let kind = OperationKind::CreatePool;
    let (code, word) = (ErrorCode::NotFound, Reason::CoreLost.word());
    let now = facts.snap.now;
    facts.group_retry = Some(Retry {
        kind: kind.into(),
        code: code.name().to_owned(),
        reason: rule(kind, code, word, Certainty::NotApplied).reason,
        message: None,
        failures,
        since: before.and_then(|it| it.since.clone()).or(Some(Time(now))),
        not_before: Some(after(now, pause_after(failures.saturating_add(1))).into()),
        class_revision: None,
        secret_revision: None,
        driver_process: None,
        provider_id: facts.standing.provider_id.clone(),
    });
}

/// For people, while a group that is gone is not there again.
pub(super) fn message(facts: &Facts<'_>) -> Option<String> {
    let retry = facts.group_retry.as_ref().filter(|_| is_lost(facts))?;
    let again = numbered(retry.failures, "time");
    let until = waits(facts).map_or_else(String::new, |until| {
        let whole = Timestamp::from_second(until.as_second()).unwrap_or(until);
        format!(", and is at {whole}")
    });
    Some(format!(
        "the driver does not find the group any more; it was made again {again} before{until}"
    ))
}

/// There was a group, and the driver says that there is none.
fn is_lost(facts: &Facts<'_>) -> bool {
    facts.standing.provider_id.is_some() && matches!(facts.group, GroupView::Absent(_))
}
