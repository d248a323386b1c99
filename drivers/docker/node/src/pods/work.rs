//! The loop that runs pods: sees what is wanted, does what was decided, waits for processes, tells the API.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as Object;
use kube::Api;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use ostler_kubelet::KubeletApi;
use tokio::signal::unix::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::decide::{Goal, Step, decide, is_still};
use super::log::LogTask;
use super::process;
use super::report::{self, Answer, ReportState};
use super::spec::PodSpec;
use super::state::{Exit, Now, Over, PodState, has_room};
use super::status::status;
use crate::identity::Clients;
use crate::node::own_address;

/// Grace of a pod that was taken from the API without being asked to end.
const TAKEN_AWAY: Duration = Duration::from_secs(2);
/// Beyond the grace of the last pod, for processes that take their time to die and for the last report.
const SLACK: Duration = Duration::from_secs(1);

/// The parts that the work needs.
pub(crate) struct WorkSetup {
    pub(crate) node: String,
    pub(crate) clients: Clients,
    pub(crate) log_dir: PathBuf,
    pub(crate) grace: Duration,
    /// Ends the work.
    pub(crate) shutdown: CancellationToken,
    /// SIGCHLD, taken before the first process was started.
    pub(crate) children: Signal,
}

/// All pods of this node.
pub(crate) struct Work {
    node: String,
    log_dir: PathBuf,
    grace: Duration,
    api: KubeletApi,
    address: Option<IpAddr>,
    pods: BTreeMap<String, Pod>,
    listed: BTreeSet<String>,
    reports: JoinSet<Answer>,
    /// Since when the machine goes.
    going: Option<Instant>,
}

struct Pod {
    spec: PodSpec,
    state: PodState,
    report: ReportState,
    /// It is not in the API any more.
    taken: bool,
    logs: Vec<Option<LogTask>>,
}

impl Work {
    /// Runs pods until the shutdown, and then until they have ended with their grace.
    pub(crate) async fn run(setup: WorkSetup) {
        let WorkSetup { node, mut clients, log_dir, grace, shutdown, mut children } = setup;
        let access = clients.borrow_and_update().clone();
        let address = own_address(&access.server).await;
        let api = access.api;
        let mut work = Self {
            pods: BTreeMap::new(),
            listed: BTreeSet::new(),
            reports: JoinSet::new(),
            going: None,
            node,
            log_dir,
            grace,
            api,
            address,
        };
        let mut events = Box::pin(work.watch());
        loop {
            let again = work.turn();
            if work.is_done() {
                break;
            }
            tokio::select! {
                () = shutdown.cancelled(), if work.going.is_none() => work.going = Some(Instant::now()),
                Some(event) = events.next() => work.observe(event),
                _ = children.recv() => work.reap(),
                Some(answer) = work.reports.join_next() => work.answered(answer.ok()),
                changed = clients.changed(), if clients.has_changed().is_ok() => {
                    if changed.is_ok() {
                        let access = clients.borrow_and_update().clone();
                        work.address = own_address(&access.server).await.or(work.address);
                        work.api = access.api;
                        events = Box::pin(work.watch());
                    }
                }
                () = sleep_until(again) => {}
            }
        }
        work.last_reports().await;
    }

    fn watch(&self) -> impl Stream<Item = watcher::Result<Event<Object>>> + use<> {
        let pods: Api<Object> = Api::all(self.api.client().clone());
        let config = Config::default().fields(&format!("spec.nodeName={}", self.node));
        watcher(pods, config).default_backoff()
    }

