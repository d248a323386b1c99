//! Finding the container of a machine.

use futures::{StreamExt as _, TryStreamExt as _};
use ostler_driver_sdk::{Context, DriverError};

use super::{DockerDriver, files};
use crate::engine::{Container, Engine, EngineError, Failure, Labels, Life, Summary};
use crate::errors::{Left, driver_error};
use crate::identity::{CLUSTER, GROUP, Identity, MACHINE, UID, instance_of, provider_id};
use crate::spec::{CLAIM_FILE, TAGS_FILE};
use crate::tags::TagFile;

/// Files that are read concurrently.
pub(super) const READS: usize = 16;

/// A container with tags and claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) container: Container,
    pub(crate) tags: TagFile,
    pub(crate) claim: Labels,
}

impl Found {
    /// Whether the container ran: then it is a machine, and not only a part of one.
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

    /// Whether the tags of the container name the current identity. Other tags are from a previous life of the machine.
    pub(super) fn carries(&self, identity: &Identity) -> bool {
        self.tag(CLUSTER) == identity.cluster_id && self.tag(UID) == identity.machine_uid
    }
}

/// A container that is there, may be meant, and is not the machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotOurs {
    pub(super) provider_id: String,
    pub(super) cluster_id: String,
}

impl NotOurs {
    fn of(summary: &Summary, claim: &Labels) -> Self {
        let cluster_id = tag(summary, claim, CLUSTER).to_owned();
        Self { provider_id: provider_id(&summary.name), cluster_id }
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

/// The identity that an adoption put on a container, and the tags that came with it. None where pods, which are root there, put
/// what cannot be read, e.g. a link to itself: other containers are listed all the same.
pub(crate) async fn claim(engine: &Engine, summary: &Summary) -> Result<Labels, EngineError> {
    let claim = match engine.has_file(&summary.id, CLAIM_FILE).await {
        Ok(true) => files::read(engine, &summary.id, CLAIM_FILE).await,
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    match unless_going(engine, summary, claim).await {
        Err(error) if matches!(error.failure, Failure::Refused { .. }) => {
            tracing::warn!(container = summary.name, %error, "its claim is ignored");
            Ok(Labels::new())
        }
        claim => Ok(claim?.unwrap_or_default()),
    }
}

/// A container that is being removed has no files any more, and an engine says that in many ways.
pub(super) async fn unless_going<T>(
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

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn looked(error: EngineError) -> DriverError {
    driver_error(&error, Left::Nothing)
}

impl DockerDriver {
    /// The container of a machine, also one that never ran.
    ///
    /// # Errors
    /// Among others: there is none, and the id names a container that is not this machine's.
    pub(super) async fn find(
        &self,
        ctx: &Context,
        provider_id: Option<&str>,
    ) -> Result<Option<Found>, DriverError> {
        match self.look(ctx, provider_id).await? {
            (None, Some(NotOurs { provider_id, cluster_id })) => {
                Err(DriverError::not_ours(provider_id).of_cluster(cluster_id))
            }
            (found, _) => Ok(found),
        }
    }

    /// As [`find`](Self::find), and beside it the container that may be meant and is not this
    /// machine's: the one that was named or, without a name, one of the machine's name that has
    /// another UID and an id which the cluster had before.
    pub(super) async fn look(
        &self,
        ctx: &Context,
        provider_id: Option<&str>,
    ) -> Result<(Option<Found>, Option<NotOurs>), DriverError> {
        let (named, not_ours) = self.named(ctx, provider_id).await?;
        if named.is_some() {
            return Ok((named, None));
        }
        let (mut own, before) = self.own(ctx).await?;
        let not_ours = if provider_id.is_none() { before } else { not_ours };
        match (own.pop(), own.pop()) {
            (one, None) => Ok((one, not_ours)),
            (Some(one), Some(two)) => {
                let message = format!("both {} and {} are of this machine", one.name(), two.name());
                Err(DriverError::out_of_range(message).reason("SEVERAL_INSTANCES").not_applied())
            }
            (None, Some(_)) => Ok((None, not_ours)),
        }
    }

    /// As [`look`](Self::look), but all containers of the machine: the named container, and all with the machine's UID.
    pub(super) async fn look_for_all(
        &self,
        ctx: &Context,
        provider_id: Option<&str>,
    ) -> Result<(Vec<Found>, Option<NotOurs>), DriverError> {
        let (named, mut not_ours) = self.named(ctx, provider_id).await?;
        let (mut all, before) = self.own(ctx).await?;
        if let Some(named) = named {
            all.retain(|it| it.container.summary.id != named.container.summary.id);
            all.push(named);
        } else if provider_id.is_none() {
            not_ours = before;
        }
        Ok((all, not_ours))
    }

    /// The container that was named, if it is of the machine's name, and else the same as one that is not ours.
    async fn named(
        &self,
        ctx: &Context,
        provider_id: Option<&str>,
    ) -> Result<(Option<Found>, Option<NotOurs>), DriverError> {
        let Some(name) = provider_id.and_then(instance_of) else { return Ok((None, None)) };
        let found = self.inspect(name).await.map_err(looked)?;
        // The engine takes the beginning of an id for a name, too.
        let Some(found) = found.filter(|it| it.name() == name) else { return Ok((None, None)) };
        if ctx.is_own_cluster(found.tag(CLUSTER)) && found.tag(MACHINE) == ctx.target().name {
            return Ok((Some(found), None));
        }
        let not_ours = NotOurs::of(&found.container.summary, &found.claim);
        Ok((None, Some(not_ours)))
    }

    /// The containers that carry the UID of the target, and one of its name that may be of a life before.
    async fn own(&self, ctx: &Context) -> Result<(Vec<Found>, Option<NotOurs>), DriverError> {
        let namesakes = self.namesakes(ctx).await.map_err(looked)?;
        let mut found = Vec::new();
        for (summary, claim) in &namesakes {
            if tag(summary, claim, UID) == ctx.target().uid {
                found.extend(self.inspect(&summary.id).await.map_err(looked)?);
            }
        }
        Ok((found, of_life_before(ctx, &namesakes)))
    }

    /// Containers of the cluster that have the name of the target.
    async fn namesakes(&self, ctx: &Context) -> Result<Vec<(Summary, Labels)>, EngineError> {
        let name = ctx.target().name.as_str();
        self.of_cluster(ctx, &[(MACHINE, name)]).await
    }

    /// `None`: the container is gone, maybe since the list.
    pub(super) async fn inspect(&self, name: &str) -> Result<Option<Found>, EngineError> {
        let Some(container) = self.engine.container(name).await? else { return Ok(None) };
        let claim = claim(&self.engine, &container.summary).await?;
        let tags = tag_file(&self.engine, &container.summary).await?;
        Ok(Some(Found { container, tags, claim }))
    }

    /// Containers of the cluster that have these labels, with the identity of each. The label of the
    /// cluster is that of the day on which a container was made: an adoption cannot change it.
    pub(super) async fn of_cluster(
        &self,
        ctx: &Context,
        labels: &[(&str, &str)],
    ) -> Result<Vec<(Summary, Labels)>, EngineError> {
        let mut all = self.engine.containers(labels).await?;
        // Containers of groups belong to no machine.
        let of_machine = |it: &Labels| it.contains_key(CLUSTER) && !it.contains_key(GROUP);
        all.retain(|summary| of_machine(&summary.labels));
        let mut all: Vec<(Summary, Labels)> = futures::stream::iter(all)
            .map(|summary| async {
                let claim = claim(&self.engine, &summary).await?;
                Ok::<_, EngineError>((summary, claim))
            })
            .buffered(READS)
            .try_collect()
            .await?;
        all.retain(|(summary, claim)| ctx.is_own_cluster(tag(summary, claim, CLUSTER)));
        Ok(all)
    }
}

/// The operator alone knows whether it is that of the target or of another machine of its name.
fn of_life_before(ctx: &Context, namesakes: &[(Summary, Labels)]) -> Option<NotOurs> {
    let before = namesakes.iter().find(|(summary, claim)| {
        ctx.is_previous_cluster(tag(summary, claim, CLUSTER))
            && tag(summary, claim, UID) != ctx.target().uid
    });
    before.map(|(summary, claim)| NotOurs::of(summary, claim))
}

/// Labels of everything that is made for a machine.
pub(super) fn labels_of(identity: &Identity, instance: &str) -> Labels {
    let mut labels = identity.tags();
    labels.insert(crate::identity::INSTANCE.to_owned(), instance.to_owned());
    labels
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::testing::TestContext;

    use super::*;

    fn labels(cluster: &str, uid: &str) -> Labels {
        let labels = [(CLUSTER, cluster), (MACHINE, "m"), (UID, uid)];
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn made_for(cluster: &str, uid: &str) -> Summary {
        Summary {
            id: "id".to_owned(),
            name: "container".to_owned(),
            labels: labels(cluster, uid),
            life: Life::Running,
            addresses: Vec::new(),
            created_at: None,
        }
    }

    #[test]
    fn only_a_namesake_with_another_uid_and_an_id_of_before_is_of_a_life_before() {
        let ctx = TestContext::new("m", "u").cluster_id("now").previous_cluster_ids(["before"]);
        let ctx = ctx.build();
        let not_ours = NotOurs {
            provider_id: "docker:///container".to_owned(),
            cluster_id: "before".to_owned(),
        };
        for (made_for, claim, expected) in [
            (made_for("before", "v"), Labels::new(), Some(not_ours)),
            (made_for("before", "u"), Labels::new(), None),
            (made_for("now", "v"), Labels::new(), None),
            (made_for("before", "v"), labels("now", "w"), None),
        ] {
            assert_eq!(
                of_life_before(&ctx, &[(made_for.clone(), claim)]),
                expected,
                "{made_for:?}"
            );
        }
    }
}
