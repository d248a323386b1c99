//! What the fuzz target drives; built with the feature `fuzz`, and for the tests that replay their corpora.

use std::time::{Duration, SystemTime};

use ostler_proto::v1alpha1::RegisterResponse;
use prost::Message as _;
use tokio::time::Instant;

use super::hello::Instance;
use super::protocol::Protocol;
use crate::driver::DriverInfo;

/// Frames of a core; before each frame, a byte says what happens first, and two bytes give its length. No frame breaks
/// the driver, whatever came before.
pub fn driver_hears(mut data: &[u8]) {
    let info = DriverInfo::new("fuzz.ostler.dev").max_in_flight(4);
    let instance = Instance { id: "fuzz".to_owned(), name: String::new() };
    let mut protocol = Protocol::new(info, instance, Vec::new());
    let mut now = Instant::now();
    drop(protocol.hello(SystemTime::UNIX_EPOCH));
    while let [what, low, high, rest @ ..] = data {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        data = rest;
        match what % 8 {
            0 => {
                protocol.on_disconnected();
                drop(protocol.hello(SystemTime::UNIX_EPOCH));
            }
            1 => now += Duration::from_secs(u64::from(*what)),
            2 => drop(protocol.drain(Duration::from_secs(1))),
            3 => drop(protocol.accept_running(now)),
            _ => {}
        }
        let Ok(response) = RegisterResponse::decode(frame) else { continue };
        drop(protocol.on_frame(response.frame, now));
        assert!(protocol.running().len() <= 4, "more operations run than were agreed");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Gives a target each input of its committed corpus.
    fn replay(corpus: &str, target: impl Fn(&[u8])) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        let inputs: Vec<_> = std::fs::read_dir(root.join(corpus)).unwrap().collect();
        assert!(!inputs.is_empty(), "{corpus}");
        for input in inputs {
            target(&std::fs::read(input.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn a_core_that_says_anything_does_not_break_a_driver() {
        replay("driver_hears", super::driver_hears);
    }
}
