//! What the server adds to an object, or refuses, by who asks and when.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::{is, stored::meta_text};
use crate::{
    auth::{self, Quota, Reservation},
    kinds::{
        BuiltIn, Resource, Subresource, certificate,
        identity::Identity,
        status::{Answer, Status},
    },
};

/// Looks at what a client wants to write.
pub(crate) struct Admission {
    /// The requester; none where the handlers stand alone.
    pub(crate) requester: Option<Identity>,
    /// What is written.
    pub(crate) resource: Arc<Resource>,
    /// The part of it.
    pub(crate) part: Option<Subresource>,
    /// When.
    pub(crate) now: Timestamp,
    /// The quota of the requester.
    pub(crate) quota: Quota,
    /// The room that the write takes while it goes on.
    pub(crate) held: Mutex<Option<Reservation>>,
}

impl Admission {
    /// The object that `new` becomes, where `old` is, or nothing.
    ///
    /// # Errors
    /// The requester may not write the object, or has stored too much (403).
    pub(crate) fn admit(&self, old: Option<&Value>, mut new: Value) -> Answer<Value> {
        if let Some(requester) = &self.requester {
            let write = auth::Write { resource: &self.resource, part: self.part, old, new: &new };
            let refused =
                |why: String| Status::forbidden(&self.resource, meta_text(&new, "name"), &why);
            auth::restrict(requester, write).map_err(refused)?;
            let mut held = self.held.lock();
            // the last attempt has failed: its room is free again
            drop(held.take());
            *held = self.quota.admit(requester, write).map_err(refused)?;
        }
        if is(&self.resource, BuiltIn::CertificateSigningRequest) {
            match old {
                None => certificate::set_requester(&mut new, self.requester.as_ref()),
                Some(old) => certificate::stamp(&mut new, old, self.now),
            }
        }
        Ok(new)
    }

    /// Notes that a new object is there.
    pub(crate) fn stored(&self, object: &Value) {
        if let Some(requester) = &self.requester {
            self.quota.stored(requester, &self.resource, object);
        }
    }
}
