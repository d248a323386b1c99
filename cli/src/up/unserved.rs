//! Objects in namespaces that the core of this process does not serve. Nothing happens to them, and no controller says
//! so.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt};
use ostler_api::{
    Machine, MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve,
    MachineSet,
};
use ostler_controllers::Namespaces;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::narrate::Story;
use crate::serving::start_up;

/// So many namespaces are named; a user who has more knows by then.
const MOST: usize = 1000;

/// The namespaces that the core serves, in words.
pub(super) fn serving(served: &Namespaces) -> String {
    match served {
        Namespaces::Prefix(prefix) if prefix.is_empty() => {
            "the core serves all namespaces".to_owned()
        }
        Namespaces::Prefix(_) => format!("the core serves namespaces {served}"),
        Namespaces::These(names) if names.len() == 1 => {
            format!("the core serves namespace {served} and no other one (--namespace)")
        }
        Namespaces::These(_) => {
            format!("the core serves namespaces {served} and no others (--namespace)")
        }
    }
}

/// Tells of each namespace that is not served when there is something in it, once.
pub(super) async fn follow(
    story: Story,
    client: Client,
    served: Namespaces,
    end: CancellationToken,
) {
    let watch = Unserved { story, served, told: Mutex::default() };
    tokio::join!(
        watch.kind::<Machine>(&client, &end),
        watch.kind::<MachineClass>(&client, &end),
        watch.kind::<MachineSet>(&client, &end),
        watch.kind::<MachineDeployment>(&client, &end),
        watch.kind::<MachinePool>(&client, &end),
        watch.kind::<MachineHealthCheck>(&client, &end),
        watch.kind::<MachineReserve>(&client, &end),
    );
}

struct Unserved {
    story: Story,
    served: Namespaces,
    told: Mutex<BTreeSet<String>>,
}

impl Unserved {
    async fn kind<K>(&self, client: &Client, end: &CancellationToken)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
    {
        let kind = K::kind(&()).to_lowercase();
        let all = Api::<PartialObjectMeta<K>>::all(client.clone());
        let all = watcher(all, watcher::Config::default()).default_backoff().applied_objects();
        let mut all = pin!(all);
        loop {
            let next = tokio::select! {
                next = all.try_next() => next,
                () = end.cancelled() => return,
            };
            match next {
                Ok(Some(one)) => {
                    if let Some(what) = self.news(&kind, &one) {
                        self.story.tell(what);
                    }
                }
                Err(error) => tracing::debug!(kind, %error, "a watch was interrupted"),
                Ok(None) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    fn news(&self, kind: &str, one: &impl ResourceExt) -> Option<String> {
        let namespace = one.namespace()?;
        let mut told = self.told.lock();
        if self.served.contains(&namespace) || told.len() >= MOST || !told.insert(namespace.clone())
        {
            return None;
        }
        let start = start_up(&self.served.to_string(), &namespace);
        let name = one.name_any();
        Some(format!("! no core serves namespace {namespace}, which has {kind} {name}; {start}"))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;

    use super::*;

    #[test]
    fn a_namespace_that_is_not_served_is_told_of_once_with_what_to_do() {
        let watch = Unserved {
            story: Story::quiet(),
            served: "default,a".parse().unwrap(),
            told: Mutex::default(),
        };
        let machine = |namespace: &str| {
            let (name, namespace) = (Some("solo".to_owned()), Some(namespace.to_owned()));
            let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
            PartialObjectMeta::<Machine> { metadata, ..PartialObjectMeta::default() }
        };
        assert_eq!(watch.news("machine", &machine("a")), None);
        assert_eq!(
            watch.news("machine", &machine("shop")).unwrap(),
            "! no core serves namespace shop, which has machine solo; start `ostler up --namespace default,a,shop`"
        );
        assert_eq!(watch.news("machine", &machine("shop")), None);
    }
}
