//! Describes any object, by its kind.

use jiff::Timestamp;
use kube::Client;
use ostler_api::{MachineHealthCheck, MachineReserve};
use serde_json::{Value, json};

use super::found::Found;
use super::{class, fleet, gone, health_check, page, pool, read, reserve};
use crate::kinds::Kind;

/// Reads it.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    kind: Kind,
    name: &str,
) -> anyhow::Result<Found> {
    let now = Timestamp::now();
    Ok(match kind {
        Kind::Machine => match super::gather(client, namespace, name, now).await? {
            Some(subject) => {
                let page::Subject { machine, class, nodes, checks, events, .. } = &subject;
                let rest =
                    json!({ "class": class, "nodes": nodes, "checks": checks, "events": events });
                let waits = page::waits(&subject, now);
                Found::new(page::render(&subject, now), machine, &waits, rest)
            }
            None => gone::read(client, namespace, name, now).await?,
        },
        Kind::Class => class::found(&class::gather(client, namespace, name, now).await?, now),
        Kind::Deployment => {
            fleet::found(&fleet::of_deployment(client, namespace, name).await?, now)
        }
        Kind::Set => fleet::found(&fleet::of_set(client, namespace, name).await?, now),
        Kind::Pool => pool::found(&pool::gather(client, namespace, name, now).await?, now),
        Kind::HealthCheck => {
            let found = read::subject::<MachineHealthCheck>(client, namespace, name, now).await?;
            found.found(health_check::render(&found, now), health_check::seen(&found.object))
        }
        Kind::Reserve => {
            let found = read::subject::<MachineReserve>(client, namespace, name, now).await?;
            found.found(reserve::render(&found, now), reserve::seen(&found.object))
        }
    })
}

/// The page about an object.
pub(crate) async fn page_of(
    client: &Client,
    namespace: &str,
    kind: Kind,
    name: &str,
) -> anyhow::Result<String> {
    Ok(read(client, namespace, kind, name).await?.page)
}

/// What a deployment or pool waits for, in one line.
pub(crate) async fn waits_for(
    client: &Client,
    namespace: &str,
    kind: Kind,
    name: &str,
) -> anyhow::Result<Option<String>> {
    let found = read(client, namespace, kind, name).await?;
    Ok(found.data.pointer("/waitsFor/0").and_then(Value::as_str).map(str::to_owned))
}
