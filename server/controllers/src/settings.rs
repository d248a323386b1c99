//! Settings of an operator.

use kube::Client;
use ostler_api::{MachineClass, ProviderName};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_lifecycle::{freeze, orphans, snapshot};

use crate::api_health::ApiCheck;
use crate::controllers::EnabledControllers;
use crate::election::ElectionSettings;
use crate::home_namespace::HomeNamespace;
use crate::namespaces::Namespaces;

/// How sets and deployments are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSettings {
    /// When a set overshoots.
    pub margins: freeze::Margins,
    /// How often that is checked without an event, and how long a freeze lasts at least.
    pub overshooting_period: Duration,
    /// Whether the cluster-autoscaler is kept from removing Nodes of a deployment during a rolling update.
    pub keep_autoscaler_away: bool,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            margins: freeze::Margins::default(),
            overshooting_period: Duration::from_mins(1),
            keep_autoscaler_away: true,
        }
    }
}

/// Settings of the controllers. `Default` is for production.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The controllers run by this process.
    pub controllers: EnabledControllers,
    /// How sets and deployments are run, if they are.
    pub fleet: FleetSettings,
    /// The namespaces that are served.
    pub namespaces: Namespaces,
    /// The namespace of the Lease and of the ConfigMap with the cluster id. The Lease's holder alone serves
    /// `namespaces`.
    pub home: String,
    /// The namespace that was chosen for `home`, if that ended and `home` is another one; see
    /// [`find_home`](crate::find_home).
    pub home_of: Option<String>,
    /// Name of this process, never used by another one; holder of the Lease.
    pub identity: String,
    /// Identity of a process that is known to be dead: its lease is taken over without waiting for its expiry.
    pub predecessor: Option<String>,
    /// Lease duration, renew deadline and retry period.
    pub lease: (Duration, Duration, Duration),
    /// Take the Lease from any holder without waiting: the operator guarantees that no other process leads.
    pub lease_at_once: bool,
    /// Concurrent reconciles of machines.
    pub concurrent_syncs: usize,
    /// How often every machine is reconciled without an event.
    pub resync: Duration,
    /// When the API servers are checked.
    pub api_check: ApiCheck,
    /// Timeouts and node conditions; a Machine's own values win.
    pub lifecycle: snapshot::Settings,
    /// How to find instances without a Machine, and what to do about them.
    pub orphans: orphans::Rules,
    /// Other names of a provider, e.g. `AWS` → `aws.example.com`; as in
    /// [`SessionsOptions::aliases`](ostler_sessions::SessionsOptions::aliases).
    pub aliases: BTreeMap<ProviderName, ProviderName>,
}

impl Default for Settings {
    fn default() -> Self {
        let identity = format!("ostler_{}", uuid::Uuid::new_v4());
        let lease = ElectionSettings::new("", "");
        Self {
            controllers: EnabledControllers::default(),
            fleet: FleetSettings::default(),
            namespaces: Namespaces::one("default"),
            home: "default".to_owned(),
            home_of: None,
            identity,
            predecessor: None,
            lease: (lease.lease_duration, lease.renew_deadline, lease.retry_period),
            lease_at_once: false,
            concurrent_syncs: 50,
            resync: Duration::from_mins(10),
            api_check: ApiCheck::default(),
            lifecycle: snapshot::Settings::default(),
            orphans: orphans::Rules::default(),
            aliases: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Where the Leases and the ConfigMap are if that does not end.
    pub(crate) fn chosen_home(&self) -> &str {
        self.home_of.as_deref().unwrap_or(&self.home)
    }

    /// Where the Leases and the cluster id are now.
    pub(crate) fn home_namespace(&self, client: Client) -> HomeNamespace {
        let served = self.namespaces.parts().into_iter().flatten().collect();
        HomeNamespace::new(client, &self.home, self.chosen_home(), served)
    }

    /// A namespace whose machines are read to check whether the API server answers.
    pub(crate) fn probed(&self) -> &str {
        self.namespaces.first().unwrap_or(&self.home)
    }

    /// The settings of the election for this Lease.
    pub(crate) fn election(&self, lease: &'static str) -> ElectionSettings {
        let (lease_duration, renew_deadline, retry_period) = self.lease;
        ElectionSettings {
            lease,
            serves: self.namespaces.to_string(),
            predecessor: self.predecessor.clone(),
            take_immediately: self.lease_at_once,
            lease_duration,
            renew_deadline,
            retry_period,
            ..ElectionSettings::new(&self.home, &self.identity)
        }
    }

    /// The classes served by a driver of the name.
    pub(crate) fn served_by(
        &self,
        driver: &ProviderName,
        mut classes: Vec<Arc<MachineClass>>,
    ) -> Vec<Arc<MachineClass>> {
        classes.retain(|class| self.driver_name(class.provider()) == *driver);
        classes
    }

    /// The name by which the driver of `provider` connects.
    pub(crate) fn driver_name(&self, provider: &str) -> ProviderName {
        self.aliases.get(provider).cloned().unwrap_or_else(|| provider.into())
    }
}
