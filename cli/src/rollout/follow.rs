//! A rollout is followed until it is complete: what changes is said, and why it stands where nothing does.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use ostler_controllers::status_of;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::kinds::Kind;
use crate::log;
use crate::output::Output;
use crate::progress::Progress;

/// After so long without a change it is looked for why it stands.
const LOOK: Duration = Duration::from_secs(3);
/// For so long a core that was not there may still come.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Why a rollout stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Why {
    /// The obstacle is unknown.
    #[default]
    Unknown,
    /// No core serves the namespace.
    Unserved(String),
    /// The wait that blocks most.
    Waits(String),
}

impl Why {
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Unserved(text) => Some(text.clone()),
            Self::Waits(text) => Some(format!("waits for: {text}")),
        }
    }
}

/// How far a rollout is now, and why it stands.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    pub(super) progress: &'a Progress,
    pub(super) why: &'a Why,
}

impl Change<'_> {
    /// Prints the progress, except a failure, which people read in the error afterwards.
    pub(super) fn tell(&self, output: Output) -> anyhow::Result<()> {
        let Change { kind, name, progress, why } = self;
        if output == Output::Text {
            if !matches!(progress, Progress::Failed(_)) {
                log::say(progress.text());
            }
            why.text().into_iter().for_each(log::say);
            return Ok(());
        }
        let data = json!({
            "kind": kind.resource().kind, "name": name, "state": progress.state(),
            "message": progress.text(), "why": why.text()
        });
        if output == Output::Json {
            // Scripts read one JSON object a line.
            log::say(data);
            return Ok(());
        }
        log::say("---");
        output.print("", &data)
    }
}

/// Says what changes, until the rollout is complete or its object is gone; and where nothing does, why, as `why` finds out.
pub(super) async fn follow<K: Debug>(
    (kind, name): (Kind, &str),
    output: Output,
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    of: fn(&K) -> Progress,
    why: impl AsyncFn() -> Why,
) -> anyhow::Result<()> {
    let (mut events, mut there, mut alone) = (pin!(events), false, Alone::default());
    let (mut last, mut stands) = (Progress::Unseen, Why::Unknown);
    let mut said = None;
    let singular = kind.singular();
    loop {
        let Ok(event) = timeout(LOOK, events.next()).await else {
            let now = why().await;
            if now != stands && now != Why::Unknown {
                match output {
                    Output::Text => now.text().into_iter().for_each(log::say),
                    Output::Json | Output::Yaml => {
                        Change { kind, name, progress: &last, why: &now }.tell(output)?;
                    }
                }
            }
            alone.note(&now)?;
            stands = now;
            continue;
        };
        let Some(event) = event else { bail!("the watch ended") };
        let object = match event {
            Ok(Event::InitApply(object) | Event::Apply(object)) => object,
            Ok(Event::Init) => {
                there = false;
                continue;
            }
            Ok(Event::InitDone) if there => continue,
            Ok(Event::InitDone | Event::Delete(_)) => bail!("{singular} {name} was deleted"),
            Err(error) => {
                if status_of(&error).is_some_and(|it| [401, 403, 404].contains(&it.code)) {
                    return Err(error)
                        .with_context(|| format!("{singular} {name} cannot be watched"));
                }
                // The watcher backs off and goes on by itself.
                tracing::warn!(%error, "the watch was interrupted; trying again");
                continue;
            }
        };
        there = true;
        last = of(&object);
        if said.as_deref() != Some(last.text()) {
            Change { kind, name, progress: &last, why: &Why::Unknown }.tell(output)?;
            said = Some(last.text().to_owned());
        }
        match &last {
            Progress::Complete(_) => return Ok(()),
            Progress::Failed(why) => bail!("{why}"),
            Progress::Unseen | Progress::GoesOn(_) => {}
        }
    }
}

/// Whether there is no core that would go on with a rollout.
#[derive(Debug, Default)]
struct Alone {
    since: Option<Instant>,
}

impl Alone {
    /// Gives up after a while without a core: one that is replaced comes back.
    fn note(&mut self, why: &Why) -> anyhow::Result<()> {
        let Why::Unserved(why) = why else {
            self.since = None;
            return Ok(());
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= GIVE_UP {
            bail!("{why}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ostler_api::MachineDeployment;
    use serde_json::Value;

    use super::*;
    use crate::progress;

    fn deployment(spec: &Value, status: &Value) -> MachineDeployment {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "generation": 2 }, "spec": spec, "status": status
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_rollout_is_followed_over_a_broken_watch_until_it_is_complete_gone_or_refused() {
        let goes_on = || deployment(&json!({ "replicas": 1 }), &json!({}));
        let done = json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1 });
        let done = || deployment(&json!({ "replicas": 1 }), &done);
        let failed = |code: u16| {
            let status =
                json!({ "status": "Failure", "code": code, "message": "no", "reason": "" });
            Err(watcher::Error::WatchError(serde_json::from_value(status).unwrap()))
        };
        let begins = || [Ok(Event::Init), Ok(Event::InitApply(goes_on())), Ok(Event::InitDone)];
        for (then, expected) in [
            (vec![failed(410), failed(500), Ok(Event::Apply(done()))], None),
            (vec![Ok(Event::Delete(goes_on()))], Some("machinedeployment a was deleted")),
            (vec![Ok(Event::Init), Ok(Event::InitDone)], Some("machinedeployment a was deleted")),
            (vec![failed(403)], Some("machinedeployment a cannot be watched")),
        ] {
            let events = begins().into_iter().chain(then);
            let events = futures::stream::iter(events);
            let (target, output) = ((Kind::Deployment, "a"), Output::Text);
            let ended = follow(target, output, events, progress::of, async || Why::Unknown).await;
            assert_eq!(ended.err().map(|error| error.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn that_no_core_goes_on_with_a_rollout_is_said_and_after_a_while_an_error() {
        let mut alone = Alone::default();
        let why = Why::Unserved("no core serves namespace shop".to_owned());
        alone.note(&why).unwrap();
        let since = alone.since.unwrap();
        alone.note(&why).unwrap();
        assert_eq!(alone.since, Some(since), "it is not forgotten");
        alone.note(&Why::Unknown).unwrap();
        assert_eq!(alone.since, None, "a core came back");
        alone.since = Instant::now().checked_sub(GIVE_UP);
        let given_up = alone.note(&why).unwrap_err().to_string();
        assert_eq!(given_up, "no core serves namespace shop");
    }
}
