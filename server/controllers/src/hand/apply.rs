//! Executes writes: in order or beside each other, each on its condition. The plan has the meaning of 404, 409, any
//! other refusal and a lost answer; this file applies the meaning, for every kind.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Resource as _};
use ostler_lifecycle::each;
use ostler_lifecycle::owner::is_controlled_by;
use ostler_lifecycle::plan::{Event, Performed};
use ostler_lifecycle::write::{
    Answers, Batch, Object, Only, Pace, Part, Same, Taken, TakenName, Then, Tried, Verb, Write,
};
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::{Applied, Hand, Notes, copies};
use crate::client::{Deletion, Typed as Written, WriteError, Writer};
use crate::kind::PassError;
use crate::target::TargetOf;
use crate::unseen::Effect;
use crate::watch::{Author, Cache, CacheIndex, ObjectName};

/// An API server's answer.
type Answer = Result<Answered, WriteError>;

#[derive(Default)]
struct Answered {
    /// The object after the write, if the answer has it.
    now: Option<Object>,
    /// Events in place of the write's own.
    instead: Option<Vec<Event>>,
}

/// Where objects of a kind are written and cached.
struct Place<'a, I: CacheIndex> {
    writer: &'a Writer,
    api: Api<I::Object>,
    cache: &'a Cache<I>,
    wrap: fn(Arc<I::Object>) -> Object,
}

/// The answer to a request in place of a write of the object.
fn done(answer: Result<(), WriteError>) -> Answer {
    answer.map(|()| Answered::default())
}

