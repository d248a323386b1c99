//! The Machines that an autoscaler chose to go.

use jiff::Timestamp;
use ostler_api::Machine;

/// Whether an autoscaler chose a Machine by the list of `name~time`: a later Machine of the same name is another
/// Machine.
pub fn is_chosen(machine: &Machine, list: &str) -> bool {
    let born = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
    entries(list).any(|(name, time)| {
        name == machine.name()
            && time.parse::<Timestamp>().is_ok_and(|time| born.is_none_or(|born| born <= time))
    })
}

/// The names and times of such a list.
pub(super) fn entries(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.split(',').filter_map(|entry| entry.trim().split_once('~'))
}
