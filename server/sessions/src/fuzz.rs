//! The entry points of the fuzz targets; built with the feature `fuzz`, and for the tests that replay their corpora.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use ostler_api::operation::{Dispatch, Lane, Request, Target};
use ostler_api::{OperationId, ProviderId};
use ostler_proto::v1alpha1::RegisterRequest;
use prost::Message as _;
use tokio::time::Instant;

use crate::hub::{Effect, Hub, Owner};
use crate::record::Records;
use crate::{Principal, Providers, SessionsOptions, Term, convert};

/// Streams that drivers may have open at the same time.
const STREAMS: usize = 4;

/// A step is a byte that says what happens, a byte that says to whom, two bytes that are the length of a
/// frame, and the frame of a driver. No frame breaks the core, whatever came before it, and nothing grows
/// past its limits.
pub fn core_hears(mut data: &[u8]) {
    let mut hub = Hub::new(SessionsOptions::default(), Records::new(|_| None));
    let mut now = Instant::now();
    hub.lead(now, Term(1));
    let mut streams = BTreeMap::new();
    let mut effects = Vec::new();
    let mut next = 0_u32;
    while let [what, whom, low, high, rest @ ..] = data {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        data = rest;
        let slot = usize::from(*whom) % STREAMS;
        match what % 10 {
            0 => {
                if let Some(key) = streams.remove(&slot) {
                    hub.ended(now, key);
                }
            }
            1 => now += Duration::from_secs(u64::from(*whom)),
            2..=4 => {
                next += 1;
                let order = convert::order(dispatch(next, *what, *whom), "fuzz");
                drop(hub.submit(now, order, Owner::Target));
            }
            5 => hub.cancel(now, &id(u32::from(*whom) % (next + 1)), "fuzz"),
            6 => hub.acknowledge(now, &id(u32::from(*whom) % (next + 1))),
            _ => {}
        }
        let stream = match streams.entry(slot) {
            Entry::Occupied(open) => Some(*open.get()),
            Entry::Vacant(free) => {
                let principal = Principal::new(format!("fuzz-{slot}"), Providers::Any);
                hub.open(now, principal, String::new()).ok().map(|key| *free.insert(key))
            }
        };
        if let (Some(key), Ok(frame)) = (stream, RegisterRequest::decode(frame)) {
            hub.frame(now, key, frame.frame);
        }
        hub.expire(now);
        drop(hub.take_later());
        hub.swap_effects(&mut effects);
        for effect in effects.drain(..) {
            if let Effect::Close(closed, _) = effect {
                streams.retain(|_, key| *key != closed);
            }
        }
    }
}

fn id(number: u32) -> OperationId {
    format!("operation-{number}").into()
}

fn dispatch(number: u32, what: u8, whom: u8) -> Dispatch {
    let provider_id = ProviderId::default();
    let request = match what % 3 {
        0 => Request::Delete { provider_id },
        1 => Request::Status { provider_id },
        _ => Request::List,
    };
    Dispatch {
        provider: "fuzz.ostler.dev".into(),
        id: id(number),
        idempotency_key: format!("{whom}:f"),
        target: Target { uid: format!("uid-{}", whom % 8).into(), ..<_>::default() },
        class: None,
        request,
        timeout: Duration::from_mins(1),
        checkpoint: String::new(),
        adopt_by_name: false,
        machine: None,
        lane: Lane::User,
    }
}

/// A client certificate, as DER.
pub fn certificate(data: &[u8]) {
    crate::listen::fuzz(data);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Gives a target each input of its committed corpus.
    fn replay(corpus: &str, target: impl Fn(&[u8])) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let inputs: Vec<_> = std::fs::read_dir(root.join(corpus)).unwrap().collect();
        assert!(!inputs.is_empty(), "{corpus}");
        for input in inputs {
            target(&std::fs::read(input.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn drivers_that_say_anything_do_not_break_the_core() {
        replay("core_hears", super::core_hears);
    }

    #[test]
    fn a_certificate_that_is_anything_is_refused_or_read() {
        replay("certificate", super::certificate);
    }
}
