//! The objects of one kind and their indexes.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Resource;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use super::{Author, By, ObjectName, Revision, Unreadable, cannot_be_read, names::Names};

/// A kind that is cached.
pub trait Cached: Resource<DynamicType = ()> + Clone + Send + Sync + 'static {
    /// The indexes of the kind.
    type Index: Copy + Eq + Hash + Send + Sync;

    /// Kind, for metrics and logs.
    const KIND: &'static str;

    /// The index entries of the object.
    fn indexed(&self) -> Vec<(Self::Index, String)>;

    /// Drops unused fields before the object is stored. Of `managedFields` is left that it was applied.
    fn trim(&mut self) {}
}

/// One object changed.
#[derive(Debug, Clone)]
pub struct Change<K> {
    /// The object as it was last reported; `None` if it is new. Of one that is gone, its last version.
    pub old: Option<Arc<K>>,
    /// The cached object now; `None` if it is gone.
    pub new: Option<Arc<K>>,
    /// The change was seen in a list rather than as a watch event.
    pub listed: bool,
    /// Who wrote it, if a pass of this process alone did.
    pub(crate) author: Option<Author>,
}

impl<K> Change<K> {
    /// Whether the pass of `by` over the object of that name does not know of the change already.
    pub(crate) fn is_news_to(&self, by: By, object: &ObjectName) -> bool {
        !self.author.as_ref().is_some_and(|author| author.is(by, object))
    }

    /// The object that is gone, also if another one has its name now: a list does not show what was between.
    pub(crate) fn gone(&self) -> Option<&Arc<K>>
    where
        K: Resource,
    {
        let uid = |object: &Arc<K>| object.meta().uid.clone();
        self.old.as_ref().filter(|old| self.new.as_ref().map(uid) != Some(uid(old)))
    }

    /// The object as it is now or, if it is gone, its last version.
    pub(crate) fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// How an object that cannot be read was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// In a list.
    Listed,
    /// It was added or changed.
    Changed,
    /// It was deleted.
    Gone,
}

/// A list that is being read.
struct Listing<K> {
    objects: HashMap<ObjectName, Arc<K>>,
    unreadable: HashMap<ObjectName, Broken>,
    /// What this process wrote since the list began, and which the list may not show yet.
    written: HashSet<ObjectName>,
}

/// A version of an object that cannot be read, and what is wrong with it.
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

struct Contents<K: Cached> {
    objects: HashMap<Arc<ObjectName>, Arc<K>>,
    /// Of some of `objects`, what only the authors of the last writes know.
    unreported: HashMap<ObjectName, Unreported<K>>,
    /// Objects that exist but cannot be read; `objects` may have an older version.
    unreadable: HashMap<ObjectName, Broken>,
    index: HashMap<(K::Index, String), Names>,
    /// The lists that are being read, one for each part, until they are complete.
    listings: HashMap<Option<String>, Listing<K>>,
    /// Parts whose first list is complete.
    complete: BTreeSet<Option<String>>,
    /// Number of parts.
    parts: usize,
}

/// The objects of one kind and their indexes, as the watch last saw them.
pub struct Cache<K: Cached> {
    contents: RwLock<Contents<K>>,
    synced: watch::Sender<bool>,
}

impl<K: Cached> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("kind", &K::KIND).field("objects", &self.len()).finish()
    }
}

impl<K: Cached> Default for Cache<K> {
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

impl<K: Cached> Cache<K> {
    fn read(&self) -> RwLockReadGuard<'_, Contents<K>> {
        self.contents.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents<K>> {
        self.contents.write()
    }

    /// Sets the number of watches that fill the cache, each of another namespace. Call it before they start.
    pub(crate) fn consists_of(&self, parts: usize) {
        self.write().parts = parts;
    }

    /// Waits for the first complete list.
    pub(crate) async fn synced(&self) {
        // The sender lives in `self`, so the channel cannot close while we wait.
        drop(self.synced.subscribe().wait_for(|synced| *synced).await);
    }

