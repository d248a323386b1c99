//! The objects of a kind as a watch of them goes on, or why they cannot be read.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::Stream;
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Error, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

/// Watches the objects of a kind, without what says who wrote which field. No namespace: those of all.
pub(crate) fn watch<K>(
    client: &Client,
    namespace: Option<&str>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + use<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api = match namespace {
        Some(namespace) => Api::<K>::namespaced(client.clone(), namespace),
        None => Api::<K>::all(client.clone()),
    };
    let all = watcher::watcher(api, watcher::Config::default()).default_backoff();
    all.modify(|one: &mut K| one.meta_mut().managed_fields = None)
}

type Objects<K> = BTreeMap<(String, String), K>;

/// The objects of a kind, and those of a list that has not ended.
pub(crate) struct Seen<K> {
    /// By namespace and name.
    pub(crate) objects: Objects<K>,
    relisted: Objects<K>,
    state: State,
}

/// How far a watch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum State {
    /// Its list has not ended.
    #[default]
    Reading,
    /// All objects are known.
    Known,
    /// The watch was interrupted, and resumes without help.
    Lacks(String),
}

impl<K> Default for Seen<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), relisted: BTreeMap::new(), state: State::default() }
    }
}

impl<K: Resource<DynamicType = ()>> Seen<K> {
    /// Whether something is another one now.
    pub(crate) fn take(&mut self, event: watcher::Result<Event<K>>) -> bool {
        let key = |object: &K| {
            let meta = object.meta();
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        match event {
            // The watcher backs off and goes on by itself.
            Err(error) => {
                tracing::debug!(%error, "a watch was interrupted");
                let lacks = State::Lacks(lack(&K::plural(&()), &error));
                return std::mem::replace(&mut self.state, lacks.clone()) != lacks;
            }
            Ok(Event::Init) => self.relisted.clear(),
            Ok(Event::InitApply(object)) => drop(self.relisted.insert(key(&object), object)),
            Ok(Event::InitDone) => {
                self.objects = std::mem::take(&mut self.relisted);
                self.state = State::Known;
                return true;
            }
            Ok(Event::Apply(object)) => {
                self.objects.insert(key(&object), object);
                self.state = State::Known;
                return true;
            }
            Ok(Event::Delete(object)) => return self.objects.remove(&key(&object)).is_some(),
        }
        false
    }

    /// Whether its first list has not ended.
    pub(crate) fn is_reading(&self) -> bool {
        self.state == State::Reading
    }

    /// The objects, also those of a first list that has not ended.
    pub(crate) fn so_far(&self) -> impl Iterator<Item = &K> {
        if self.is_reading() { self.relisted.values() } else { self.objects.values() }
    }

    /// Why what is known may be old, or nothing.
    pub(crate) fn lack(&self) -> Option<&str> {
        match &self.state {
            State::Lacks(why) => Some(why),
            State::Reading | State::Known => None,
        }
    }
}

/// Why a kind cannot be watched, for people.
fn lack(plural: &str, error: &Error) -> String {
    let code = match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => status.code,
        Error::InitialListFailed(_)
        | Error::WatchStartFailed(_)
        | Error::WatchFailed(_)
        | Error::NoResourceVersion => 0,
    };
    let verb = if matches!(error, Error::InitialListFailed(_)) { "list" } else { "watch" };
    match code {
        401 => format!("the credentials are not accepted: {plural} cannot be read"),
        403 => format!("no rights to {verb} {plural}"),
        404 => format!("the cluster has no {plural}"),
        _ => format!("{plural} cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use ostler_api::MachinePool;
    use ostler_api::machine_pool::MachinePoolSpec;

    use super::*;

    fn refused(code: u16) -> Error {
        Error::InitialListFailed(kube::Error::Api(
            Status::failure("no", "").with_code(code).boxed(),
        ))
    }

    #[test]
    fn a_kind_that_cannot_be_read_says_why_until_it_can() {
        let mut seen = Seen::<MachinePool>::default();
        assert!(seen.is_reading());
        for (code, said) in [
            (403, "no rights to list machinepools"),
            (404, "the cluster has no machinepools"),
            (401, "the credentials are not accepted: machinepools cannot be read"),
        ] {
            assert!(seen.take(Err(refused(code))));
            assert!(!seen.take(Err(refused(code))), "the same is no news");
            assert_eq!(seen.lack(), Some(said));
        }
        let list = || {
            let pool = MachinePool::new("p", MachinePoolSpec::default());
            [Event::Init, Event::InitApply(pool), Event::InitDone]
        };
        for event in list() {
            seen.take(Ok(event));
        }
        assert_eq!((seen.lack(), seen.is_reading(), seen.objects.len()), (None, false, 1));
        let mut first = Seen::default();
        let number = list().map(|event| {
            first.take(Ok(event));
            first.so_far().count()
        });
        assert_eq!(
            (number, first.objects.len()),
            ([0, 1, 1], 1),
            "a first list is shown as it goes"
        );
    }
}
