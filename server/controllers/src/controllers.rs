//! The controllers of a process.

use std::fmt;
use std::str::FromStr;

/// A controller that can be switched on and off, under its name in `--controllers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Machines and related objects: classes, secrets, Nodes, pools, orphans. The process serves drivers.
    Machine,
    /// MachineHealthChecks; only beside `machine`, which acts on the findings.
    MachineHealthCheck,
    /// MachineSets, and the freeze of overshooting sets.
    MachineSet,
    /// MachineDeployments.
    MachineDeployment,
}

impl Controller {
    const ALL: [Self; 4] =
        [Self::Machine, Self::MachineHealthCheck, Self::MachineSet, Self::MachineDeployment];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::MachineHealthCheck => "machinehealthcheck",
            Self::MachineSet => "machineset",
            Self::MachineDeployment => "machinedeployment",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The controllers that a process runs; never none. Written as in kube-controller-manager: names separated by commas,
/// `*` for all, and `-name` for all but the named one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EnabledControllers(u8);

/// Why a list of controllers means nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllersError {
    /// There is no such controller.
    #[error(
        "there is no controller {0:?}; there are machine, machinehealthcheck, machineset and machinedeployment, and * for all"
    )]
    Unknown(String),
    /// Health checks without the machines.
    #[error("{0:?} has machinehealthcheck without machine, which it needs; add machine")]
    ChecksAlone(String),
    /// All are switched off.
    #[error("{0:?} leaves no controller; to switch one off, write *,-NAME")]
    None(String),
}

impl EnabledControllers {
    /// All.
    pub const fn all() -> Self {
        Self(
            Controller::Machine.bit()
                | Controller::MachineHealthCheck.bit()
                | Controller::MachineSet.bit()
                | Controller::MachineDeployment.bit(),
        )
    }

    /// The machines alone: machine-controller-manager runs the sets.
    pub const fn machines() -> Self {
        Self(Controller::Machine.bit())
    }

    /// Whether this process runs the controller.
    pub const fn run(self, controller: Controller) -> bool {
        self.0 & controller.bit() != 0
    }

    /// Whether this process runs machines.
    pub const fn run_machines(self) -> bool {
        self.run(Controller::Machine)
    }

    /// Whether this process runs sets or deployments, and so needs their Lease.
    pub const fn run_sets(self) -> bool {
        self.run(Controller::MachineSet) || self.run(Controller::MachineDeployment)
    }
}

impl Default for EnabledControllers {
    fn default() -> Self {
        Self::all()
    }
}

impl FromStr for EnabledControllers {
    type Err = ControllersError;

    fn from_str(text: &str) -> Result<Self, ControllersError> {
        let words: Vec<&str> =
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        let known = |word: &&str| {
            let name = word.strip_prefix('-').unwrap_or(word);
            *word == "*" || Controller::ALL.iter().any(|it| it.name() == name)
        };
        if let Some(unknown) = words.iter().find(|word| !known(word)) {
            return Err(ControllersError::Unknown((*unknown).to_owned()));
        }
        // Of a name and its negation the first counts, and both before `*`, as in kube-controller-manager.
        let on = |controller: &Controller| {
            let of_it = words.iter().find(|word| word.trim_start_matches('-') == controller.name());
            of_it.map_or_else(|| words.contains(&"*"), |word| !word.starts_with('-'))
        };
        let mut bits =
            Controller::ALL.iter().filter(|it| on(it)).fold(0, |bits, it| bits | it.bit());
        let checks = Controller::MachineHealthCheck;
        if bits & Controller::Machine.bit() == 0 && bits & checks.bit() != 0 {
            if words.contains(&checks.name()) {
                return Err(ControllersError::ChecksAlone(text.to_owned()));
            }
            bits &= !checks.bit();
        }
        if bits == 0 { Err(ControllersError::None(text.to_owned())) } else { Ok(Self(bits)) }
    }
}

impl fmt::Display for EnabledControllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str("*");
        }
        let names = Controller::ALL.iter().filter(|it| self.run(**it)).map(|it| it.name());
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

impl fmt::Debug for EnabledControllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_controllers_means_what_it_means_to_kube_controller_manager() {
        for (text, expected) in [
            ("*", "*"),
            ("machine", "machine"),
            ("machineset, machinedeployment", "machineset,machinedeployment"),
            ("machine,machinehealthcheck,machineset,machinedeployment", "*"),
            ("*,-machinehealthcheck", "machine,machineset,machinedeployment"),
            ("*,-machine", "machineset,machinedeployment"),
            ("-machine,*", "machineset,machinedeployment"),
            ("machine,-machine", "machine"),
            ("-machine,machine,machineset", "machineset"),
        ] {
            assert_eq!(text.parse::<EnabledControllers>().unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_name_that_is_none_and_a_list_that_leaves_nothing_are_refused_with_the_word() {
        for (text, part) in [
            ("*,machines", "\"machines\""),
            ("-node", "\"-node\""),
            ("-machine", "leaves no controller"),
            ("machinehealthcheck,machineset", "without machine"),
            ("", "leaves no controller"),
        ] {
            let refused = text.parse::<EnabledControllers>().unwrap_err().to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn the_lease_of_the_sets_is_for_processes_that_run_some() {
        let sets = |text: &str| text.parse::<EnabledControllers>().unwrap().run_sets();
        assert!(!sets("machine"));
        assert!(sets("machineset") && sets("machinedeployment") && sets("*"));
    }
}
