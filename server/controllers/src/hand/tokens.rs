//! Bootstrap tokens of an owner, in the cluster that the owner's Nodes join.

use ostler_lifecycle::pool::of_template;
use ostler_lifecycle::write::{Object, TokenWrite};

use super::Hand;
use crate::client::WriteError;
use crate::target::TargetOf;
use crate::tokens::{self, Put};

impl Hand<'_> {
    /// Makes or deletes a token.
    pub(super) async fn token(&self, of: &Object, write: &TokenWrite) -> Result<(), WriteError> {
        let Object::Pool(pool) = of else { return Ok(()) };
        let target = match self.stores.targets.of(&of_template(pool)) {
            TargetOf::None => return Ok(()),
            TargetOf::Lacking { message, .. } => return Err(WriteError::Other(message)),
            TargetOf::Cluster(target) => target,
        };
        let writer = &self.writer.to(&target.client);
        match write {
            TokenWrite::Ensure(request) => match tokens::ensure(writer, request, true).await? {
                Put::Done(_) => Ok(()),
                Put::Taken(_) => Err(WriteError::Conflict),
            },
            TokenWrite::Delete { id, owner } => tokens::delete_of(writer, id, owner.as_str()).await,
        }
    }
}
