//! Authentication and authorization.
//!
//! * `authenticate` finds the user of a request: from a client certificate or a bearer token.
//!   `certificates`: those of the server, and those that clients ask for and show.
//! * `Attributes`: what a request wants to do, read from its method, path and field selector.
//! * `authorize`: the whole policy. There is no RBAC: members of `system:masters` may do
//!   everything, other authenticated users may read discovery and ask about themselves, and
//!   every client may read health and version. The holder of a bootstrap token may ask for a
//!   certificate (`bootstrap`), and a node may do what concerns it: the rules are in `policy`,
//!   `node` tells which objects those are (`bound` knows what its pods refer to), `restriction` what
//!   it may write into them, and `quota` how much.
//! * `token`: signed ServiceAccount tokens; `service_account` issues them and checks them against
//!   the objects they stand for.
//! * `review`: the answers of `authentication.k8s.io` and `authorization.k8s.io`, and
//!   `serviceaccounts/token`. None of them is stored.

mod attributes;
mod authenticate;
mod authorize;
mod bootstrap;
mod bound;
pub(crate) mod certificates;
mod node;
mod policy;
mod quota;
mod restriction;
mod review;
mod service_account;
mod token;

use std::{io, path::Path, sync::Arc};

use crate::{
    clock::Clock,
    context::Context,
    kinds::{identity::Identity, status::Answer},
    store::secret::{self, keep},
};

pub use crate::{kinds::identity::NODE_ANNOTATION, store::secret::Secret};
pub(crate) use attributes::{Attributes, Target};
pub(crate) use authenticate::refuse_impersonation;
pub(crate) use authorize::{is_bootstrapper, permits};
pub(crate) use bootstrap::{
    SECRET_TYPE as BOOTSTRAP_SECRET_TYPE, bound_to, expiration as bootstrap_expiration,
    standing_token,
};
pub(crate) use bound::Bound;
pub(crate) use quota::{Quota, Reservation};
pub(crate) use restriction::{Write, restrict};
pub(crate) use review::Review;

use token::Signer;

/// The parts of authentication. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    context: Context,
    signer: Arc<Signer>,
    admin_token: Arc<Secret>,
    bound: Bound,
}

impl Auth {
    /// Reads the admin token and the signing key from `directory`, or makes new ones there.
    /// Without a directory both live as long as the process.
    pub(crate) fn open(context: Context, directory: Option<&Path>) -> io::Result<Self> {
        let admin_token = keep(directory, "admin-token", secret::random)?;
        let key = keep(directory, "token-signing-key", secret::random)?;
        Ok(Self::with(context, admin_token, &key))
    }

    /// Stands on these secrets.
    pub(crate) fn with(context: Context, admin_token: Secret, key: &Secret) -> Self {
        let signer = Signer::new(key.expose().as_bytes());
        let bound = Bound::new(context.store.clone());
        Self { context, signer: Arc::new(signer), admin_token: Arc::new(admin_token), bound }
    }

    /// Refuses what `identity` may not do.
    pub(crate) fn check(&self, identity: &Identity, attributes: &Attributes) -> Answer<()> {
        if self.permits(identity, attributes) {
            Ok(())
        } else {
            Err(attributes.forbidden(identity))
        }
    }

    /// Whether `identity` may do this.
    fn permits(&self, identity: &Identity, attributes: &Attributes) -> bool {
        permits(identity, attributes, &self.bound)
    }

    /// The clock that credentials are judged by.
    pub(crate) fn clock(&self) -> Clock {
        Clock::clone(&self.context.clock)
    }

    /// The bearer token of [`Identity::admin`].
    pub(crate) fn admin_token(&self) -> &Secret {
        &self.admin_token
    }
}
