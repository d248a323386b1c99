//! The output of `up`: one line for each event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{Debug, Display};
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt as _};
use ostler_api::Machine;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::describe::time_of;
use crate::log;
use crate::progress::{self, Progress};

/// Two lines about rollouts that go on are at least so far apart.
const APART: Duration = Duration::from_secs(1);

/// So many machines that are gone are still known by name.
const GONE: usize = 1000;

/// An event that repeats for so long gets more than one line.
const LASTS: SignedDuration = SignedDuration::from_mins(1);

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

    /// Prints an event with its time.
    fn tell_of(self, time: Timestamp, what: impl Display) {
        if !self.quiet {
            let time = time.to_zoned(TimeZone::system());
            // Texts of drivers and nodes may have line breaks: each is printed as one line.
            log::say(format_args!("{} {what}", time.strftime("%H:%M:%S%.3f")));
        }
    }

    /// Tells what happens until `end`.
    pub(crate) async fn follow(self, client: Client, end: CancellationToken) {
        let members = Members::default();
        tokio::join!(
            members.follow(client.clone(), end.clone()),
            self.follow_events(client.clone(), &members, end.clone()),
            self.follow_progress(client.clone(), progress::of, end.clone()),
            self.follow_progress(client, progress::of_pool, end)
        );
    }

    /// Tells how far each deployment or pool is when that changes: its end always, and not more than one line in [`APART`].
    async fn follow_progress<K>(
        self,
        client: Client,
        of: fn(&K) -> Progress,
        end: CancellationToken,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let mut last = None::<Instant>;
        let kind = K::kind(&()).to_lowercase();
        let all = Api::<K>::all(client);
        let mut events = pin!(watcher(all, watcher::Config::default()).default_backoff());
        let mut told = BTreeMap::<(Option<String>, String), String>::new();
        loop {
            let next = tokio::select! {
                next = events.try_next() => next,
                () = end.cancelled() => return,
            };
            let key = |one: &K| (one.namespace(), one.name_any());
            match next {
                // Earlier states are no news.
                Ok(Some(watcher::Event::InitApply(one))) => {
                    told.insert(key(&one), of(&one).text().to_owned());
                }
                Ok(Some(watcher::Event::Apply(one))) => {
                    let progress = of(&one);
                    let text = progress.text();
                    let soon = last.is_some_and(|last| last.elapsed() < APART);
                    let skipped = matches!(progress, Progress::GoesOn(_)) && soon
                        || progress == Progress::Unseen
                        || told.get(&key(&one)).is_some_and(|told| told == text);
                    if !skipped {
                        told.insert(key(&one), text.to_owned());
                        last = Some(Instant::now());
                        self.tell(format_args!("{kind} {}: {text}", one.name_any()));
                    }
                }
                Ok(Some(watcher::Event::Delete(one))) => {
                    told.remove(&key(&one));
                    self.tell(format_args!("{kind} {}: deleted", one.name_any()));
                }
                Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
                Err(error) => tracing::debug!(kind, %error, "a watch was interrupted"),
                Ok(None) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// Prints each Event of the API server that is new since now; of many that say the same, how many they are.
    async fn follow_events(self, client: Client, members: &Members, end: CancellationToken) {
        let since = Timestamp::now();
        let events = watcher(Api::<Event>::all(client), watcher::Config::default())
            .default_backoff()
            .applied_objects();
        let mut events = pin!(events);
        let mut alike = Alike::default();
        let mut ticks = interval(APART);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = tokio::select! {
                next = events.try_next() => next,
                _ = ticks.tick() => {
                    alike.due(Instant::now()).into_iter().for_each(|line| self.tell(line));
                    continue;
                }
                () = end.cancelled() => return,
            };
            match next {
                Ok(Some(event)) => {
                    let at = time_of(&event).unwrap_or_else(Timestamp::now);
                    let old = at < since || is_late(&event) || members.tell_nothing_new(&event);
                    if !old && alike.is_first(&event, Instant::now()) {
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

/// Repetitions are written some seconds after they happened, when it may be over. Only what lasts is told again.
fn is_late(event: &Event) -> bool {
    let Some((began, last)) = event.event_time.as_ref().zip(event.series.as_ref()) else {
        return false;
    };
    last.last_observed_time.0.duration_since(began.0) < LASTS
}

/// The machines of sets and pools, by name. What goes as wanted with them is told by the progress of their deployment or pool: a rollout is
/// few lines, however many machines it has.
#[derive(Debug, Default)]
struct Members(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    known: BTreeSet<String>,
    /// Names of deleted machines, the latest at the end: their last events come later, and no other machine gets the name.
    gone: VecDeque<String>,
}

impl Names {
    fn see(&mut self, event: watcher::Event<PartialObjectMeta<Machine>>) {
        match event {
            watcher::Event::Init => *self = Self::default(),
            watcher::Event::InitApply(one) | watcher::Event::Apply(one) => {
                let is_owner = |kind: &str| matches!(kind, "MachineSet" | "MachinePool");
                let mut owners = one.metadata.owner_references.iter().flatten();
                if owners.any(|owner| is_owner(&owner.kind)) {
                    self.known.insert(one.name_any());
                }
            }
            watcher::Event::Delete(one) => {
                self.gone.push_back(one.name_any());
                if self.gone.len() > GONE
                    && let Some(oldest) = self.gone.pop_front()
                {
                    self.known.remove(&oldest);
                }
            }
            watcher::Event::InitDone => {}
        }
    }
}

impl Members {
    async fn follow(&self, client: Client, end: CancellationToken) {
        let all = Api::<PartialObjectMeta<Machine>>::all(client);
        let mut events = pin!(watcher(all, watcher::Config::default()).default_backoff());
        loop {
            let next = tokio::select! {
                next = events.try_next() => next,
                () = end.cancelled() => return,
            };
            match next {
                Ok(Some(event)) => self.0.lock().see(event),
                Err(error) => tracing::debug!(%error, "the watch on machines was interrupted"),
                Ok(None) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// Whether a rollout says it, or another event.
    fn tell_nothing_new(&self, event: &Event) -> bool {
        let regarding = event.regarding.as_ref();
        let is_warning = event.type_.as_deref() == Some("Warning");
        let reason = event.reason.as_deref().unwrap_or_default();
        match regarding.and_then(|object| object.kind.as_deref()) {
            Some("MachineSet" | "MachinePool") => {
                matches!(reason, "SuccessfulCreate" | "SuccessfulDelete")
            }
            Some("MachineDeployment") => reason == "ScalingMachineSet",
            // A Node has the name of its machine, which says the same.
            Some("Node") => matches!(reason, "DrainStarted" | "Drained"),
            Some("Machine") if !is_warning => {
                let name = regarding.and_then(|object| object.name.as_deref());
                name.is_some_and(|name| self.0.lock().known.contains(name))
            }
            _ => false,
        }
    }
}

/// Warnings of machines that say the same: the first is told, and then how many more there are.
#[derive(Debug, Default)]
struct Alike(BTreeMap<(String, String), Same>);

#[derive(Debug)]
struct Same {
    last: Instant,
    told: Instant,
    /// Machines whose warning was not told, and the last warning.
    machines: BTreeSet<String>,
    line: String,
}

/// After so long without a warning, the next is told by itself again.
const APPEASED: Duration = Duration::from_secs(30);
/// While more come, they are counted for so long.
const COUNTED: Duration = Duration::from_secs(5);
/// So many different warnings are remembered.
const MOST_ALIKE: usize = 1000;

impl Alike {
    /// Whether an event is told by itself.
    fn is_first(&mut self, event: &Event, now: Instant) -> bool {
        let regarding = event.regarding.as_ref();
        let is_machine = regarding.and_then(|it| it.kind.as_deref()) == Some("Machine");
        let name = regarding.and_then(|it| it.name.clone()).unwrap_or_default();
        if !is_machine || event.type_.as_deref() != Some("Warning") || name.is_empty() {
            return true;
        }
        self.0.retain(|_, it| !it.machines.is_empty() || now - it.last < APPEASED);
        // Warnings that differ only in the machine's name are the same.
        let note = event.note.as_deref().unwrap_or_default().replace(&name, "");
        let key = (event.reason.clone().unwrap_or_default(), note);
        if let Some(same) = self.0.get_mut(&key) {
            same.last = now;
            same.line = line(event);
            same.machines.insert(name);
            return false;
        }
        if self.0.len() < MOST_ALIKE {
            let (line, machines) = (String::new(), BTreeSet::new());
            self.0.insert(key, Same { last: now, told: now, machines, line });
        }
        true
    }

    /// The lines that are due for counted machines.
    fn due(&mut self, now: Instant) -> Vec<String> {
        let due = |it: &&mut Same| {
            !it.machines.is_empty() && (now - it.last >= APART || now - it.told >= COUNTED)
        };
        let tell = |it: &mut Same| {
            it.told = now;
            let said = it.line.split_once(": ").map(|(_, said)| said).unwrap_or_default();
            let text = match it.machines.len() {
                1 => it.line.clone(),
                more => format!("{more} more machines: {said}"),
            };
            it.machines.clear();
            text
        };
        self.0.values_mut().filter(due).map(tell).collect()
    }
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
    fn what_goes_as_wanted_in_a_rollout_is_left_to_its_progress() {
        let members = Members::default();
        members.0.lock().known.insert("of-a-set".to_owned());
        let skipped = |kind: &str, name: &str, type_: &str, reason: &str| {
            let regarding = json!({ "kind": kind, "name": name });
            let event =
                json!({ "metadata": {}, "type": type_, "reason": reason, "regarding": regarding });
            members.tell_nothing_new(&serde_json::from_value(event).unwrap())
        };
        for (kind, name, type_, reason, expected) in [
            ("MachineSet", "s", "Normal", "SuccessfulCreate", true),
            ("MachineSet", "s", "Warning", "FailedCreate", false),
            ("MachinePool", "p", "Normal", "SuccessfulDelete", true),
            ("MachinePool", "p", "Warning", "ReplicasReset", false),
            ("MachineDeployment", "d", "Normal", "ScalingMachineSet", true),
            ("MachineDeployment", "d", "Normal", "RollbackDone", false),
            ("Node", "of-a-set", "Normal", "Drained", true),
            ("Machine", "of-a-set", "Normal", "NodeJoined", true),
            ("Machine", "of-a-set", "Warning", "MachineFailed", false),
            ("Machine", "alone", "Normal", "NodeJoined", false),
        ] {
            assert_eq!(skipped(kind, name, type_, reason), expected, "{kind} {name} {reason}");
        }
    }

    #[test]
    fn one_problem_of_many_machines_is_told_once_and_then_counted() {
        let warning = |name: &str, note: &str| {
            let regarding = json!({ "kind": "Machine", "name": name });
            let event = json!({
                "metadata": {}, "type": "Warning", "reason": "InstanceCreateFailed", "note": note,
                "regarding": regarding
            });
            serde_json::from_value::<Event>(event).unwrap()
        };
        let (mut alike, begin) = (Alike::default(), Instant::now());
        assert!(alike.is_first(&warning("m-0", "no quota"), begin));
        assert!(alike.is_first(&warning("m-0", "no image"), begin), "another problem");
        for at in 1..52 {
            assert!(!alike.is_first(&warning(&format!("m-{at}"), "no quota"), begin));
        }
        assert!(alike.due(begin).is_empty(), "more may come");
        let told = alike.due(begin + APART);
        assert_eq!(told, ["51 more machines: ! InstanceCreateFailed no quota"]);
        assert!(!alike.is_first(&warning("m-7", "no quota"), begin + APART));
        let told = alike.due(begin + APART + COUNTED);
        assert_eq!(told, ["machine m-7: ! InstanceCreateFailed no quota"]);
        let later = begin + APART + COUNTED + APPEASED;
        assert!(alike.is_first(&warning("m-0", "no quota"), later));
    }

    #[test]
    fn names_of_machines_that_are_long_gone_are_forgotten() {
        let machine = |n: usize| {
            let owner =
                json!({ "apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "u" });
            let meta = json!({ "name": format!("m-{n}"), "ownerReferences": [owner] });
            serde_json::from_value(json!({ "metadata": meta })).unwrap()
        };
        let mut names = Names::default();
        for n in 0..3 * GONE {
            names.see(watcher::Event::Apply(machine(n)));
            names.see(watcher::Event::Delete(machine(n)));
        }
        assert!(names.known.contains(&format!("m-{}", 3 * GONE - 1)), "its last events come later");
        assert_eq!((names.known.len(), names.gone.len()), (GONE, GONE));
    }

    #[test]
    fn a_repetition_is_told_only_if_it_lasts() {
        let event = |last: Option<&str>| {
            let series = last.map(|at| json!({ "count": 2, "lastObservedTime": at }));
            let event = json!({
                "metadata": {}, "eventTime": "2026-01-01T12:00:00.000000Z", "series": series
            });
            is_late(&serde_json::from_value(event).unwrap())
        };
        assert!(!event(None));
        assert!(event(Some("2026-01-01T12:00:09.000000Z")));
        assert!(!event(Some("2026-01-01T12:01:00.000000Z")));
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
