//! Finding the container of a machine.

use futures::{StreamExt as _, TryStreamExt as _};
use ostler_driver_sdk::DriverError;

use super::DockerDriver;
use crate::engine::{Container, Engine, EngineError, Labels, Life, Summary};
use crate::errors::{Left, driver_error};
use crate::identity::{CLUSTER, Identity, MACHINE, UID, instance_of};
use crate::spec::TAGS_FILE;
use crate::tags::TagFile;

/// Written before [`TAGS_FILE`], and read if that is damaged: one of them is always whole.
pub(super) const NEXT_TAGS_FILE: &str = "/etc/ostler/tags.json.next";
/// Files read at once.
const READS: usize = 16;

/// A container and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) container: Container,
    pub(crate) tags: TagFile,
}

impl Found {
    /// Whether it is a machine already, and not only parts of one: it ran.
    pub(super) fn is_made(&self) -> bool {
        self.container.ran
    }

    pub(super) fn name(&self) -> &str {
        &self.container.summary.name
    }

    /// A tag of the identity: what an adoption put there, or the label.
    pub(super) fn tag(&self, key: &str) -> &str {
        tag(&self.container.summary, &self.tags, key)
    }
}

/// A tag of the identity: what an adoption put there, or the label.
pub(crate) fn tag<'a>(summary: &'a Summary, tags: &'a TagFile, key: &str) -> &'a str {
    let claimed = tags.driver.claim.get(key);
    claimed.or_else(|| summary.labels.get(key)).map_or("", String::as_str)
}

/// The tags of a container; none if it never got any.
pub(crate) async fn tag_file(engine: &Engine, container: &str) -> Result<TagFile, EngineError> {
    for path in [TAGS_FILE, NEXT_TAGS_FILE] {
        let content = engine.read_file(container, path).await?;
        if let Some(tags) = content.as_deref().and_then(TagFile::parse) {
            return Ok(tags);
        }
    }
    Ok(TagFile::default())
}

impl DockerDriver {
    /// The container of a machine, also one that never ran.
    pub(super) async fn find(
        &self,
        identity: &Identity,
        provider_id: Option<&str>,
    ) -> Result<Option<Found>, DriverError> {
        let looked = |error: EngineError| driver_error(&error, Left::Nothing);
        if let Some(name) = provider_id.and_then(instance_of)
            && let Some(found) = self.inspect(name).await.map_err(looked)?
        {
            let cluster = found.tag(CLUSTER) == identity.cluster_id;
            if cluster && found.tag(MACHINE) == identity.machine_name && found.name() == name {
                return Ok(Some(found));
            }
        }
        let mut found = self.of_identity(identity).await.map_err(looked)?;
        match (found.pop(), found.pop()) {
            (one, None) => Ok(one),
            (Some(one), Some(two)) => {
                let message = format!("both {} and {} are of this machine", one.name(), two.name());
                Err(DriverError::out_of_range(message).reason("SEVERAL_INSTANCES").not_applied())
            }
            (None, Some(_)) => Ok(None),
        }
    }

    /// Containers that carry this identity: by label, and by the file where it says another one.
    async fn of_identity(&self, identity: &Identity) -> Result<Vec<Found>, EngineError> {
        let labels =
            [(CLUSTER, identity.cluster_id.as_str()), (MACHINE, identity.machine_name.as_str())];
        let mut found = Vec::new();
        for candidate in self.engine.containers(&labels).await? {
            if let Some(one) = self.inspect(&candidate.id).await?
                && one.tag(UID) == identity.machine_uid
            {
                found.push(one);
            }
        }
        Ok(found)
    }

    /// One that is gone meanwhile is not there.
    pub(super) async fn inspect(&self, name: &str) -> Result<Option<Found>, EngineError> {
        let Some(container) = self.engine.container(name).await? else { return Ok(None) };
        if matches!(container.summary.life, Life::Going | Life::Dead) {
            // Its files may be gone already.
            return Ok(Some(Found { container, tags: TagFile::default() }));
        }
        let tags = tag_file(&self.engine, &container.summary.id).await?;
        Ok(Some(Found { container, tags }))
    }

    /// All containers of a cluster, with the identity of each.
    pub(super) async fn of_cluster(
        &self,
        cluster_id: &str,
    ) -> Result<Vec<(Summary, TagFile)>, EngineError> {
        let all = self.engine.containers(&[(CLUSTER, cluster_id)]).await?;
        futures::stream::iter(all)
            .map(|summary| async {
                let tags = match summary.life {
                    Life::Going | Life::Dead => TagFile::default(),
                    Life::Made | Life::Running | Life::Stopped => {
                        tag_file(&self.engine, &summary.id).await?
                    }
                };
                Ok((summary, tags))
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
