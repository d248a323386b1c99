//! The way of an operation through the suite to its cloud, where one of its requests meets a fault.

use std::sync::Arc;
use std::time::Duration;

use ostler_proto::v1alpha1::Operation;

use crate::answer::Answer;
use crate::bench::Bench;
use crate::checks::secret::canaries;
use crate::cloud::{Cloud, Fault, Seen};
use crate::driver::Driver;
use crate::machine::{again, in_time, list, title};
use crate::outcome::{Outcome, ensure};

/// For an operation beside what it took without a fault.
const TIME: Duration = Duration::from_secs(5);
/// The same if an answer never comes: the operation has to end by then.
const SHORT: Duration = Duration::from_secs(1);
/// For the way: an adapter ends an operation 10 s after its time, and the driver works on.
const LATE: Duration = Duration::from_secs(5);

/// Of an outage of a second; a library that pauses makes a dozen.
const MOST_REPEATED: usize = 50;

/// The request that meets a fault, and the fault.
pub(super) type Plan = Option<(usize, Fault)>;

/// A driver, and the suite before its cloud.
pub(super) struct Way<'a> {
    pub(super) bench: &'a Bench,
    pub(super) driver: Driver<'a>,
    cloud: Arc<Cloud>,
    /// How long the operation took without a fault.
    took: Duration,
    /// So many requests it made.
    asked: usize,
}

impl<'a> Way<'a> {
    pub(super) async fn open(bench: &'a Bench) -> Outcome<Self> {
        let (driver, cloud) = (bench.connect().await?, bench.cloud()?);
        Ok(Self { bench, driver, cloud, took: Duration::ZERO, asked: 0 })
    }

    /// Sends an operation for the object of this UID. Without a fault it must succeed.
    pub(super) async fn send(
        &mut self,
        operation: Operation,
        uid: &str,
        plan: Plan,
    ) -> Outcome<(Answer, Seen)> {
        let hangs = matches!(plan, Some((_, Fault::Hang)));
        let time = self.took * 2 + self.bench.scaled(if hangs { SHORT } else { TIME });
        self.bench.step(match plan {
            Some((at, fault)) => format!("the cloud will answer request {at} with: {fault}"),
            None => "the cloud answers".to_owned(),
        });
        // The request before it was lost, and searches show what was there when it began.
        let staged = plan.map(|(at, it)| (at, if it == Fault::Stale { Fault::Lost } else { it }));
        self.cloud.begin(staged).await?;
        let lags = matches!(plan, Some((_, Fault::Stale)));
        if lags {
            self.cloud.stale(self.bench.options().faults.list_lag.unwrap_or_default());
        }
        let repeated = lags.then(|| again(&operation));
        let named = title(&operation);
        let sent = if plan.is_some() { in_time(operation, time) } else { operation };
        let answer = self.driver.ask_once(sent).await;
        let repeated = match repeated {
            Some(operation) => Some(self.driver.ask(operation).await),
            None => None,
        };
        let seen = self.cloud.end().await?;
        let answer = answer?;
        repeated.transpose()?;
        if plan.is_none() {
            answer.result()?;
            self.took = answer.took;
            let count = seen.requests.len();
            self.asked = count;
            self.bench.step(format_args!("{named} made {count} requests to the cloud"));
            return Ok((answer, seen));
        }
        let (asked, most) = (seen.requests.len(), self.asked + MOST_REPEATED);
        let expected = format!("pauses between requests that are repeated, {most} at most");
        ensure(asked <= most, expected, format_args!("{asked} requests"))?;
        let late = format!("an answer within {:?}, which is its time and {LATE:?}", time + LATE);
        ensure(!hangs || answer.took <= time + LATE, late, format_args!("{:?}", answer.took))?;
        self.hides_secrets(uid, &answer)?;
        Ok((answer, seen))
    }

    fn hides_secrets(&self, uid: &str, answer: &Answer) -> Outcome {
        let secrets: Vec<_> = self.bench.options().secret.iter().map(|it| &it.data).collect();
        let said = format!("{:?} {}", answer.completed.outcome, answer.completed.checkpoint);
        for (what, canary) in canaries(&secrets, uid) {
            let expected = "an answer without credentials and user data";
            ensure(!said.contains(&canary), expected, format_args!("{what} in it"))?;
        }
        Ok(())
    }

    /// Nothing that was made for this UID is in the cloud: as the probe shows, or else as the driver lists its parts.
    pub(super) async fn nothing_left(&self, uid: &str, expected: &str) -> Outcome {
        let shown = match self.bench.probe() {
            Ok(probe) => probe.resources_of(uid).await.ok(),
            Err(_) => None,
        };
        let names: Vec<String> = if let Some(left) = shown {
            left.iter().map(|it| format!("{} {}", it.kind, it.id)).collect()
        } else {
            let list = list(&self.bench.class(), self.bench.cluster_id());
            let parts = self.driver.ask(list).await?.parts()?;
            let left = parts.iter().filter(|it| it.machine_uid == uid);
            left.map(|it| format!("{} {}", it.kind, it.id)).collect()
        };
        ensure(names.is_empty(), expected, names.join(", "))
    }
}

/// 404 to a request that names the thing says what a cloud says that has none.
pub(super) fn is_of(fault: Fault, seen: &Seen, ids: &[&str]) -> bool {
    let last = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
    let names =
        |line: &str| ids.iter().map(|id| last(id)).any(|id| !id.is_empty() && line.contains(&id));
    fault == Fault::Refused(404)
        && ids.iter().any(|id| !id.is_empty())
        && seen.hit.as_ref().is_none_or(|line| names(line))
}