    fn observe(&mut self, event: watcher::Result<Event<Object>>) {
        match event {
            Ok(Event::Init) => self.listed.clear(),
            Ok(Event::InitApply(object)) => {
                self.listed.extend(object.metadata.uid.clone());
                self.apply(&object);
            }
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut self.listed);
                for (uid, pod) in &mut self.pods {
                    pod.taken = !listed.contains(uid);
                }
            }
            Ok(Event::Apply(object)) => self.apply(&object),
            Ok(Event::Delete(object)) => {
                let pod = object.metadata.uid.and_then(|uid| self.pods.get_mut(&uid));
                if let Some(pod) = pod {
                    pod.taken = true;
                }
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(error = format!("{error:#}"), "watch failed, it is started again");
            }
        }
    }

    fn apply(&mut self, object: &Object) {
        let Some(spec) = PodSpec::of(object, self.address) else { return };
        if let Some(pod) = self.pods.get_mut(&spec.uid) {
            // What is in a pod does not change while it runs, but for its deletion.
            pod.spec.deleted = spec.deleted;
            return;
        }
        let room = has_room(self.pods.values().map(|pod| &pod.state));
        if !room {
            tracing::warn!(namespace = spec.namespace, name = spec.name, "no room for a pod");
        }
        let state = PodState::new(&spec, room, now());
        let logs = spec.containers.iter().map(|_| None).collect();
        let pod = Pod { state, report: ReportState::new(), taken: false, logs, spec };
        self.pods.insert(pod.spec.uid.clone(), pod);
    }

    /// Does what is due for every pod; when to look again if nothing happens.
    fn turn(&mut self) -> Instant {
        let now = now();
        // A clock that stands still for an hour is looked at nevertheless.
        let mut again = now.since + Duration::from_hours(1);
        if let Some(going) = self.going {
            again = again.min(going + self.grace + SLACK);
        }
        let (node, log_dir) = (self.node.clone(), self.log_dir.clone());
        for pod in self.pods.values_mut() {
            let goal = goal(pod, self.going.map(|_| self.grace));
            let plan = decide(&pod.spec, &pod.state, goal, now.since);
            for step in plan.steps {
                let dir = log_dir
                    .join(format!("{}_{}_{}", pod.spec.namespace, pod.spec.name, pod.spec.uid));
                // A step may call for another step.
                if pod.carry_out(step, &node, &dir, now) {
                    again = now.since;
                }
            }
            pod.state.note_readiness(now.at);
            again = again.min(plan.again.unwrap_or(again));
        }
        self.tell(now.since).map_or(again, |at| at.min(again))
    }

    /// Tells the API what it does not know yet, and forgets what is gone; when to try again.
    fn tell(&mut self, now: Instant) -> Option<Instant> {
        let log_dir = self.log_dir.clone();
        self.pods.retain(|uid, pod| {
            let keep = !(pod.taken && is_still(&pod.state));
            if !keep {
                tracing::info!(namespace = pod.spec.namespace, name = pod.spec.name, "pod is gone");
                pod.logs.clear();
                forget_logs(
                    log_dir.join(format!("{}_{}_{uid}", pod.spec.namespace, pod.spec.name)),
                );
            }
            keep
        });
        let mut retry: Option<Instant> = None;
        for pod in self.pods.values_mut().filter(|pod| !pod.taken) {
            let said = (pod.state.over != Some(Over::Before))
                .then(|| status(&pod.spec, &pod.state, self.address, now));
            let ended = pod.spec.deleted.is_some() && is_still(&pod.state);
            if let Some(update) = pod.report.next(said, ended, now) {
                pod.report.begin();
                report::send(&mut self.reports, self.api.clone(), &pod.spec, update);
            }
            retry = [retry, pod.report.retry_at()].into_iter().flatten().min();
        }
        retry
    }

    fn reap(&mut self) {
        let owner = |pods: &BTreeMap<String, Pod>, id| {
            pods.iter()
                .find_map(|(uid, pod)| pod.state.container_of(id).map(|index| (uid.clone(), index)))
        };
        for (id, exit) in process::reap(|id| owner(&self.pods, id).is_some()) {
            let Some((uid, index)) = owner(&self.pods, id) else { continue };
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            let (namespace, name) = (&pod.spec.namespace, &pod.spec.name);
            tracing::info!(namespace, name, process = id, code = exit.code(), "container ended");
            pod.state.ended(index, exit, now());
        }
    }

    fn answered(&mut self, answer: Option<Answer>) {
        let Some(Answer { uid, update, well }) = answer else { return };
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.report.end(update, well, Instant::now());
        }
    }

    fn is_done(&self) -> bool {
        self.going.is_some_and(|since| {
            let over = since + self.grace + SLACK <= Instant::now();
            over || self.pods.values().all(|pod| is_still(&pod.state))
        })
    }

    /// Says how containers ended, as far as the API server answers in time.
    async fn last_reports(&mut self) {
        let deadline = Instant::now() + SLACK;
        loop {
            self.tell(Instant::now());
            match timeout_at(deadline, self.reports.join_next()).await {
                Ok(Some(answer)) => self.answered(answer.ok()),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

impl Pod {
    /// Does one step; true: what was decided is out of date.
    fn carry_out(&mut self, step: Step, node: &str, dir: &std::path::Path, now: Now) -> bool {
        match step {
            Step::Start(index) => !self.start(index, node, dir, now),
            Step::Tell(index) => {
                self.state.told = Some(now.since);
                if let Some(id) = self.process(index) {
                    process::tell(id);
                }
                false
            }
            Step::Kill(index) => {
                if let Some(id) = self.process(index) {
                    process::kill_all(id);
                }
                false
            }
            Step::EndPause(index) => {
                self.state.ended(index, Exit::Code(0), now);
                false
            }
            Step::Finish => {
                self.state.over = Some(Over::Ran);
                false
            }
        }
    }

    fn process(&self, index: usize) -> Option<i32> {
        self.state.containers.get(index)?.process()
    }

    /// Whether the container was started.
    fn start(&mut self, index: usize, node: &str, dir: &std::path::Path, now: Now) -> bool {
        let Some(container) = self.spec.containers.get(index) else { return true };
        let started = match (&container.problem, &container.command) {
            (Some(problem), _) => Err(problem.clone()),
            (None, None) => Ok(None),
            (None, Some(command)) => match process::spawn(command, node) {
                Ok(started) => Ok(Some(started)),
                Err(error) => Err(format!("{}: {error}", command.program)),
            },
        };
        let (namespace, name) = (&self.spec.namespace, &self.spec.name);
        match started {
            Ok(started) => {
                let process = started.map(|(id, output)| {
                    if let Some(slot) = self.logs.get_mut(index) {
                        let dir = dir.join(&container.name);
                        *slot = Some(LogTask::start(dir, output, slot.take()));
                    }
                    id
                });
                tracing::info!(namespace, name, container = container.name, process, "started");
                self.state.started(index, process, now);
                true
            }
            Err(why) => {
                tracing::warn!(namespace, name, container = container.name, why, "not started");
                self.state.ended(index, Exit::NotStarted(why), now);
                false
            }
        }
    }
}

fn goal(pod: &Pod, going: Option<Duration>) -> Goal {
    let grace = if pod.taken { Some(TAKEN_AWAY) } else { pod.spec.deleted };
    match (grace, going) {
        (None, None) => Goal::Run,
        (None, Some(limit)) => Goal::End(pod.spec.grace.min(limit)),
        (Some(grace), limit) => Goal::End(limit.map_or(grace, |limit| grace.min(limit))),
    }
}

fn now() -> Now {
    Now { at: Timestamp::now(), since: Instant::now() }
}

fn forget_logs(dir: PathBuf) {
    tokio::spawn(async move {
        match tokio::fs::remove_dir_all(&dir).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(dir = %dir.display(), %error, "logs of a pod cannot be removed");
            }
            Ok(()) | Err(_) => {}
        }
    });
}
