//! The entry points of the fuzz targets; built with the feature `fuzz`, and for the tests that replay their corpora.

use std::time::Duration;

use ostler_proto::legacy::infra::{DriverSide, driver_side};
use ostler_proto::v1alpha1::{
    DeleteMachineRequest, GetMachineStatusRequest, ListMachinesRequest, ObjectRevision, Operation,
    Target, operation,
};
use ostler_sessions::ClassContent;
use prost::Message as _;

use crate::job::{Job, Next};
use crate::render;
use crate::window::ConsistencyWindow;

/// A byte that says which operation runs, and the frames of a driver of the first proposal, each behind its
/// length. No answer breaks the core.
pub fn driver_says(data: &[u8]) {
    let Some((what, mut data)) = data.split_first() else { return };
    let request = match what % 3 {
        0 => operation::Request::DeleteMachine(DeleteMachineRequest::default()),
        1 => operation::Request::GetMachineStatus(GetMachineStatusRequest::default()),
        _ => operation::Request::ListMachines(ListMachinesRequest::default()),
    };
    let target = Target { name: "m".to_owned(), uid: "uid".to_owned(), ..Target::default() };
    let operation =
        Operation { request: Some(request), target: Some(target), ..Operation::default() };
    let now = tokio::time::Instant::now();
    let mut window = ConsistencyWindow::new(now, Duration::from_mins(1));
    let Ok(mut job) = Job::begin(&operation, 100) else { return };
    while let [low, high, rest @ ..] = data {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        data = rest;
        let Ok(frame) = DriverSide::decode(frame) else { continue };
        let answer: Option<driver_side::Response> = frame.response;
        if let Next::Done(outcome) = job.answered(now, &mut window, answer) {
            drop(outcome);
            return;
        }
    }
}

/// The provider spec of a class, which a user of the cluster wrote, as drivers of the first proposal get it.
pub fn class_text(text: &str) {
    let content = ClassContent { provider_spec_json: text.to_owned(), ..ClassContent::default() };
    let Some(spec) = render::spec(&content) else { return };
    render::missing_tag(&spec);
    let Ok(kind) = "machine.sapcloud.io/v1alpha1/AWSMachineClass".parse() else { return };
    let rendered = render::class(&kind, &ObjectRevision::default(), true, spec);
    assert!(
        serde_json::from_str::<serde_json::Value>(&rendered).is_ok(),
        "it cannot be read again"
    );
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
    fn a_driver_of_the_first_proposal_that_answers_anything_does_not_break_the_core() {
        replay("legacy_hears", super::driver_says);
    }

    #[test]
    fn text_of_a_class_that_is_anything_is_refused_or_rendered() {
        replay("driver_text", |data| {
            if let Ok(text) = str::from_utf8(data) {
                super::class_text(text);
            }
        });
    }
}
