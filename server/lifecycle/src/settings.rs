//! The operator's settings for all Machines of a core.

use std::time::Duration;

use crate::class_facts::{AdoptByName, ClassFacts};

/// Defaults of this core; a Machine's own values win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// From the first operation to a healthy Node.
    pub creation_timeout: Duration,
    /// From unhealthy to Failed.
    pub health_timeout: Duration,
    /// From the deletion of the Machine to force.
    pub drain_timeout: Duration,
    /// The longest time from readiness for the update in place to a failed update.
    pub in_place_timeout: Duration,
    /// How long a preserved Machine is kept.
    pub preserve_timeout: Duration,
    /// How long a drain holds the next pods back for a volume that is to be detached, and how long an update in place or
    /// a preservation waits for volumes. A deletion waits until its drain timeout.
    pub detach_timeout: Duration,
    /// How long a drain waits for a volume to be attached where a pod waits for it.
    pub reattach_timeout: Duration,
    /// How often the eviction of a pod is tried before it is deleted.
    pub max_evict_retries: i32,
    /// After how much time of terminating a pod is not waited for; `None`: always waited for.
    pub skip_wait_for_delete: Option<Duration>,
    /// How often a driver is asked whether the instance of an unhealthy Node still exists.
    pub instance_check: Duration,
    /// How often an instance is read whose Node does not come.
    pub join_check: Duration,
    /// How long after a refused eviction the next try comes; then twice as long each time.
    pub eviction_retry: Duration,
    /// The longest wait between two evictions of a pod, and what `max_evict_retries` is reckoned in.
    pub eviction_retry_max: Duration,
    /// After how long `Ready` must have been lost for a drain to use force.
    pub unreachable_after: Duration,
    /// Retry after RESOURCE_EXHAUSTED when the driver names no time.
    pub resource_exhausted_retry: Duration,
    /// Node conditions that must be False.
    pub node_conditions: Vec<String>,
    /// Value of `auth-extra-groups` in bootstrap tokens; may be empty.
    pub bootstrap_token_groups: String,
    /// Decides for all classes, whatever their annotation; `None`: each class for itself.
    pub adopt_by_name: Option<bool>,
}

impl Settings {
    /// Whether Machines of the class take over instances of the same name.
    pub fn adopt_by_name(&self, class: &ClassFacts) -> AdoptByName {
        match self.adopt_by_name {
            Some(true) => AdoptByName::Allowed,
            Some(false) => AdoptByName::Refused,
            None => class.adopt_by_name,
        }
    }

    /// Whether a driver may look for instances of this class by the names of their Machines.
    pub fn adopts_by_name(&self, class: &ClassFacts) -> bool {
        self.adopt_by_name(class) == AdoptByName::Allowed
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            creation_timeout: Duration::from_mins(20),
            health_timeout: Duration::from_mins(10),
            drain_timeout: Duration::from_hours(2),
            in_place_timeout: Duration::from_mins(20),
            preserve_timeout: Duration::from_hours(96),
            detach_timeout: Duration::from_mins(2),
            reattach_timeout: Duration::from_secs(90),
            max_evict_retries: 360,
            skip_wait_for_delete: None,
            instance_check: Duration::from_mins(5),
            join_check: Duration::from_mins(1),
            eviction_retry: Duration::from_secs(5),
            eviction_retry_max: Duration::from_secs(20),
            unreachable_after: Duration::from_mins(5),
            resource_exhausted_retry: Duration::from_mins(10),
            node_conditions: [
                "KernelDeadlock",
                "ReadonlyFilesystem",
                "DiskPressure",
                "NetworkUnavailable",
            ]
            .map(str::to_owned)
            .to_vec(),
            bootstrap_token_groups: String::new(),
            adopt_by_name: None,
        }
    }
}
