//! The names of the objects under one value of an index.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ObjectName;

/// One or more names, in order. Under most values there is a single name, for which a set would take half a kilobyte.
#[derive(Debug)]
pub(super) enum Names {
    One(Arc<ObjectName>),
    Many(BTreeSet<Arc<ObjectName>>),
}

impl Names {
    pub(super) fn insert(&mut self, name: Arc<ObjectName>) {
        match self {
            Self::One(one) if *one == name => {}
            Self::One(one) => *self = Self::Many([one.clone(), name].into()),
            Self::Many(all) => drop(all.insert(name)),
        }
    }

    /// Returns whether none is left.
    pub(super) fn remove(&mut self, name: &ObjectName) -> bool {
        match self {
            Self::One(one) => **one == *name,
            Self::Many(all) => {
                all.remove(name);
                all.is_empty()
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<ObjectName>> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), None),
            Self::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
        }
    }
}
