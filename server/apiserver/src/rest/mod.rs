//! What a request means: from an HTTP request to the store and back.
//!
//! * `handler`: the way of a request; `fixed` answers what is no resource, [`path`] and `resolve`
//!   find what an address names, `call` does what is asked for.
//! * `negotiate`, `body`, `protobuf`: reading the request.
//! * `admission`: what depends on who asks, and when.
//! * `write`: the one pipeline for everything that changes objects; `patching`, `applying`, `delete`,
//!   `scale`, `binding`, `eviction` say what a change is.
//! * `list`, `watch`, `select`: reading collections; `lines`: what watches have in common; `form`,
//!   `listing`, `respond`: writing the answer.
//! * `kept`: what an answer keeps in memory until it is read.
//! * `unevaluated`: what of a definition is stored and not done.
//! * `bounds`: how deep, large and many-valued an object may be that is stored.
//! * `stored`: between the store's text and the served object. `served`: which kinds there are.

mod admission;
mod applying;
mod binding;
pub(crate) mod body;
mod bounds;
mod call;
mod delete;
mod delete_options;
mod eviction;
mod fixed;
mod form;
mod handler;
mod kept;
mod lines;
mod list;
mod listing;
mod metadata;
mod negotiate;
mod number;
mod patching;
pub(crate) mod path;
mod priority;
pub(crate) mod protobuf;
mod resolve;
pub(crate) mod respond;
mod scale;
mod select;
mod served;
mod stored;
mod unevaluated;
#[cfg(test)]
mod unreadable_tests;
mod watch;
mod write;

use std::sync::Arc;

pub(crate) use handler::read;
pub(crate) use kept::Kept;
use lines::Lines;
pub(crate) use negotiate::Encoding;
pub(crate) use respond::Streamed;
pub(crate) use served::Served;

use crate::{
    auth::Quota,
    context::Context,
    kinds::{BuiltIn, Registry, Resource, Subresource},
};

/// The request handlers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    context: Context,
    served: Served,
    lines: Lines,
    quota: Quota,
}

/// The name of a new object, for readers of the answer alone.
#[derive(Clone, Debug)]
pub(crate) struct Named(pub(crate) String);

impl Api {
    /// Handlers over a store and a clock.
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            served: Served::new(context.store.clone()),
            lines: Lines::default(),
            quota: Quota::new(context.store.clone()),
        }
    }

    /// The kinds that are served now.
    pub(crate) fn registry(&self) -> Registry {
        self.served.registry()
    }

    fn now(&self) -> jiff::Timestamp {
        (self.context.clock)()
    }
}

/// An object or a collection, as an address names it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The resource.
    pub(crate) resource: Arc<Resource>,
    /// The namespace; empty for cluster-scoped objects and for all namespaces.
    pub(crate) namespace: String,
    /// The object's name; empty for a collection.
    pub(crate) name: String,
    /// The part of the object.
    pub(crate) part: Option<Subresource>,
}

impl Target {
    /// Another object of the same collection.
    fn sibling(&self, namespace: &str, name: &str) -> Self {
        Self {
            resource: Arc::clone(&self.resource),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            part: None,
        }
    }
}

/// Whether a resource is this built-in kind.
fn is(resource: &Resource, kind: BuiltIn) -> bool {
    resource.built_in() == Some(kind)
}
