//! A deleted Machine: its events, as long as the API keeps events.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use ostler_api::Machine;
use serde_json::json;

use super::found::Found;
use super::read;
use super::sheet::{Page, event_lines};

/// More than of one that is there: nothing else is left.
const MOST: usize = 50;

/// The last events of a deleted Machine.
///
/// # Errors
/// Nothing is.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Found> {
    let all = Api::<Event>::namespaced(client.clone(), namespace);
    let all = all.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let events = about(all, name);
    if events.is_empty() {
        return Err(read::absent::<Machine>(namespace, name));
    }
    let data = json!({
        "object": { "kind": "Machine", "metadata": { "namespace": namespace, "name": name } },
        "gone": true, "events": &events
    });
    Ok(Found { page: page(&events, namespace, name, now), data })
}

/// The last events about a machine, and those of others that name it, oldest first.
fn about(mut events: Vec<Event>, name: &str) -> Vec<Event> {
    let is_of = |event: &Event| {
        event.regarding.as_ref().is_some_and(|it| {
            it.kind.as_deref() == Some("Machine") && it.name.as_deref() == Some(name)
        })
    };
    if !events.iter().any(is_of) {
        return Vec::new();
    }
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '.';
    let names = |event: &Event| {
        let note = event.note.as_deref().unwrap_or_default();
        note.split(|letter| !is_word(letter)).any(|word| word.trim_end_matches('.') == name)
    };
    events.retain(|event| is_of(event) || names(event));
    events.sort_by_key(super::time_of);
    events.drain(..events.len().saturating_sub(MOST));
    events
}

fn page(events: &[Event], namespace: &str, name: &str, now: Timestamp) -> String {
    let mut page = Page::wide();
    page.line("Machine", &format!("{namespace}/{name}, gone"));
    page.line("Told by", "its events, which the API keeps for an hour");
    event_lines(&mut page, events, now);
    page.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_gone_is_told_from_its_events_and_from_those_that_name_it() {
        let event = |kind: &str, name: &str, at: u32, reason: &str, note: &str| {
            let event = json!({
                "metadata": { "name": "e" }, "reason": reason, "note": note,
                "eventTime": format!("2026-01-01T11:00:{at:02}.000000Z"),
                "regarding": { "kind": kind, "name": name }
            });
            serde_json::from_value::<Event>(event).unwrap()
        };
        let all = vec![
            event("MachineSet", "s", 3, "SuccessfulDelete", "deleted machine m-1: it is Failed"),
            event("Machine", "m-1", 2, "MachineFailed", "no heartbeat"),
            event("Machine", "m-10", 1, "MachineFailed", "no heartbeat"),
            event("MachineSet", "s", 4, "SuccessfulCreate", "created machine m-10"),
        ];
        let told = about(all.clone(), "m-1");
        let page = page(&told, "default", "m-1", "2026-01-01T12:00:00Z".parse().unwrap());
        let reasons: Vec<_> = told.iter().filter_map(|it| it.reason.clone()).collect();
        assert_eq!(reasons, ["MachineFailed", "SuccessfulDelete"]);
        assert!(page.starts_with("Machine            default/m-1, gone\n"), "{page}");
        assert!(about(all, "s").is_empty(), "no machine had that name");
    }
}
