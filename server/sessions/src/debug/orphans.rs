//! The known orphans, and the acceptance of their deletion.

use std::time::Duration;

use futures::future::BoxFuture;
use ostler_proto::v1alpha1::{
    self, AcceptOrphansRequest, AcceptOrphansResponse, ListOrphansRequest, ListOrphansResponse,
    OrphanHold, OrphanInfo,
};
use tonic::Status;

use super::{Caller, Debug, SHOWN};

/// The orphan scanner, for the debug service.
pub trait OrphanDesk: Send + Sync + 'static {
    /// Every orphan of a provider, or of all if it is empty, the longest known first.
    fn list(&self, provider: String) -> BoxFuture<'_, Result<OrphanReport, Refused>>;

    /// Takes the mark of that time away. Returns how many orphans are known.
    fn accept(&self, since: String) -> BoxFuture<'_, Result<usize, Refused>>;
}

/// The known orphans.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrphanReport {
    /// The longest known first.
    pub orphans: Vec<ReportedOrphan>,
    /// The mark by which orphans are only reported, if set.
    pub hold: Option<ReportedHold>,
    /// The settings of the core say to report orphans only.
    pub report_only: bool,
    /// Providers whose instances this core has not listed yet, or could not list, except providers whose driver lists
    /// nothing. While orphans are held, providers without a class are included.
    pub not_listed: Vec<String>,
}

/// The mark by which orphans are only reported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedHold {
    /// When the mark was set.
    pub since: String,
    /// Why, for people.
    pub reason: String,
}

/// One orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedOrphan {
    /// Its provider.
    pub provider: String,
    /// Its instances.
    pub provider_ids: Vec<String>,
    /// Parts that belong to no instance.
    pub parts: Vec<String>,
    /// The Machine in the tags.
    pub machine_name: String,
    /// The UID in the tags; empty if none.
    pub machine_uid: String,
    /// A class of the orphan's listing.
    pub machine_class: String,
    /// Time since the first list with the orphan.
    pub known_for: Duration,
    /// The fate of the orphan.
    pub fate: OrphanFate,
    /// Deletions that failed.
    pub failures: u32,
    /// Why the orphan is kept, for people; empty if not kept.
    pub kept: String,
}

/// The fate of an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanFate {
    /// A first list showed the orphan; another list must confirm it.
    ToBeConfirmed,
    /// The orphan is kept.
    Reported,
    /// The orphan is deleted next.
    ToBeDeleted,
}

/// Why nothing was shown or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// No mark of the given time exists; the current state instead.
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
    let provider = shell.options.canonical(wanted.provider.as_str());
    let limit = match wanted.limit {
        0 => SHOWN,
        limit => usize::try_from(limit).unwrap_or(SHOWN),
    };
    let OrphanReport { orphans, hold, report_only, not_listed } =
        debug.orphans.list(provider.into()).await?;
    let left_out = orphans.len().saturating_sub(limit);
    Ok(ListOrphansResponse {
        core: Some(debug.core()),
        orphans: orphans.into_iter().take(limit).map(info).collect(),
        left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
        hold: hold.map(|ReportedHold { since, reason }| OrphanHold { since, reason }),
        report_only,
        not_listed,
    })
}

fn info(orphan: ReportedOrphan) -> OrphanInfo {
    let fate = match orphan.fate {
        OrphanFate::ToBeConfirmed => v1alpha1::OrphanFate::ToBeConfirmed,
        OrphanFate::Reported => v1alpha1::OrphanFate::Reported,
        OrphanFate::ToBeDeleted => v1alpha1::OrphanFate::ToBeDeleted,
    };
    OrphanInfo {
        provider: orphan.provider,
        provider_ids: orphan.provider_ids,
        machine_name: orphan.machine_name,
        machine_uid: orphan.machine_uid,
        machine_class: orphan.machine_class,
        known_for: orphan.known_for.try_into().ok(),
        fate: fate.into(),
        failures: orphan.failures,
        kept: orphan.kept,
        parts: orphan.parts,
    }
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
