//! Revisions of classes that drivers may still ask for.

use std::sync::Arc;

use lru::LruCache;
use ostler_api::Revision;
use ostler_proto::v1alpha1::ObjectRevision;
use parking_lot::Mutex;

use crate::convert::class_reference;
use crate::{ClassContent, ClassError, ClassSource};

/// Revisions that were dispatched or served. A revision in use by an operation is held by the operation as well, and
/// stays; of the others the latest stay.
#[derive(Debug)]
pub(crate) struct RevisionCache(Mutex<State>);

#[derive(Debug)]
struct State {
    limit: usize,
    /// By name and revision. [`Self::keep`] holds the limit, because it spares revisions in use by operations.
    kept: LruCache<String, Arc<ClassContent>>,
}

impl RevisionCache {
    /// Keeps `limit` revisions that no operation refers to.
    pub(crate) fn new(limit: usize) -> Self {
        Self(Mutex::new(State { limit, kept: LruCache::unbounded() }))
    }

    /// Keeps the class of an operation about to be dispatched, with the current secret, if known.
    pub(crate) fn pin(
        &self,
        source: &dyn ClassSource,
        wanted: &ObjectRevision,
    ) -> (Option<Arc<ClassContent>>, Option<Revision>) {
        let newest = source.class(&wanted.namespace, &wanted.name).ok();
        let mut state = self.0.lock();
        let secret = newest.as_ref().map(ClassContent::secret);
        let class = match newest.filter(|newest| fits(wanted, newest)) {
            Some(newest) => Some(state.keep(wanted, newest)),
            None => state.earlier(source, wanted),
        };
        (class, secret)
    }

    /// The class that a driver asks for. `Ok(None)` if the class is there, but not at that
    /// revision any more.
    pub(crate) fn find(
        &self,
        source: &dyn ClassSource,
        wanted: &ObjectRevision,
    ) -> Result<Option<Arc<ClassContent>>, ClassError> {
        let newest = source.class(&wanted.namespace, &wanted.name);
        let mut state = self.0.lock();
        let gone = match newest {
            Ok(newest) if fits(wanted, &newest) => {
                return Ok(Some(state.keep(wanted, newest)));
            }
            Ok(_) => Ok(None),
            Err(ClassError::NamespaceDenied) => return Err(ClassError::NamespaceDenied),
            Err(error @ (ClassError::NotFound | ClassError::Unavailable(_))) => Err(error),
        };
        state.earlier(source, wanted).map_or(gone, |kept| Ok(Some(kept)))
    }
}

impl State {
    /// An older revision of the class.
    fn earlier(
        &mut self,
        source: &dyn ClassSource,
        wanted: &ObjectRevision,
    ) -> Option<Arc<ClassContent>> {
        if let Some(kept) = self.kept.get(&revision_key(wanted, &wanted.revision)) {
            return Some(Arc::clone(kept));
        }
        source.earlier(&class_reference(wanted)).map(|class| self.keep(wanted, class))
    }

    /// Keeps a revision, at the price of the least recently used revision that no operation holds.
    fn keep(&mut self, wanted: &ObjectRevision, class: ClassContent) -> Arc<ClassContent> {
        let key = revision_key(wanted, class.revision.as_str());
        if let Some(kept) = self.kept.get(&key)
            && **kept == class
        {
            return Arc::clone(kept);
        }
        let class = Arc::new(class);
        self.kept.put(key, Arc::clone(&class));
        while self.kept.len() > self.limit {
            let free = self.kept.iter().rev().find(|(_, class)| Arc::strong_count(class) == 1);
            let Some(key) = free.map(|(key, _)| key.clone()) else { break };
            self.kept.pop(&key);
        }
        class
    }
}

fn fits(wanted: &ObjectRevision, class: &ClassContent) -> bool {
    wanted.revision.is_empty() || class.revision == *wanted.revision
}

fn revision_key(wanted: &ObjectRevision, revision: &str) -> String {
    format!("{}/{}/{revision}", wanted.namespace, wanted.name)
}

#[cfg(test)]
mod tests {
    use ostler_api::operation::ClassReference;

    use crate::SecretContent;

    use super::*;

    /// Every class of namespace `default`, at one revision.
    struct At(u32, u32);

    #[tonic::async_trait]
    impl ClassSource for At {
        fn class(&self, namespace: &str, _name: &str) -> Result<ClassContent, ClassError> {
            match namespace {
                "default" => Ok(ClassContent {
                    revision: self.0.to_string().into(),
                    secret_revision: Some(self.1.to_string().into()),
                    ..Default::default()
                }),
                "gone" => Err(ClassError::NotFound),
                _ => Err(ClassError::NamespaceDenied),
            }
        }

        async fn secret(&self, _: &ClassReference) -> Result<SecretContent, ClassError> {
            Err(ClassError::NotFound)
        }
    }

    fn class(revision: &str) -> ObjectRevision {
        ObjectRevision {
            uid: String::new(),
            namespace: "default".into(),
            name: "small".into(),
            revision: revision.into(),
        }
    }

    fn found(revisions: &RevisionCache, source: &At, revision: &str) -> Option<Revision> {
        revisions.find(source, &class(revision)).unwrap().map(|class| class.revision.clone())
    }

    #[test]
    fn an_empty_revision_is_the_newest() {
        assert_eq!(found(&RevisionCache::new(2), &At(7, 1), ""), Some("7".into()));
    }

    #[test]
    fn a_revision_that_was_served_is_served_again_after_an_edit() {
        let revisions = RevisionCache::new(2);
        assert_eq!(found(&revisions, &At(7, 1), "7"), Some("7".into()));
        assert_eq!(found(&revisions, &At(8, 1), "7"), Some("7".into()));
        assert_eq!(found(&revisions, &At(8, 1), "6"), None);
    }

    #[test]
    fn a_revision_that_an_operation_refers_to_stays_however_many_follow() {
        let revisions = RevisionCache::new(2);
        let (pinned, _) = revisions.pin(&At(0, 1), &class("0"));
        for revision in 1..10 {
            revisions.find(&At(revision, 1), &class("")).unwrap();
        }
        assert_eq!(found(&revisions, &At(9, 1), "0"), Some("0".into()));
        assert_eq!(found(&revisions, &At(9, 1), "1"), None);
        drop(pinned);
        revisions.find(&At(10, 1), &class("")).unwrap();
        revisions.find(&At(11, 1), &class("")).unwrap();
        assert_eq!(found(&revisions, &At(11, 1), "0"), None);
    }

    #[test]
    fn classes_that_are_not_there_and_foreign_namespaces_are_told_apart() {
        let revisions = RevisionCache::new(2);
        let of = |namespace: &str| ObjectRevision { namespace: namespace.into(), ..class("") };
        assert_eq!(revisions.find(&At(1, 1), &of("gone")), Err(ClassError::NotFound));
        assert_eq!(revisions.find(&At(1, 1), &of("other")), Err(ClassError::NamespaceDenied));
    }
}
