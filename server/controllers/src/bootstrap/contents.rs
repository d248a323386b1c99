//! The cached state of a kind of bootstrap config and of its objects.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::Event;
use ostler_lifecycle::bootstrap::{ConfigFacts, ConfigKind, ConfigView, is_template};

use crate::watch::ResourceVersion;

/// Whether the objects of a kind can be looked up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum KindState {
    /// Not asked yet, or not listed yet.
    #[default]
    NotListed,
    /// The API server does not serve the kind.
    Missing,
    /// The kind has no namespaces.
    WithoutNamespace,
    /// Nothing marks the kind as a bootstrap provider's.
    Unmarked,
    /// The API server refuses access: its message.
    Unreadable(String),
    /// All of them are here.
    Synced,
}

/// The state of a kind and its objects. Bounded by the objects that exist; only the fields of the contract are kept,
/// and of templates what copies are made from.
#[derive(Debug, Default)]
pub(super) struct Contents {
    templates: bool,
    inner: Mutex<Inner>,
}

type Objects = HashMap<String, Arc<ConfigFacts>>;

#[derive(Debug, Default)]
struct Inner {
    state: KindState,
    resource: Option<ApiResource>,
    objects: Objects,
    /// The unfinished list.
    listing: Option<Listing>,
}

#[derive(Debug, Default)]
struct Listing {
    objects: Objects,
    /// Names written by this process since the list began, which the list may not show yet.
    written: HashSet<String>,
}

impl Contents {
    pub(super) fn of(kind: &ConfigKind) -> Self {
        Self { templates: is_template(&kind.kind), ..Self::default() }
    }

    fn read(&self, object: &DynamicObject) -> (String, Arc<ConfigFacts>) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let of = if self.templates { ConfigFacts::of_template } else { ConfigFacts::of };
        (name, Arc::new(of(&object.metadata, &object.data)))
    }

    pub(super) fn view(&self, name: &str) -> ConfigView {
        let inner = self.inner.lock();
        match &inner.state {
            KindState::NotListed => ConfigView::Unknown,
            KindState::Missing => ConfigView::KindMissing,
            KindState::WithoutNamespace => ConfigView::KindWithoutNamespace,
            KindState::Unmarked => ConfigView::KindUnmarked,
            KindState::Unreadable(why) => ConfigView::Unreadable(why.clone()),
            KindState::Synced => {
                let found = inner.objects.get(name).map(Arc::clone);
                found.map_or(ConfigView::Absent, ConfigView::Known)
            }
        }
    }

    /// Those that the object with this UID owns, and that are not being deleted, by name.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<(String, Arc<ConfigFacts>)> {
        let inner = self.inner.lock();
        let is_owned = |facts: &ConfigFacts| {
            !facts.is_deleting && facts.owner_references.iter().any(|owner| owner.uid == uid)
        };
        let owned = inner.objects.iter().filter(|(_, facts)| is_owned(facts));
        owned.map(|(name, facts)| (name.clone(), Arc::clone(facts))).collect()
    }

    pub(super) fn resource(&self) -> Option<ApiResource> {
        self.inner.lock().resource.clone()
    }

    pub(super) fn found(&self, resource: ApiResource) {
        self.inner.lock().resource = Some(resource);
    }

    /// The objects cannot be looked up, for this reason. Returns whether that is new.
    pub(super) fn set_state(&self, state: KindState) -> bool {
        let mut inner = self.inner.lock();
        inner.objects.clear();
        inner.listing = None;
        let new = inner.state != state;
        inner.state = state;
        new
    }

    pub(super) fn is_synced(&self) -> bool {
        self.inner.lock().state == KindState::Synced
    }

    /// Stores the answer to a write of ours.
    pub(super) fn update(&self, object: &DynamicObject) {
        let (name, facts) = self.read(object);
        let mut inner = self.inner.lock();
        if inner.objects.contains_key(&name) && !inner.has_newer(&name, &facts) {
            if let Some(listing) = &mut inner.listing {
                listing.written.insert(name.clone());
            }
            inner.put(name, facts);
        }
    }

    /// Applies an event of the watch. Returns the names of the changed objects, and whether the first list is
    /// complete.
    pub(super) fn apply(&self, event: Event<DynamicObject>) -> (Vec<String>, bool) {
        let mut inner = self.inner.lock();
        match event {
            Event::Apply(object) => {
                let (name, facts) = self.read(&object);
                let changed = !inner.has_newer(&name, &facts) && inner.put(name.clone(), facts);
                (changed.then_some(name).into_iter().collect(), false)
            }
            Event::Delete(object) => {
                let (name, _) = self.read(&object);
                (inner.objects.remove(&name).map(|_| name).into_iter().collect(), false)
            }
            Event::Init => {
                inner.listing = Some(Listing::default());
                (Vec::new(), false)
            }
            Event::InitApply(object) => {
                let (name, facts) = self.read(&object);
                inner.listing.get_or_insert_default().objects.insert(name, facts);
                (Vec::new(), false)
            }
            Event::InitDone => inner.finish_listing(),
        }
    }
}

