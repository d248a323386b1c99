//! Finding the container of a machine.

use futures::{StreamExt as _, TryStreamExt as _};
use ostler_driver_sdk::DriverError;

use super::{DockerDriver, files};
use crate::engine::{Container, Engine, EngineError, Failure, Labels, Life, Summary};
use crate::errors::{Left, driver_error};
use crate::identity::{CLUSTER, Identity, MACHINE, UID, instance_of};
use crate::spec::{CLAIM_FILE, TAGS_FILE};
use crate::tags::TagFile;

/// Files read at once.
const READS: usize = 16;

/// A container and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) container: Container,
    pub(crate) tags: TagFile,
    pub(crate) claim: Labels,
}

impl Found {
    /// Whether it is a machine already, and not only parts of one: it ran.
    pub(super) fn is_made(&self) -> bool {
        self.container.ran
    }

    pub(super) fn name(&self) -> &str {
        &self.container.summary.name
    }

    /// A tag of the identity.
    pub(super) fn tag(&self, key: &str) -> &str {
        tag(&self.container.summary, &self.claim, key)
    }
}

/// A tag of the identity: what an adoption put there, or the label.
pub(super) fn tag<'a>(summary: &'a Summary, claim: &'a Labels, key: &str) -> &'a str {
    claim.get(key).or_else(|| summary.labels.get(key)).map_or("", String::as_str)
}

/// The tags of a container; none if it never got any, or is just going.
pub(crate) async fn tag_file(engine: &Engine, summary: &Summary) -> Result<TagFile, EngineError> {
    let tags = files::read(engine, &summary.id, TAGS_FILE).await;
    Ok(unless_going(engine, summary, tags).await?.unwrap_or_default())
}

/// The identity that an adoption put on a container, and the tags that came with it.
pub(crate) async fn claim(engine: &Engine, summary: &Summary) -> Result<Labels, EngineError> {
    let claim = match engine.has_file(&summary.id, CLAIM_FILE).await {
        Ok(true) => files::read(engine, &summary.id, CLAIM_FILE).await,
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    Ok(unless_going(engine, summary, claim).await?.unwrap_or_default())
}

/// A container that is being removed has no files any more, and an engine says that in many ways.
async fn unless_going<T>(
    engine: &Engine,
    summary: &Summary,
    read: Result<Option<T>, EngineError>,
) -> Result<Option<T>, EngineError> {
    match read {
        Err(error) if matches!(error.failure, Failure::Refused { .. }) => {
            let there = engine.container(&summary.id).await?;
            let going = |it: &Container| matches!(it.summary.life, Life::Going | Life::Dead);
            if there.as_ref().is_none_or(going) { Ok(None) } else { Err(error) }
        }
        read => read,
    }
}

impl DockerDriver {
    /// The container of a machine, also one that never ran.
    ///
    /// # Errors
    /// Among others: there is none, and the id names a container that is not this machine's.
    pub(super) async fn find(
        &self,
        identity: &Identity,
        provider_id: Option<&str>,
    ) -> Result<Option<Found>, DriverError> {
        match self.look(identity, provider_id).await? {
            (None, Some(not_ours)) => Err(DriverError::not_ours(not_ours)),
            (found, _) => Ok(found),
        }
    }

    /// As [`find`](Self::find), and beside it the id of the container that was named, if that is not
    /// this machine's.
    pub(super) async fn look(
        &self,
        identity: &Identity,
        provider_id: Option<&str>,
    ) -> Result<(Option<Found>, Option<String>), DriverError> {
        let looked = |error: EngineError| driver_error(&error, Left::Nothing);
        let mut not_ours = None;
        if let Some(name) = provider_id.and_then(instance_of)
            && let Some(found) = self.inspect(name).await.map_err(looked)?
        {
            let cluster = found.tag(CLUSTER) == identity.cluster_id;
            if cluster && found.tag(MACHINE) == identity.machine_name && found.name() == name {
                return Ok((Some(found), None));
            }
            not_ours = (found.name() == name).then(|| crate::identity::provider_id(name));
        }
        let mut found = self.of_identity(identity).await.map_err(looked)?;
        match (found.pop(), found.pop()) {
            (one, None) => Ok((one, not_ours)),
            (Some(one), Some(two)) => {
                let message = format!("both {} and {} are of this machine", one.name(), two.name());
                Err(DriverError::out_of_range(message).reason("SEVERAL_INSTANCES").not_applied())
            }
            (None, Some(_)) => Ok((None, not_ours)),
        }
    }

    /// Containers that carry this identity: by label, and by the file where it says another one.
    async fn of_identity(&self, identity: &Identity) -> Result<Vec<Found>, EngineError> {
        let labels =
            [(CLUSTER, identity.cluster_id.as_str()), (MACHINE, identity.machine_name.as_str())];
        let mut found = Vec::new();
        for candidate in self.engine.containers(&labels).await? {
            let claim = claim(&self.engine, &candidate).await?;
            if tag(&candidate, &claim, UID) == identity.machine_uid
                && let Some(one) = self.inspect(&candidate.id).await?
            {
                found.push(one);
            }
        }
        Ok(found)
    }

    /// One that is gone meanwhile is not there.
    pub(super) async fn inspect(&self, name: &str) -> Result<Option<Found>, EngineError> {
        let Some(container) = self.engine.container(name).await? else { return Ok(None) };
        let claim = claim(&self.engine, &container.summary).await?;
        let tags = tag_file(&self.engine, &container.summary).await?;
        Ok(Some(Found { container, tags, claim }))
    }

    /// All containers of a cluster, with the identity of each.
    pub(super) async fn of_cluster(
        &self,
        cluster_id: &str,
    ) -> Result<Vec<(Summary, Labels)>, EngineError> {
        let all = self.engine.containers(&[(CLUSTER, cluster_id)]).await?;
        futures::stream::iter(all)
            .map(|summary| async {
                let claim = claim(&self.engine, &summary).await?;
                Ok((summary, claim))
            })
            .buffered(READS)
            .try_collect()
            .await
    }
}

/// Labels of everything that is made for a machine.
pub(super) fn labels_of(identity: &Identity, instance: &str) -> Labels {
    let mut labels = identity.labels();
    labels.insert(crate::identity::INSTANCE.to_owned(), instance.to_owned());
    labels
}
