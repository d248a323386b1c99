//! Which kinds are served at this moment.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    kinds::Registry,
    store::{Prefix, Store},
};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Keeps a [`Registry`] in step with the definitions in the store.
///
/// Asked after a definition was written, it has seen it: who was told that a kind is established
/// finds it served. That costs a look at the definitions' revisions after any write, and building
/// the registry anew after a definition changed.
#[derive(Clone)]
pub struct Served {
    store: Store,
    known: Arc<Mutex<Known>>,
}

struct Known {
    /// The store's revision when the definitions were last looked at.
    checked: u64,
    /// The revisions of all definitions then.
    revisions: Vec<u64>,
    registry: Registry,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

impl Served {
    /// Serves the built-in kinds and those defined in the store.
    pub fn new(store: Store) -> Self {
        let known = Known { checked: 0, revisions: Vec::new(), registry: Registry::built_in() };
        Self { store, known: Arc::new(Mutex::new(known)) }
    }

    /// The kinds that are served now.
    pub fn registry(&self) -> Registry {
        let now = self.store.revision();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.checked >= now {
            return known.registry.clone();
        }
        let page = self.store.list(&Prefix::resource(GROUP, PLURAL), None, None);
        let revisions: Vec<u64> = page.records.iter().map(|record| record.revision).collect();
        if revisions != known.revisions {
            let definitions: Vec<_> =
                page.records.iter().map(crate::store::Record::object).collect();
            known.registry = Registry::with_definitions(&definitions);
            known.revisions = revisions;
        }
        known.checked = page.revision;
        known.registry.clone()
    }
}
