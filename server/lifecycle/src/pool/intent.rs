//! Requests to the driver of a pool, and the record before them.

use ostler_api::{
    machine::Retry,
    machine_pool::PoolIntent,
    operation::{PoolModel, PoolSize},
};

use super::{Facts, ask::Ask, bring::Bring, name::target_of};
use crate::{
    class_facts::ClassFacts,
    digest,
    operation::{Dispatch, Lane, Request},
};

/// `None`: what the group makes Nodes with is not there.
pub(super) fn request(facts: &Facts<'_>, ask: &Ask) -> Option<Request> {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    // For a restored pool, or a group not found: the last known group.
    let known = facts.standing.provider_id.as_ref();
    let provider_id =
        facts.reading.map(|it| &it.provider_id).or(known).cloned().unwrap_or_default();
    let model = || {
        Some(PoolModel {
            hash: facts.model.as_str().to_owned(),
            user_data: facts.data.as_ref().ok()?.clone(),
            zones: facts.snap.pool.spec.failure_domains.clone(),
        })
    };
    Some(match ask {
        Ask::Create { desired } => {
            Request::CreatePool { desired: number(*desired), model: model()?, provider_id }
        }
        Ask::Update { size, model: takes } => Request::UpdatePool {
            provider_id,
            size: size.map(|(expected, wanted)| PoolSize {
                expected: number(expected),
                wanted: number(wanted),
            }),
            model: if *takes { Some(model()?) } else { None },
        },
        Ask::Remove { ids, expected, new } => Request::DeletePoolMachines {
            provider_id,
            instances: ids.clone(),
            size: PoolSize { expected: number(*expected), wanted: number(*new) },
        },
        Ask::Bring(Bring { id, drained }) => Request::UpdatePoolMachine {
            provider_id,
            instance: id.clone(),
            model_hash: facts.model.as_str().to_owned(),
            drained: *drained,
        },
        Ask::Delete => Request::DeletePool { provider_id },
    })
}

/// The intent that is written down before the request is sent.
pub(super) fn intend(
    facts: &Facts<'_>,
    class: &ClassFacts,
    ask: &Ask,
    request: Request,
) -> (PoolIntent, Dispatch) {
    let snap = facts.snap;
    let kind = ask.kind();
    let pool = &snap.pool;
    let number = |count: usize| i32::try_from(count).ok();
    let (expected, new, ids) = match ask {
        Ask::Create { desired } => (None, number(*desired), Vec::new()),
        Ask::Update { size, .. } => {
            let (expected, new) = size.unzip();
            (expected.and_then(number), new.and_then(number), Vec::new())
        }
        Ask::Remove { ids, expected, new } => (number(*expected), number(*new), ids.clone()),
        Ask::Bring(bring) => (None, None, vec![bring.id.clone()]),
        Ask::Delete => (None, None, Vec::new()),
    };
    let dispatch =
        class.dispatch(snap.operation_id.clone(), target_of(pool), request, kind.usual_time());
    let dispatch =
        Dispatch { idempotency_key: key(pool.uid(), ask, facts), lane: Lane::User, ..dispatch };
    let of_this = |retry: &&Retry| {
        retry.kind == kind.into() && retry.provider_id.as_ref().is_none_or(|id| ids.contains(id))
    };
    let before = facts.standing.retries.iter().find(of_this);
    let attempt = before.map_or(1, |retry| retry.failures.saturating_add(1));
    let intent = class.intent(&dispatch, snap.term, attempt, snap.now);
    let model_hash = Some(facts.model.clone()).filter(|_| takes_model(ask));
    let user_data_hash = facts.user_data.clone().filter(|_| takes_user_data(ask));
    let intent = PoolIntent {
        intent,
        expected_size: expected,
        new_size: new,
        model_hash,
        user_data_hash,
        provider_ids: ids,
        drained: matches!(ask, Ask::Bring(Bring { drained: true, .. })),
        basis: facts.basis.rest.clone(),
    };
    (intent, dispatch)
}

const fn takes_model(ask: &Ask) -> bool {
    matches!(ask, Ask::Bring(_)) || takes_user_data(ask)
}

const fn takes_user_data(ask: &Ask) -> bool {
    matches!(ask, Ask::Create { .. } | Ask::Update { model: true, .. })
}

/// `<uid>:<verb>`, and where another content is another intent, its digest.
fn key(uid: &str, ask: &Ask, facts: &Facts<'_>) -> String {
    let letter = ask.kind().letter();
    match ask {
        Ask::Create { .. } | Ask::Delete => format!("{uid}:{letter}"),
        Ask::Update { .. } | Ask::Remove { .. } | Ask::Bring(_) => {
            let data = facts.user_data.as_ref().filter(|_| takes_user_data(ask));
            let content = digest::of_text(&format!("{ask:?} {} {data:?}", facts.model));
            format!("{uid}:{letter}:{content}")
        }
    }
}
