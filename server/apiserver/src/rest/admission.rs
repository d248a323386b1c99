//! What the server adds to an object, or refuses, by who asks and when.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{is, stored::meta_text};
use crate::{
    auth::{self, Identity},
    kinds::{BuiltIn, Resource, Subresource, certificate},
    status::{Answer, Status},
};

/// Looks at what a client wants to write.
pub(crate) struct Admission {
    /// Who asks; none where the handlers stand alone.
    pub(crate) requester: Option<Identity>,
    /// What is written.
    pub(crate) resource: Arc<Resource>,
    /// The part of it.
    pub(crate) part: Option<Subresource>,
    /// When.
    pub(crate) now: Timestamp,
}

impl Admission {
    /// The object that `new` becomes, where `old` is, or nothing.
    ///
    /// # Errors
    /// The one who asks may not write it (403).
    pub(crate) fn admit(&self, old: Option<&Value>, mut new: Value) -> Answer<Value> {
        if let Some(requester) = &self.requester {
            let write = auth::Write { resource: &self.resource, part: self.part, old, new: &new };
            auth::restrict(requester, write)
                .map_err(|why| Status::forbidden(&self.resource, meta_text(&new, "name"), &why))?;
        }
        if is(&self.resource, BuiltIn::CertificateSigningRequest) {
            match old {
                None => certificate::set_requester(&mut new, self.requester.as_ref()),
                Some(old) => certificate::stamp(&mut new, old, self.now),
            }
        }
        Ok(new)
    }
}