impl Inner {
    /// Whether the given facts are older than the known ones.
    fn has_newer(&self, name: &str, facts: &ConfigFacts) -> bool {
        let here = self.objects.get(name);
        here.is_some_and(|here| revision(facts).is_older_than(revision(here)))
    }

    /// Stores the facts. Returns whether they are new.
    fn put(&mut self, name: String, facts: Arc<ConfigFacts>) -> bool {
        let news = self.objects.get(&name) != Some(&facts);
        self.objects.insert(name, facts);
        news
    }

    fn finish_listing(&mut self) -> (Vec<String>, bool) {
        let Listing { objects, written } = self.listing.take().unwrap_or_default();
        let mut changed: Vec<_> =
            self.objects.keys().filter(|name| !objects.contains_key(*name)).cloned().collect();
        self.objects.retain(|name, _| objects.contains_key(name));
        for (name, facts) in objects {
            // Anything else that is newer here is from before a restore of the API.
            let outdated = written.contains(&name) && self.has_newer(&name, &facts);
            if !outdated && self.put(name.clone(), facts) {
                changed.push(name);
            }
        }
        let first = self.state != KindState::Synced;
        self.state = KindState::Synced;
        (changed, first)
    }
}

fn revision(facts: &ConfigFacts) -> ResourceVersion {
    ResourceVersion::of(Some(&facts.resource_version))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, version: &str, status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "a.example/v1", "kind": "Config",
            "metadata": { "name": name, "resourceVersion": version }, "status": status
        }))
        .unwrap()
    }

    fn listed(objects: Vec<DynamicObject>) -> Contents {
        let contents = Contents::default();
        list(&contents, objects);
        contents
    }

    fn list(contents: &Contents, objects: Vec<DynamicObject>) -> (Vec<String>, bool) {
        contents.apply(Event::Init);
        for object in objects {
            contents.apply(Event::InitApply(object));
        }
        contents.apply(Event::InitDone)
    }

    #[test]
    fn nothing_is_absent_before_the_first_list_is_complete() {
        let contents = Contents::default();
        contents.apply(Event::Init);
        contents.apply(Event::InitApply(object("a", "1", &json!({ "ready": true }))));
        assert_eq!(contents.view("a"), ConfigView::Unknown);
        assert_eq!(contents.apply(Event::InitDone), (vec!["a".to_owned()], true));
        assert!(matches!(contents.view("a"), ConfigView::Known(facts) if facts.ready));
        assert_eq!(contents.view("b"), ConfigView::Absent);
    }

    #[test]
    fn a_second_list_reports_only_deleted_and_new_objects() {
        let contents = listed(vec![object("a", "1", &json!({})), object("b", "2", &json!({}))]);
        let (mut changed, first) =
            list(&contents, vec![object("b", "2", &json!({})), object("c", "3", &json!({}))]);
        changed.sort();
        assert_eq!((changed, first), (vec!["a".to_owned(), "c".to_owned()], false));
        assert_eq!(contents.view("a"), ConfigView::Absent);
    }

    #[test]
    fn an_event_older_than_our_own_write_changes_nothing() {
        let contents = listed(vec![object("a", "5", &json!({}))]);
        contents.update(&object("a", "7", &json!({ "ready": true })));
        let old = Event::Apply(object("a", "6", &json!({})));
        assert_eq!(contents.apply(old), (Vec::new(), false));
        assert!(matches!(contents.view("a"), ConfigView::Known(facts) if facts.ready));
        contents.update(&object("z", "9", &json!({})));
        assert_eq!(contents.view("z"), ConfigView::Absent, "a deleted object is not brought back");
    }

    #[test]
    fn a_list_replaces_what_is_newer_unless_we_wrote_it_since_the_list_began() {
        let contents = listed(vec![object("a", "5", &json!({ "ready": true }))]);
        contents.apply(Event::Init);
        contents.update(&object("a", "7", &json!({ "ready": true })));
        contents.apply(Event::InitApply(object("a", "5", &json!({}))));
        assert_eq!(contents.apply(Event::InitDone), (Vec::new(), false));
        let (changed, _) = list(&contents, vec![object("a", "3", &json!({}))]);
        assert_eq!(changed, ["a"], "the API was restored from a backup");
        assert!(matches!(contents.view("a"), ConfigView::Known(facts) if !facts.ready));
    }

    #[test]
    fn the_objects_of_a_removed_kind_are_forgotten() {
        let contents = listed(vec![object("a", "1", &json!({}))]);
        assert!(contents.set_state(KindState::Missing));
        assert!(!contents.set_state(KindState::Missing));
        assert_eq!(contents.view("a"), ConfigView::KindMissing);
        let (changed, first) = list(&contents, vec![object("a", "1", &json!({}))]);
        assert_eq!((changed.len(), first), (1, true));
    }
}
