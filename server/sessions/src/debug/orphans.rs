//! What is known of orphans, and the word that they may go.

use futures::future::BoxFuture;
use ostler_proto::v1alpha1::{
    AcceptOrphansRequest, AcceptOrphansResponse, ListOrphansRequest, ListOrphansResponse,
};
use tonic::Status;

use super::{Caller, Debug, SHOWN};

/// Who looks for orphans.
pub trait OrphanDesk: Send + Sync + 'static {
    /// Every orphan of a provider, or of all if it is empty, the longest known first; all but
    /// `core` and `left_out`.
    fn list(&self, provider: String) -> BoxFuture<'_, Result<ListOrphansResponse, Refused>>;

    /// Takes the mark of that time away. Returns how many orphans are known.
    fn accept(&self, since: String) -> BoxFuture<'_, Result<usize, Refused>>;
}

/// Why nothing was shown or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is no mark of that time; what there is instead.
    NoSuchHold(String),
    /// The API server could not be asked.
    Unavailable(String),
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoSuchHold(why) => Self::failed_precondition(why),
            Refused::Unavailable(why) => Self::unavailable(why),
        }
    }
}

pub(super) async fn list(
    debug: &Debug,
    wanted: ListOrphansRequest,
) -> Result<ListOrphansResponse, Status> {
    let shell = &debug.sessions.shell;
    let provider = shell.options.canonical(&wanted.provider).to_owned();
    let limit = match wanted.limit {
        0 => SHOWN,
        limit => usize::try_from(limit).unwrap_or(SHOWN),
    };
    let mut answer = debug.orphans.list(provider).await?;
    let left_out = answer.orphans.len().saturating_sub(limit);
    answer.orphans.truncate(limit);
    answer.left_out = u32::try_from(left_out).unwrap_or(u32::MAX);
    answer.core = Some(debug.core());
    Ok(answer)
}

pub(super) async fn accept(
    debug: &Debug,
    Caller(caller): &Caller,
    AcceptOrphansRequest { since }: AcceptOrphansRequest,
) -> Result<AcceptOrphansResponse, Status> {
    if !*debug.leading.borrow() {
        return Err(Status::failed_precondition("this core does not lead; ask the one that does"));
    }
    let accepted = debug.orphans.accept(since.clone()).await;
    let outcome = if accepted.is_ok() { "accepted" } else { "refused" };
    tracing::info!(
        target: "ostler::audit",
        who = caller, verb = "accept", object = "orphans", since, outcome
    );
    let orphans = accepted?;
    tracing::warn!(caller, since, orphans, "orphans are deleted from now on, by hand");
    let orphans = u32::try_from(orphans).unwrap_or(u32::MAX);
    Ok(AcceptOrphansResponse { core: Some(debug.core()), orphans })
}
