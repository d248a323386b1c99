//! The content of a list, object by object.

use std::sync::Arc;

use kube::Resource;

use super::{Lenient, ObjectName, cannot_be_read};

/// The content of a list.
#[derive(Debug)]
pub struct Found<K> {
    /// The objects that can be read.
    pub objects: Vec<Arc<K>>,
    /// Names of unreadable objects.
    pub unread: Vec<ObjectName>,
    /// The fault of the first unreadable object, for people.
    pub unreadable: Option<String>,
}

impl<K> Default for Found<K> {
    fn default() -> Self {
        Self { objects: Vec::new(), unread: Vec::new(), unreadable: None }
    }
}

impl<K: Resource<DynamicType = ()>> Found<K> {
    /// Adds a page of the list.
    pub fn add(&mut self, items: Vec<Lenient<K>>) {
        for item in items {
            let name = ObjectName::of(&item);
            match item {
                Lenient::Read(object) => self.objects.push(Arc::new(object)),
                Lenient::Unreadable(broken) => {
                    let say = || cannot_be_read(&K::kind(&()), &name, &broken.why);
                    self.unreadable.get_or_insert_with(say);
                    self.unread.push(name);
                }
            }
        }
    }
}
