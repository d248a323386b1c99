//! The objects of a kind, with indexes.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Resource;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::queue::Priority;

use super::{Author, ObjectName, ResourceVersion, Unreadable, cannot_be_read, names::Names};

/// The indexes of a cached kind: a value of the type is an index.
pub trait CacheIndex: Copy + Eq + Hash + Send + Sync + 'static {
    /// The objects.
    type Object: Resource<DynamicType = ()> + Clone + Send + Sync + 'static;

    /// Kind, for metrics and logs.
    const KIND: &'static str;

    /// The entries of an object. Without an index there are none.
    fn of(_object: &Self::Object) -> Vec<(Self, String)> {
        Vec::new()
    }

    /// Drops unused fields before the object is stored. `managedFields` keep only the fact of an apply.
    fn trim(_object: &mut Self::Object) {}
}

/// One object changed.
#[derive(Debug, Clone)]
pub struct Change<K> {
    /// The object as it was last reported; `None` if it is new. For a deleted object, the last version.
    pub old: Option<Arc<K>>,
    /// The cached object now; `None` if it is gone.
    pub new: Option<Arc<K>>,
    /// The change was seen in a list rather than as a watch event.
    pub listed: bool,
    /// The author, if a single pass of this process wrote the change.
    pub author: Option<Author>,
}

impl<K> Change<K> {
    /// Whether the pass of `by` over the object of that name does not know of the change already.
    pub fn is_news_to(&self, by: &'static str, object: &ObjectName) -> bool {
        !self.author.as_ref().is_some_and(|author| author.is(by, object))
    }

    /// The deleted object, even if a new object has its name: a list does not show events in between.
    pub fn gone(&self) -> Option<&Arc<K>>
    where
        K: Resource,
    {
        let uid = |object: &Arc<K>| object.meta().uid.clone();
        self.old.as_ref().filter(|old| self.new.as_ref().map(uid) != Some(uid(old)))
    }

    /// The priority of the resulting passes.
    pub fn priority(&self) -> Priority {
        if self.listed { Priority::Background } else { Priority::Change }
    }

    /// The current object or, once deleted, its last version.
    pub fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// How an object that cannot be read was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// In a list.
    Listed,
    /// The object was added or changed.
    Changed,
    /// The object was deleted.
    Gone,
}

/// A list that is being read.
struct Listing<K> {
    objects: HashMap<ObjectName, Arc<K>>,
    unreadable: HashMap<ObjectName, Broken>,
    /// Names written by this process since the list began, which the list may not show yet.
    written: HashSet<ObjectName>,
}

/// An unreadable version of an object, and the fault.
#[derive(Debug, PartialEq, Eq)]
struct Broken {
    version: Option<String>,
    why: String,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), unreadable: HashMap::new(), written: HashSet::new() }
    }
}

/// One or more own writes whose event has not arrived.
struct Unreported<K> {
    /// The object as it was last reported.
    before: Arc<K>,
    /// `None`: several wrote.
    author: Option<Author>,
}

struct Contents<I: CacheIndex> {
    objects: HashMap<Arc<ObjectName>, Arc<I::Object>>,
    /// Of some of `objects`, what only the authors of the last writes know.
    unreported: HashMap<ObjectName, Unreported<I::Object>>,
    /// Objects that exist but cannot be read; `objects` may have an older version.
    unreadable: HashMap<ObjectName, Broken>,
    index: HashMap<(I, String), Names>,
    /// The unfinished lists, by part.
    listings: HashMap<Option<String>, Listing<I::Object>>,
    /// Parts whose first list is complete.
    complete: BTreeSet<Option<String>>,
    /// Number of parts.
    parts: usize,
}

/// The objects of a kind with indexes, as last seen by the watch.
pub struct Cache<I: CacheIndex> {
    contents: RwLock<Contents<I>>,
    synced: watch::Sender<bool>,
}

impl<I: CacheIndex> fmt::Debug for Cache<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("kind", &I::KIND).field("objects", &self.len()).finish()
    }
}

impl<I: CacheIndex> Default for Cache<I> {
    fn default() -> Self {
        let contents = Contents {
            objects: HashMap::new(),
            unreported: HashMap::new(),
            unreadable: HashMap::new(),
            index: HashMap::new(),
            listings: HashMap::new(),
            complete: BTreeSet::new(),
            parts: 1,
        };
        Self { contents: RwLock::new(contents), synced: watch::Sender::new(false) }
    }
}