impl Hand<'_> {
    /// Executes the writes of a plan.
    pub(crate) async fn apply(
        &self,
        batches: &[Batch],
        notes: &impl Notes,
    ) -> Result<Applied, PassError> {
        let (tried, own) = (Tried::default(), self.own.clone());
        let mut done = Applied { tried, own, failed: false, next_by: None, not_before: None };
        self.go_on(batches, notes, &mut done).await?;
        Ok(done)
    }

    /// Executes writes after others of the same pass.
    pub(super) async fn go_on(
        &self,
        batches: &[Batch],
        notes: &impl Notes,
        done: &mut Applied,
    ) -> Result<(), PassError> {
        for batch in batches {
            if batch.after.is_some_and(|part| done.tried.failed(part)) {
                continue;
            }
            let (mut rest, mut step) = (batch.writes.as_slice(), 1);
            while !rest.is_empty() {
                let at_once = if let Pace::Beside(most) = batch.pace { most } else { step };
                let (some, later) = rest.split_at(at_once.min(rest.len()));
                let answers = some.iter().map(|write| self.make(batch, write, &done.own, notes));
                let mut all_done = true;
                for (write, answer) in some.iter().zip(join_all(answers).await) {
                    all_done &= answer.is_ok();
                    self.take(batch, write, answer, done)?;
                }
                if batch.pace == Pace::Doubling {
                    step *= 2;
                    if !all_done {
                        break;
                    }
                }
                rest = later;
            }
        }
        Ok(())
    }

    async fn make(&self, batch: &Batch, write: &Write, own: &Object, notes: &impl Notes) -> Answer {
        let (unseen, owner, effect) = (&self.stores.unseen, self.own.uid(), awaited(write));
        notes.sends(batch.part, write);
        if let Some(effect) = effect {
            unseen.sent(owner, self.own.meta().generation, effect);
        }
        let answer = self.send(write, own).await;
        notes.answered(batch.part, write, answer.as_ref().map(drop));
        if let Some(effect) = effect {
            unseen.answered(owner, effect, answer.as_ref().map(drop));
        }
        if let (Ok(_), Some(then)) = (&answer, &write.then)
            && let Err(error) = self.send(then, own).await
        {
            warn!(object = then.of.name(), %error, "cannot show what becomes of it");
        }
        answer
    }

    /// The meaning of an answer.
    fn take(
        &self,
        batch: &Batch,
        write: &Write,
        answer: Answer,
        done: &mut Applied,
    ) -> Result<(), PassError> {
        let name = write.of.name();
        let error = match answer {
            Ok(Answered { now, instead }) => {
                debug!(of = self.own.name(), part = ?batch.part, name, "done");
                done.tried.0.push((batch.part, Performed::Done));
                let of = if write.of_itself { &write.of } else { &self.own };
                let told = instead.unwrap_or_else(|| write.told.clone());
                for event in told {
                    self.tell(of, event);
                }
                if let Some(now) = now.filter(|now| now.uid() == self.own.uid()) {
                    done.own = now;
                }
                return Ok(());
            }
            Err(error) => error,
        };
        let Answers { missing, conflict, busy, other } = batch.answers;
        let is_busy = matches!(error, WriteError::NoAnswer | WriteError::TooManyRequests { .. });
        let (then, performed) = if matches!(error, WriteError::NotFound) {
            (missing, Performed::Gone)
        } else if matches!(error, WriteError::Conflict) {
            (conflict, Performed::Conflict)
        } else {
            (if is_busy { busy } else { other }, Performed::Failed(error.to_string()))
        };
        match (then, &write.verb) {
            (Then::GoOn, _) => {}
            (Then::Stop, Verb::Confirm(Same::AllButStatus(wait)))
                if performed == Performed::Conflict =>
            {
                return Err(PassError::NotYet(*wait));
            }
            (Then::Stop, _) => return Err(PassError::of_write(batch.what, error)),
            (Then::Outdated, _) => return Err(PassError::Outdated),
            (Then::Again(wait), _) => done.next_by = Some(wait),
            (Then::NotBefore(wait), _) => done.not_before = Some(wait),
            (Then::Repeat, _) => {
                done.failed = true;
                self.complain(batch, write, &error);
            }
        }
        done.tried.0.push((batch.part, performed));
        Ok(())
    }

    /// Reports a refused write.
    fn complain(&self, batch: &Batch, write: &Write, error: &WriteError) {
        if comes_again(write, error) {
            return;
        }
        let name = write.of.name();
        match &write.refused {
            Some(event) => {
                let message = format!("{}: {error}", event.message);
                self.tell(&self.own, Event { message, ..event.clone() });
            }
            None if batch.part == Part::Tell => debug!(name, %error, "{}", batch.what),
            None => warn!(name, %error, "{}", batch.what),
        }
    }

    async fn send(&self, write: &Write, own: &Object) -> Answer {
        let (writer, stores) = (self.writer, self.stores);
        let namespace = write.of.namespace();
        match &write.of {
            Object::Machine(it) => {
                let (api, cache) = (writer.api(namespace), &stores.machines);
                self.on(it, Place { writer, api, cache, wrap: Object::Machine }, write, own).await
            }
            Object::Set(it) => {
                let (api, cache) = (writer.api(namespace), &stores.sets);
                self.on(it, Place { writer, api, cache, wrap: Object::Set }, write, own).await
            }
            Object::Deployment(it) => {
                let (api, cache) = (writer.api(namespace), &stores.deployments);
                self.on(it, Place { writer, api, cache, wrap: Object::Deployment }, write, own)
                    .await
            }
            Object::Pool(it) => {
                let (api, cache) = (writer.api(namespace), &stores.pools);
                self.on(it, Place { writer, api, cache, wrap: Object::Pool }, write, own).await
            }
            Object::Check(it) => {
                let (api, cache) = (writer.api(namespace), &stores.checks);
                self.on(it, Place { writer, api, cache, wrap: Object::Check }, write, own).await
            }
            Object::Reserve(it) => {
                let (api, cache) = (writer.api(namespace), &stores.reserves);
                self.on(it, Place { writer, api, cache, wrap: Object::Reserve }, write, own).await
            }
            Object::Node(it, machine) => {
                let TargetOf::Cluster(target) = stores.targets.of(machine) else {
                    return Ok(Answered::default());
                };
                let writer = &writer.to(&target.client);
                let (api, cache, wrap) = (writer.cluster_api(), &target.nodes, node);
                self.on(it, Place { writer, api, cache, wrap }, write, own).await
            }
        }
    }

    async fn on<I>(
        &self,
        seen: &Arc<I::Object>,
        place: Place<'_, I>,
        write: &Write,
        own: &Object,
    ) -> Answer
    where
        I: CacheIndex<Object: Written>,
    {
        let (writer, api, name) = (place.writer, &place.api, write.of.name());
        let version = match &write.only {
            Only::Seen if write.of.uid() == own.uid() => own.meta().resource_version.clone(),
            Only::Seen => write.of.meta().resource_version.clone(),
            only @ Only::Newest { .. } => {
                let newest = place.cache.get(&ObjectName::of(seen.as_ref())).map(place.wrap);
                let newest = newest.filter(|newest| only.holds(&write.of, newest));
                newest.as_ref().unwrap_or(&write.of).meta().resource_version.clone()
            }
            Only::ControlledBy(uid) => {
                let live = writer.get(api, name).await?;
                if !live.is_some_and(|live| is_controlled_by(live.meta(), uid)) {
                    return Err(WriteError::NotFound);
                }
                None
            }
            Only::Uid | Only::Any => None,
        };
        let written = match &write.verb {
            Verb::Confirm(same) => {
                let live = writer.get(api, name).await?.ok_or(WriteError::NotFound)?;
                let same = same.holds(live.meta(), write.of.meta());
                return if same { Ok(Answered::default()) } else { Err(WriteError::Conflict) };
            }
            Verb::Create(taken) => {
                copies::make_first(writer, write.first.as_deref()).await?;
                match writer.create(api, seen.as_ref()).await {
                    Err(WriteError::Conflict) => return self.find(&place, write, taken).await,
                    answer => answer?,
                }
            }
            Verb::MakeCopy(copy) => return done(copies::make(writer, copy).await),
            Verb::DeleteCopy(copy) => return done(copies::delete(writer, copy).await),
            Verb::Token(token) => return done(self.token(&write.of, token).await),
            Verb::Refuse(why) => return Err(WriteError::Invalid(why.clone())),
            Verb::Patch(patch) => writer.patch(api, name, &in_version(patch, version)).await?,
            Verb::PatchStatus(patch) => {
                let patch = in_version(patch, version);
                writer.patch_status(api, name, Patch::Merge(&patch)).await?
            }
            Verb::Edit(edit) => {
                let test =
                    json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version });
                let edit = std::iter::once(test).chain(edit.iter().cloned()).collect();
                return writer
                    .patch_json(api, name, edit)
                    .await
                    .map(|_: I::Object| Answered::default());
            }
            Verb::Delete => {
                let (uid, version) = (Some(write.of.uid()), version.as_deref());
                let only = Deletion { uid, version, ..Deletion::default() };
                return writer.delete(api, name, only).await.map(|()| Answered::default());
            }
        };
        if write.only == Only::Any {
            return Ok(Answered::default());
        }
        Ok(self.show(&place, written))
    }

    /// Puts the written object into the cache.
    fn show<I>(&self, place: &Place<'_, I>, written: I::Object) -> Answered
    where
        I: CacheIndex<Object: Written>,
    {
        let author = each!(&self.own, it => Author::new(self.by, it.as_ref()));
        place.cache.update(written.clone(), author);
        Answered { now: Some((place.wrap)(Arc::new(written))), instead: None }
    }

    /// An object with the name of the new one exists.
    async fn find<I>(&self, place: &Place<'_, I>, write: &Write, taken: &Taken) -> Answer
    where
        I: CacheIndex<Object: Written>,
    {
        let name = write.of.name();
        let found = match place.writer.get(&place.api, name).await {
            // The object may be ours: its name is repeated.
            Err(_) if write.is_repeated() => return Err(WriteError::NoAnswer),
            found => found?.map(|found| (place.wrap)(Arc::new(found))),
        };
        let version = found.as_ref().and_then(|it| it.meta().resource_version.clone());
        match taken.judge(&write.of, found.as_ref()) {
            TakenName::Ours => Ok(Answered::default()),
            TakenName::Patch(patch) => {
                let patch = in_version(&patch, version);
                Ok(self.show(place, place.writer.patch(&place.api, name, &patch).await?))
            }
            TakenName::Later(event) => {
                Ok(Answered { now: None, instead: Some(Vec::from_iter(event)) })
            }
            TakenName::Gone => Err(WriteError::NotFound),
            TakenName::Stranger => Err(WriteError::Conflict),
            TakenName::Refused(why) => Err(WriteError::Invalid(why)),
            TakenName::Held(why) => Err(WriteError::Other(why)),
        }
    }
}

/// A Node after a write. The Node's Machine does not matter any more.
fn node(node: Arc<Node>) -> Object {
    Object::Node(node, Arc::default())
}

/// A changed object is looked at again, and a creation without an answer is repeated: neither is worth an event.
fn comes_again(write: &Write, error: &WriteError) -> bool {
    let creates = matches!(write.verb, Verb::Create(_));
    let tested = matches!((&write.verb, error), (Verb::Edit(_), WriteError::Invalid(_)));
    let unanswered = write.is_repeated() && error.may_have_happened();
    unanswered || tested || matches!(error, WriteError::Conflict) && !creates
}

/// The effect of a write that is awaited in the cache, and the key of its object. An instance has one Machine, whatever its
/// name.
fn awaited(write: &Write) -> Option<(Effect, &str)> {
    let effect = match &write.verb {
        Verb::Create(Taken::Instance(_)) => {
            (Effect::Created, write.of.machine()?.provider_id()?.as_str())
        }
        Verb::Create(_) => (Effect::Created, write.of.name()),
        Verb::Patch(_) => (Effect::Changed, write.of.name()),
        Verb::Delete => (Effect::Deleted, write.of.uid()),
        Verb::Confirm(_)
        | Verb::Refuse(_)
        | Verb::PatchStatus(_)
        | Verb::Edit(_)
        | Verb::MakeCopy(_)
        | Verb::DeleteCopy(_)
        | Verb::Token(_) => return None,
    };
    write.awaited.then_some(effect)
}

/// A patch on condition of a version.
fn in_version(patch: &Value, version: Option<String>) -> Value {
    let mut patch = patch.clone();
    if let (Some(version), Some(fields)) = (version, patch.as_object_mut())
        && let Some(metadata) =
            fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    patch
}
