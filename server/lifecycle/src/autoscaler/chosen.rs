//! Which Machines an autoscaler chose to go.

use jiff::Timestamp;
use ostler_api::Machine;

/// Whether an autoscaler chose a Machine by this list of `name~time`: a later one of that name is another one.
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
