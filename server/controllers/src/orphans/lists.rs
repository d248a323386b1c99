//! The lists of a scan: one for each class, or one for several classes with the same list.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use ostler_api::MachineClass;
use ostler_api::{ProviderName, Revision};
use ostler_lifecycle::operation::Failure;
use ostler_lifecycle::orphans::{Basis, Listed, Scopes};
use ostler_lifecycle::snapshot::ClassFacts;

use super::{Orphans, ask};
use crate::stores::{MergedSecret, merge};
use crate::watch::ObjectName;

/// Concurrent lists of a provider.
const LISTS_AT_ONCE: usize = 2;

/// A class and all instances in its list.
pub(super) type ClassList = (Arc<MachineClass>, Arc<Vec<Listed>>);

/// Classes that share a list, as the driver said: each with its name, the basis of its list, and its scope.
type Group = Vec<(Arc<MachineClass>, String, Basis, String)>;

/// The lists of a scan.
#[derive(Default)]
pub(super) struct Lists {
    /// Each is complete.
    pub(super) listed: Vec<ClassList>,
    pub(super) failed: Vec<(Arc<MachineClass>, Failure)>,
    /// The driver's scopes of the requested lists: class, basis and scope.
    said: Vec<(String, Basis, String)>,
}

impl Orphans {
    /// Lists the instances of all classes, and their groups if the driver has any. `process`: the driver.
    pub(super) async fn list_all(
        &self,
        provider: &ProviderName,
        (process, pools): (&str, bool),
        classes: &[Arc<MachineClass>],
    ) -> Lists {
        let named: Vec<_> =
            classes.iter().map(|class| (class_name(class), self.basis(class))).collect();
        let groups = {
            let mut ledgers = self.ledgers.lock();
            let scopes = &mut ledgers.entry(provider.clone()).or_default().scopes;
            scopes.keep(&named.iter().map(|(name, _)| name.as_str()).collect());
            let of = |group: Vec<usize>| -> Group {
                let one = |index: usize| {
                    let (name, basis) = named.get(index)?;
                    let scope = scopes.scope(process, name, basis).unwrap_or_default().to_owned();
                    Some((Arc::clone(classes.get(index)?), name.clone(), basis.clone(), scope))
                };
                group.into_iter().filter_map(one).collect()
            };
            scopes.groups(process, &named).into_iter().map(of).collect::<Vec<_>>()
        };
        let asked = groups.into_iter().map(|group| self.list_group(group, pools));
        let asked: Vec<Lists> =
            stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(LISTS_AT_ONCE).collect().await;
        let mut all = Lists::default();
        for lists in asked {
            all.listed.extend(lists.listed);
            all.failed.extend(lists.failed);
            all.said.extend(lists.said);
        }
        let mut ledgers = self.ledgers.lock();
        let scopes: &mut Scopes = &mut ledgers.entry(provider.clone()).or_default().scopes;
        for (class, basis, scope) in all.said.drain(..) {
            scopes.learn(process, &class, basis, scope);
        }
        drop(ledgers);
        all
    }

    /// Asks for lists until a list counts for all remaining classes. A list that fails fails for its class alone, and a
    /// list with another scope than before counts for its class alone.
    async fn list_group(&self, group: Group, pools: bool) -> Lists {
        let mut lists = Lists::default();
        let mut rest = group.into_iter();
        while let Some((class, name, basis, scope)) = rest.next() {
            let (records, said) = match ask::list(&self.sessions, &class, pools).await {
                Ok(answer) => answer,
                Err(failure) => {
                    lists.failed.push((class, failure));
                    continue;
                }
            };
            let records = Arc::new(records);
            lists.listed.push((class, Arc::clone(&records)));
            if said == scope && !scope.is_empty() {
                let shared = rest.by_ref().map(|(class, ..)| (class, Arc::clone(&records)));
                lists.listed.extend(shared);
            }
            lists.said.push((name, basis, said));
        }
        lists
    }

    /// The basis of lists with this class.
    fn basis(&self, class: &MachineClass) -> Basis {
        let facts = ClassFacts::of(class);
        let secret = match merge(&self.stores, class) {
            MergedSecret::NotReferenced => Some((Vec::new(), Revision::default())),
            MergedSecret::Merged { revision, .. } => Some((facts.secrets, revision)),
            MergedSecret::NamespaceDenied(_) | MergedSecret::Missing(_) => None,
        };
        Basis { class: facts.revision, secret }
    }
}

/// Namespace and name, because classes of several namespaces may have one name and different credentials.
pub(super) fn class_name(class: &MachineClass) -> String {
    ObjectName::of(class).to_string()
}
