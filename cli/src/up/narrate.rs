//! What `up` prints: one line for each thing that happens.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use ostler_api::MachineDeployment;
use tokio_util::sync::CancellationToken;

use crate::describe::time_of;
use crate::log;
use crate::rollout::progress;

/// Tells the story on stdout, each line with its time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Story {
    quiet: bool,
}

impl Story {
    /// A story that is not printed.
    pub(crate) fn quiet() -> Self {
        Self { quiet: true }
    }

    pub(crate) fn tell(self, what: impl Display) {
        self.tell_of(Timestamp::now(), what);
    }

    /// Tells what happened at that time.
    fn tell_of(self, time: Timestamp, what: impl Display) {
        if !self.quiet {
            let time = time.to_zoned(TimeZone::system());
            // One line whatever is in it: what drivers and nodes say is told, too.
            log::say(format_args!("{} {what}", time.strftime("%H:%M:%S%.3f")));
        }
    }

    /// Tells what happens until `end`.
    pub(crate) async fn follow(self, client: Client, end: CancellationToken) {
        tokio::join!(
            self.follow_events(client.clone(), end.clone()),
            self.follow_rollouts(client, end)
        );
    }

    /// Tells how far each rollout is, whenever that changes.
    async fn follow_rollouts(self, client: Client, end: CancellationToken) {
        let all = Api::<MachineDeployment>::all(client);
        let mut events = pin!(watcher(all, watcher::Config::default()).default_backoff());
        let mut told = BTreeMap::<(Option<String>, Option<String>), String>::new();
        loop {
            let next = tokio::select! {
                next = events.try_next() => next,
                () = end.cancelled() => return,
            };
            let key = |one: &MachineDeployment| {
                (one.metadata.namespace.clone(), one.metadata.name.clone())
            };
            match next {
                // What was before is no news.
                Ok(Some(watcher::Event::InitApply(one))) => {
                    told.insert(key(&one), progress::of(&one).text().to_owned());
                }
                Ok(Some(watcher::Event::Apply(one))) => {
                    let text = progress::of(&one).text().to_owned();
                    if one.status.is_some()
                        && told.insert(key(&one), text.clone()).as_ref() != Some(&text)
                    {
                        self.tell(format_args!("machinedeployment {}: {text}", one.name()));
                    }
                }
                Ok(Some(watcher::Event::Delete(one))) => drop(told.remove(&key(&one))),
                Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
                Err(error) => tracing::debug!(%error, "the watch on deployments was interrupted"),
                Ok(None) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// Prints each Event of the API server that is new since now.
    async fn follow_events(self, client: Client, end: CancellationToken) {
        let since = Timestamp::now();
        let events = watcher(Api::<Event>::all(client), watcher::Config::default())
            .default_backoff()
            .applied_objects();
        let mut events = pin!(events);
        loop {
            let next = tokio::select! {
                next = events.try_next() => next,
                () = end.cancelled() => return,
            };
            match next {
                Ok(Some(event)) => {
                    // A repetition is written some seconds after it happened.
                    let at = time_of(&event).unwrap_or_else(Timestamp::now);
                    if at >= since && !is_told_by_a_machine(&event) {
                        self.tell_of(at, line(&event));
                    }
                }
                // The watcher backs off and goes on by itself.
                Err(error) => tracing::debug!(%error, "the watch on events was interrupted"),
                Ok(None) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

/// What a set says of one of its machines, which says the same itself: a rollout is few lines.
fn is_told_by_a_machine(event: &Event) -> bool {
    let kind = event.regarding.as_ref().and_then(|object| object.kind.as_deref());
    let reason = event.reason.as_deref();
    kind == Some("MachineSet") && matches!(reason, Some("SuccessfulCreate" | "SuccessfulDelete"))
}

fn line(event: &Event) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let object = event.regarding.as_ref().map_or_else(String::new, |object| {
        format!("{} {}", text(&object.kind).to_lowercase(), text(&object.name))
    });
    let again =
        event.series.as_ref().map_or_else(String::new, |series| format!(" (x{})", series.count));
    let mark = if event.type_.as_deref() == Some("Warning") { "! " } else { "" };
    format!("{object}: {mark}{} {}{again}", text(&event.reason), text(&event.note))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::terminal::{
        self,
        tests::{HOSTILE, assert_harmless},
    };

    #[test]
    fn what_a_set_says_of_a_machine_is_left_to_the_machine() {
        let said = |kind: &str, reason: &str| {
            let event = json!({ "metadata": {}, "reason": reason, "regarding": { "kind": kind } });
            is_told_by_a_machine(&serde_json::from_value(event).unwrap())
        };
        assert!(said("MachineSet", "SuccessfulCreate") && said("MachineSet", "SuccessfulDelete"));
        assert!(!said("MachineSet", "FrozeMachineSet") && !said("MachineSet", "FailedCreate"));
        assert!(!said("Machine", "SuccessfulCreate"));
    }

    #[test]
    fn an_event_of_a_node_is_one_line_whatever_is_in_it() {
        let event = serde_json::from_value(json!({
            "metadata": { "name": "e" }, "type": "Warning", "reason": HOSTILE, "note": HOSTILE,
            "regarding": { "kind": "Machine", "name": HOSTILE }
        }));
        let shown = terminal::line(&line(&event.unwrap()));
        assert_harmless(&shown);
        assert!(shown.matches("PWNED-TITLE").count() == 3 && shown.lines().count() == 1, "{shown}");
    }
}