impl<I: CacheIndex> Cache<I> {
    fn read(&self) -> RwLockReadGuard<'_, Contents<I>> {
        self.contents.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents<I>> {
        self.contents.write()
    }

    /// Sets the number of watches that fill the cache, each of another namespace. Call this function before the watches
    /// start.
    pub fn consists_of(&self, parts: usize) {
        self.write().parts = parts;
    }

    /// Waits for the first complete list.
    pub async fn synced(&self) {
        // The sender lives in `self`, so the channel cannot close while we wait.
        drop(self.synced.subscribe().wait_for(|synced| *synced).await);
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The object of that name.
    pub fn get(&self, name: &ObjectName) -> Option<Arc<I::Object>> {
        self.read().objects.get(name).cloned()
    }

    /// Whether an object of the name exists, readable or not.
    pub fn has(&self, name: &ObjectName) -> bool {
        let contents = self.read();
        contents.objects.contains_key(name) || contents.unreadable.contains_key(name)
    }

    /// The objects indexed under `value`, by name.
    pub fn find(&self, index: I, value: &str) -> Vec<Arc<I::Object>> {
        let contents = self.read();
        let found = contents.under(index, value);
        counted(found.filter_map(|name| contents.objects.get(name)).cloned().collect())
    }

    /// Whether an object indexed under `value` is as `wanted`. Looks at no more objects than it has to.
    pub fn any(&self, index: I, value: &str, wanted: impl Fn(&I::Object) -> bool) -> bool {
        let contents = self.read();
        let mut found = contents.under(index, value);
        found.any(|name| contents.objects.get(name).is_some_and(|object| wanted(object)))
    }

    /// The names of the objects indexed under `value`, in order.
    pub fn find_names(&self, index: I, value: &str) -> Vec<ObjectName> {
        counted(self.read().under(index, value).map(|name| (**name).clone()).collect())
    }

    /// How many objects are indexed under `value`.
    pub fn count(&self, index: I, value: &str) -> usize {
        self.read().index.get(&(index, value.to_owned())).map_or(0, Names::len)
    }

    /// Every value of an index.
    pub fn values(&self, index: I) -> Vec<String> {
        let contents = self.read();
        let values = contents.index.keys().filter(|(of, _)| *of == index);
        values.map(|(_, value)| value.clone()).collect()
    }

    /// Every object, in any order.
    pub fn all(&self) -> Vec<Arc<I::Object>> {
        counted(self.read().objects.values().cloned().collect())
    }

    /// Every name, in any order.
    pub fn names(&self) -> Vec<ObjectName> {
        counted(self.read().objects.keys().map(|name| (**name).clone()).collect())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some objects cannot be read. Then no object may count as absent because it is not cached, nor as
    /// unused because no cached object uses it.
    pub fn has_unreadable(&self) -> bool {
        !self.read().unreadable.is_empty()
    }

    /// Like [`Self::has_unreadable`], for a namespace: the first unreadable object there, and why, for people.
    pub fn unreadable_in(&self, namespace: &str) -> Option<String> {
        let contents = self.read();
        let there = contents.unreadable.iter().filter(|(name, _)| name.namespace == namespace);
        let (name, broken) = there.min_by_key(|(name, _)| *name)?;
        Some(cannot_be_read(I::KIND, name, &broken.why))
    }

    /// Records that an object cannot be read. The last readable version stays until the object is gone. Returns whether
    /// the object is newly unreadable, and the change.
    pub fn skip(
        &self,
        part: Option<&str>,
        seen: Seen,
        object: &Unreadable,
    ) -> (bool, Option<Change<I::Object>>) {
        let meta = &object.meta;
        let namespace = meta.namespace.as_deref().or(part).unwrap_or_default();
        let name = ObjectName::new(namespace, meta.name.as_deref().unwrap_or_default());
        let broken = Broken { version: meta.resource_version.clone(), why: object.why.clone() };
        let mut contents = self.write();
        let news = contents.unreadable.get(&name) != Some(&broken);
        match seen {
            Seen::Gone => {
                let revision = ResourceVersion::of(broken.version.as_deref());
                return (false, contents.delete(&name, revision));
            }
            Seen::Listed => {
                let listing = contents.listings.entry(part.map(str::to_owned)).or_default();
                listing.unreadable.insert(name, broken);
            }
            Seen::Changed => {
                contents.unreadable.insert(name, broken);
            }
        }
        (news, None)
    }

    /// Clears the cache, as if the first list had not been read.
    pub(super) fn clear(&self) {
        let mut contents = self.write();
        contents.objects.clear();
        contents.unreported.clear();
        contents.unreadable.clear();
        contents.index.clear();
        contents.listings.clear();
        contents.complete.clear();
        self.synced.send_replace(false);
    }

    /// Stores the answer to a write of ours, ahead of the watch; its later event is a change by `author`. The write
    /// must have been conditional on the resource version of its plan: otherwise the answer may contain a change by
    /// another client, which the author does not know.
    pub fn update(&self, mut object: I::Object, author: Author) {
        prepare::<I>(&mut object);
        let mut contents = self.write();
        let name = ObjectName::of(&object);
        // Not cached: it is either gone, or new and the watch will report it. Never resurrect.
        let here = contents.objects.get(&name);
        if here.is_some_and(|here| !is_same(here.as_ref(), &object) && !is_older(&object, here)) {
            contents.note(&name, author);
            contents.put(name, Arc::new(object));
        }
    }

    /// Applies an event of the only watch and returns what changed.
    pub fn apply(&self, event: Event<I::Object>) -> Vec<Change<I::Object>> {
        self.apply_part(None, event)
    }

    /// Applies an event of the watch of a namespace, or of all, and returns the changes.
    pub fn apply_part(
        &self,
        part: Option<&str>,
        event: Event<I::Object>,
    ) -> Vec<Change<I::Object>> {
        match event {
            Event::Apply(object) => self.apply_one(object).into_iter().collect(),
            Event::Delete(object) => self.delete(&object).into_iter().collect(),
            Event::Init => {
                self.write().listings.insert(part.map(str::to_owned), Listing::default());
                Vec::new()
            }
            Event::InitApply(mut object) => {
                prepare::<I>(&mut object);
                let name = ObjectName::of(&object);
                let part = part.map(str::to_owned);
                let mut contents = self.write();
                let listing = contents.listings.entry(part).or_default();
                listing.objects.insert(name, Arc::new(object));
                Vec::new()
            }
            Event::InitDone => {
                let (changes, complete) = self.finish_listing(part);
                if complete {
                    self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
                }
                changes
            }
        }
    }

    fn apply_one(&self, mut object: I::Object) -> Option<Change<I::Object>> {
        prepare::<I>(&mut object);
        let name = ObjectName::of(&object);
        let mut contents = self.write();
        if contents.objects.get(&name).is_some_and(|here| is_older(&object, here)) {
            return None;
        }
        contents.report(name, Arc::new(object), false)
    }

    fn delete(&self, object: &I::Object) -> Option<Change<I::Object>> {
        let name = ObjectName::of(object);
        self.write().delete(&name, revision(object))
    }

    /// Completes the list of a part: returns what changed, and whether every part was listed. A list shows the current
    /// objects, so only writes since its begin may be newer here. Anything else is from before a restore of the API.
    fn finish_listing(&self, part: Option<&str>) -> (Vec<Change<I::Object>>, bool) {
        let mut contents = self.write();
        let key = part.map(str::to_owned);
        let Listing { objects: listing, unreadable, written } =
            contents.listings.remove(&key).unwrap_or_default();
        contents.complete.insert(key);
        contents.unreadable.retain(|name, _| part.is_some_and(|part| part != name.namespace));
        let gone: Vec<_> = contents
            .objects
            .keys()
            .filter(|name| part.is_none_or(|part| part == name.namespace))
            .filter(|name| !listing.contains_key(&***name) && !unreadable.contains_key(&***name))
            .cloned()
            .collect();
        let mut changes = Vec::new();
        for name in gone {
            let old = contents.remove(&name);
            changes.push(Change { old, new: None, listed: true, author: None });
        }
        for (name, new) in listing {
            let here = contents.objects.get(&name).filter(|_| written.contains(&name));
            if here.is_none_or(|here| !is_older(new.as_ref(), here)) {
                changes.extend(contents.report(name, new, true));
            }
        }
        contents.unreadable.extend(unreadable);
        let complete = contents.complete.len() >= contents.parts;
        (changes, complete)
    }
}

impl<I: CacheIndex> Contents<I> {
    /// The names under a value of an index, in order.
    fn under(&self, index: I, value: &str) -> impl Iterator<Item = &Arc<ObjectName>> {
        self.index.get(&(index, value.to_owned())).into_iter().flat_map(Names::iter)
    }

    /// Notes an own write before it is stored.
    fn note(&mut self, name: &ObjectName, author: Author) {
        for listing in self.listings.values_mut() {
            listing.written.insert(name.clone());
        }
        if let Some(earlier) = self.unreported.get_mut(name) {
            earlier.author = earlier.author.take().filter(|before| *before == author);
        } else if let Some(before) = self.objects.get(name).cloned() {
            self.unreported.insert(name.clone(), Unreported { before, author: Some(author) });
        }
    }

    /// Stores the watch's report; returns the news to others than the authors of own writes.
    fn report(
        &mut self,
        name: ObjectName,
        new: Arc<I::Object>,
        listed: bool,
    ) -> Option<Change<I::Object>> {
        let own = self.unreported.remove(&name);
        let same = self.objects.get(&name).filter(|here| is_same(here.as_ref(), new.as_ref()));
        if let Some(here) = same.cloned() {
            let Unreported { before, author } = own?;
            return Some(Change { old: Some(before), new: Some(here), listed, author });
        }
        let old = self.put(name, Arc::clone(&new));
        let old = own.map(|own| own.before).or(old);
        Some(Change { old, new: Some(new), listed, author: None })
    }

    /// Removes an object, unless the cached version is newer.
    fn delete(
        &mut self,
        name: &ObjectName,
        revision: ResourceVersion,
    ) -> Option<Change<I::Object>> {
        let newer = |here: ResourceVersion| revision.is_older_than(here);
        if self
            .unreadable
            .get(name)
            .is_some_and(|it| !newer(ResourceVersion::of(it.version.as_deref())))
        {
            self.unreadable.remove(name);
        }
        if newer(self::revision(self.objects.get(name)?.as_ref())) {
            return None;
        }
        let old = self.remove(name);
        old.is_some().then_some(Change { old, new: None, listed: false, author: None })
    }

    fn put(&mut self, name: ObjectName, object: Arc<I::Object>) -> Option<Arc<I::Object>> {
        self.unreadable.remove(&name);
        let keys = I::of(&object);
        // Most changes leave the keys alone.
        if let Some(here) = self.objects.get_mut(&name)
            && I::of(here) == keys
        {
            return Some(std::mem::replace(here, object));
        }
        let old = self.take(&name);
        let name = Arc::new(name);
        for key in keys {
            let names = self.index.entry(key);
            names
                .and_modify(|names| names.insert(name.clone()))
                .or_insert_with(|| Names::One(name.clone()));
        }
        self.objects.insert(name, object);
        old
    }

    fn remove(&mut self, name: &ObjectName) -> Option<Arc<I::Object>> {
        self.unreported.remove(name);
        self.take(name)
    }

    /// Takes an object out of the indexes as well.
    fn take(&mut self, name: &ObjectName) -> Option<Arc<I::Object>> {
        let old = self.objects.remove(name)?;
        for key in I::of(&old) {
            if self.index.get_mut(&key).is_some_and(|names| names.remove(name)) {
                self.index.remove(&key);
            }
        }
        Some(old)
    }
}

/// Objects handed out by the cache, counted by tests.
fn counted<T>(handed_out: Vec<T>) -> Vec<T> {
    #[cfg(debug_assertions)]
    HANDED_OUT.set(HANDED_OUT.get() + handed_out.len());
    handed_out
}

#[cfg(debug_assertions)]
thread_local! {
    static HANDED_OUT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many objects and names the caches handed out to this thread since it last asked: what a change or a pass costs.
#[cfg(debug_assertions)]
pub fn handed_out() -> usize {
    HANDED_OUT.take()
}

fn revision<K: Resource>(object: &K) -> ResourceVersion {
    ResourceVersion::of(object.meta().resource_version.as_deref())
}

/// Whether a version of an object is known to be older than the cached version.
fn is_older<K: Resource>(object: &K, here: &Arc<K>) -> bool {
    revision(object).is_older_than(revision(here.as_ref()))
}

/// Whether two objects of the same name are the same version.
fn is_same<K: Resource>(one: &K, other: &K) -> bool {
    let version = &one.meta().resource_version;
    version.is_some() && *version == other.meta().resource_version
}

fn prepare<I: CacheIndex>(object: &mut I::Object) {
    let mut managers = object.meta_mut().managed_fields.take().into_iter().flatten();
    let applied = managers.find_map(|it| it.operation.filter(|it| it == "Apply"));
    object.meta_mut().managed_fields = applied.map(|it| {
        vec![ManagedFieldsEntry { operation: Some(it), ..ManagedFieldsEntry::default() }]
    });
    I::trim(object);
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