    /// Whether the first list is complete.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The object of that name.
    pub(crate) fn get(&self, name: &ObjectName) -> Option<Arc<K>> {
        self.read().objects.get(name).cloned()
    }

    /// Whether there is an object of that name, also one that cannot be read.
    pub(crate) fn has(&self, name: &ObjectName) -> bool {
        let contents = self.read();
        contents.objects.contains_key(name) || contents.unreadable.contains_key(name)
    }

    /// The objects indexed under `value`, by name.
    pub(crate) fn find(&self, index: K::Index, value: &str) -> Vec<Arc<K>> {
        let contents = self.read();
        let found = contents.under(index, value);
        counted(found.filter_map(|name| contents.objects.get(name)).cloned().collect())
    }

    /// Whether an object indexed under `value` is as `wanted`. Looks at no more objects than it has to.
    pub(crate) fn any(&self, index: K::Index, value: &str, wanted: impl Fn(&K) -> bool) -> bool {
        let contents = self.read();
        let mut found = contents.under(index, value);
        found.any(|name| contents.objects.get(name).is_some_and(|object| wanted(object)))
    }

    /// The names of the objects indexed under `value`, in order.
    pub(crate) fn find_names(&self, index: K::Index, value: &str) -> Vec<ObjectName> {
        counted(self.read().under(index, value).map(|name| (**name).clone()).collect())
    }

    /// How many objects are indexed under `value`.
    pub(crate) fn count(&self, index: K::Index, value: &str) -> usize {
        self.read().index.get(&(index, value.to_owned())).map_or(0, Names::len)
    }

    /// Every value of an index.
    pub(crate) fn values(&self, index: K::Index) -> Vec<String> {
        let contents = self.read();
        let values = contents.index.keys().filter(|(of, _)| *of == index);
        values.map(|(_, value)| value.clone()).collect()
    }

    /// Every object, in any order.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        counted(self.read().objects.values().cloned().collect())
    }

