//! The flags of machine-controller-manager's second binary, which runs sets and deployments.

use std::time::Duration;

use clap::{ArgAction, Args};
use ostler_controllers::{EnabledControllers, FleetSettings};
use ostler_lifecycle::freeze;

use crate::duration::positive;

/// What is run, and how sets and deployments are.
#[derive(Debug, Clone, Args)]
pub(crate) struct FleetArgs {
    /// Controllers to run, separated by commas: machine, machinehealthcheck, machineset, machinedeployment; * for all, -NAME for all but one
    ///
    /// `machine` runs MachinePools, too. With `machine` alone, machine-controller-manager (or another core) runs the sets; `machinehealthcheck` needs `machine`. With
    /// `machineset,machinedeployment`, machine-controller (or another core) runs the machines. The process that runs sets holds
    /// the Lease machine-controller-manager, the one that runs machines the Lease machine-controller; a core that runs both
    /// takes the former only while it holds the latter.
    #[arg(
        long,
        value_name = "NAME[,NAME]",
        default_value_t = EnabledControllers::default(),
        allow_hyphen_values = true
    )]
    pub(crate) controllers: EnabledControllers,
    /// Freeze a set at twice its replicas plus this many machines (of a deployment: at replicas plus surge plus this)
    #[arg(long, alias = "machine-safety-up", value_name = "NUMBER", default_value_t = freeze::Margins::default().up, value_parser = clap::value_parser!(i32).range(0..))]
    safety_up: i32,
    /// Unfreeze a set this many machines below the limit at which it was frozen
    #[arg(long, alias = "machine-safety-down", value_name = "NUMBER", default_value_t = freeze::Margins::default().down, value_parser = clap::value_parser!(i32).range(0..))]
    safety_down: i32,
    /// How often sets are checked for overshooting without an event, and how long a freeze lasts at least
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = positive)]
    machine_safety_overshooting_period: Duration,
    /// Whether the cluster-autoscaler is kept from removing Nodes of a deployment during a rolling update
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    autoscaler_scaledown_annotation_during_rollout: bool,
}

impl FleetArgs {
    /// As the controllers take them.
    pub(crate) const fn settings(&self) -> FleetSettings {
        FleetSettings {
            margins: freeze::Margins { up: self.safety_up, down: self.safety_down },
            overshooting_period: self.machine_safety_overshooting_period,
            keep_autoscaler_away: self.autoscaler_scaledown_annotation_during_rollout,
        }
    }
}