    /// Every name, in any order.
    pub(crate) fn names(&self) -> Vec<ObjectName> {
        counted(self.read().objects.keys().map(|name| (**name).clone()).collect())
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there is no object.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some objects cannot be read. Then no object may count as absent because it is not cached, nor as
    /// unused because no cached object uses it.
    pub(crate) fn has_unreadable(&self) -> bool {
        !self.read().unreadable.is_empty()
    }

    /// As [`Self::has_unreadable`], of one namespace: the first object there that cannot be read, and why, for people.
    pub(crate) fn unreadable_in(&self, namespace: &str) -> Option<String> {
        let contents = self.read();
        let there = contents.unreadable.iter().filter(|(name, _)| name.namespace == namespace);
        let (name, broken) = there.min_by_key(|(name, _)| *name)?;
        Some(cannot_be_read(K::KIND, name, &broken.why))
    }

    /// Records that an object cannot be read. The last readable version stays until the object is gone. Returns
    /// whether this is new, and what changed.
    pub(crate) fn skip(
        &self,
        part: Option<&str>,
        seen: Seen,
        object: &Unreadable,
    ) -> (bool, Option<Change<K>>) {
        let meta = &object.meta;
        let namespace = meta.namespace.as_deref().or(part).unwrap_or_default();
        let name = ObjectName::new(namespace, meta.name.as_deref().unwrap_or_default());
        let broken = Broken { version: meta.resource_version.clone(), why: object.why.clone() };
        let mut contents = self.write();
        let news = contents.unreadable.get(&name) != Some(&broken);
        match seen {
            Seen::Gone => {
                let revision = Revision::of(broken.version.as_deref());
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

    /// Stores the answer to one of our own writes, ahead of the watch; its later event is a change by `author`. The
    /// write must have been conditional on the resource version that it was planned from: otherwise the answer may
    /// contain a change by another client, which the author does not know.
    pub(crate) fn update(&self, mut object: K, author: Author) {
        prepare(&mut object);
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
    pub fn apply(&self, event: Event<K>) -> Vec<Change<K>> {
        self.apply_part(None, event)
    }

    /// Applies an event of the watch of one namespace, or of all, and returns what changed.
    pub(crate) fn apply_part(&self, part: Option<&str>, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Apply(object) => self.apply_one(object).into_iter().collect(),
            Event::Delete(object) => self.delete(&object).into_iter().collect(),
            Event::Init => {
                self.write().listings.insert(part.map(str::to_owned), Listing::default());
                Vec::new()
            }
            Event::InitApply(mut object) => {
                prepare(&mut object);
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

    fn apply_one(&self, mut object: K) -> Option<Change<K>> {
        prepare(&mut object);
        let name = ObjectName::of(&object);
        let mut contents = self.write();
        if contents.objects.get(&name).is_some_and(|here| is_older(&object, here)) {
            return None;
        }
        contents.report(name, Arc::new(object), false)
    }

    fn delete(&self, object: &K) -> Option<Change<K>> {
        let name = ObjectName::of(object);
        self.write().delete(&name, revision(object))
    }

    /// Completes the list of a part: returns what changed, and whether every part was listed. A list shows the objects as they
    /// are, so all that may be newer here is what was written since it began. Anything else is from before a restore of the API.
    fn finish_listing(&self, part: Option<&str>) -> (Vec<Change<K>>, bool) {
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

impl<K: Cached> Contents<K> {
    /// The names under a value of an index, in order.
    fn under(&self, index: K::Index, value: &str) -> impl Iterator<Item = &Arc<ObjectName>> {
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

    /// Stores what the watch reports; returns what is new to others than the authors of own writes.
    fn report(&mut self, name: ObjectName, new: Arc<K>, listed: bool) -> Option<Change<K>> {
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
    fn delete(&mut self, name: &ObjectName, revision: Revision) -> Option<Change<K>> {
        let newer = |here: Revision| revision.is_older_than(here);
        if self.unreadable.get(name).is_some_and(|it| !newer(Revision::of(it.version.as_deref()))) {
            self.unreadable.remove(name);
        }
        if newer(self::revision(self.objects.get(name)?.as_ref())) {
            return None;
        }
        let old = self.remove(name);
        old.is_some().then_some(Change { old, new: None, listed: false, author: None })
    }

    fn put(&mut self, name: ObjectName, object: Arc<K>) -> Option<Arc<K>> {
        self.unreadable.remove(&name);
        let keys = object.indexed();
        // Most changes leave the keys alone.
        if let Some(here) = self.objects.get_mut(&name)
            && here.indexed() == keys
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

    fn remove(&mut self, name: &ObjectName) -> Option<Arc<K>> {
        self.unreported.remove(name);
        self.take(name)
    }

    /// Takes an object out of the indexes as well.
    fn take(&mut self, name: &ObjectName) -> Option<Arc<K>> {
        let old = self.objects.remove(name)?;
        for key in old.indexed() {
            if self.index.get_mut(&key).is_some_and(|names| names.remove(name)) {
                self.index.remove(&key);
            }
        }
        Some(old)
    }
}

/// What the cache hands out, which tests count.
fn counted<T>(handed_out: Vec<T>) -> Vec<T> {
    #[cfg(test)]
    crate::bench::hand_out(handed_out.len());
    handed_out
}

fn revision<K: Resource>(object: &K) -> Revision {
    Revision::of(object.meta().resource_version.as_deref())
}

/// Whether a version of an object is known to be older than the one here.
fn is_older<K: Resource>(object: &K, here: &Arc<K>) -> bool {
    revision(object).is_older_than(revision(here.as_ref()))
}

/// Whether two objects of one name are the same version of it.
fn is_same<K: Resource>(one: &K, other: &K) -> bool {
    let version = &one.meta().resource_version;
    version.is_some() && *version == other.meta().resource_version
}

fn prepare<K: Cached>(object: &mut K) {
    let mut managers = object.meta_mut().managed_fields.take().into_iter().flatten();
    let applied = managers.find_map(|it| it.operation.filter(|it| it == "Apply"));
    object.meta_mut().managed_fields = applied.map(|it| {
        vec![ManagedFieldsEntry { operation: Some(it), ..ManagedFieldsEntry::default() }]
    });
    object.trim();
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
