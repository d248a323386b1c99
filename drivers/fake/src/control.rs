//! The control file: faults that tests switch while the driver runs.

use std::path::{Path, PathBuf};
use std::{fs, io};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
use crate::fault::{Contradiction, Fault};
use crate::spec::{Join, KubeletSpec, PodBehaviour};

/// What a control file says. Write a new file and rename that to this name, so that the driver never reads half a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Control {
    /// Faults, after those of the class.
    pub faults: Vec<Fault>,
    /// Kubelets that behave otherwise than their class says; the first that fits counts.
    pub kubelets: Vec<KubeletOverride>,
    /// Instances that the cloud takes away, each once.
    pub spot_losses: Vec<SpotLoss>,
}

/// An instance that the cloud takes away, as clouds do with instances at spot price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpotLoss {
    /// Name of its machine.
    pub machine: String,
    /// How long before its end the cloud says so.
    #[serde(default)]
    pub notice: GoDuration,
}

/// How some kubelets behave, for as long as the control file says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletOverride {
    /// Only that of the machine of this name.
    pub machine: Option<String>,
    /// Only operations of machines of this class.
    pub class: Option<String>,
    /// Whether and how it joins.
    pub join: Option<Join>,
    /// Whether it says Ready, once it has joined.
    pub ready: Option<bool>,
    /// How long pods take to end.
    pub pod_shutdown: Option<GoDuration>,
    /// How pods end after their deletion.
    pub pods: Option<PodBehaviour>,
}

/// The control file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It cannot be read.
    #[error("control file {path} cannot be read: check its mode")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no control file.
    #[error("control file {path} is wrong: write it aside and rename it")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A rule cannot be meant.
    #[error("control file {path}: faults[{index}] cannot be meant")]
    Rule {
        /// The file.
        path: PathBuf,
        /// Which rule.
        index: usize,
        /// Why.
        source: Contradiction,
    },
}

/// A control file, read whenever it is asked.
#[derive(Debug, Clone)]
pub struct ControlFile {
    path: PathBuf,
}

impl ControlFile {
    /// The file at `path`. It need not exist: then nothing goes wrong.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of the file now.
    pub fn read(&self) -> Result<Control, ControlError> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Control::default()),
            Err(source) => return Err(ControlError::Read { path: self.path.clone(), source }),
        };
        let control: Control = serde_json::from_slice(&text)
            .map_err(|source| ControlError::Parse { path: self.path.clone(), source })?;
        for (index, rule) in control.faults.iter().enumerate() {
            rule.plan().map_err(|source| ControlError::Rule {
                path: self.path.clone(),
                index,
                source,
            })?;
        }
        Ok(control)
    }
}

impl Control {
    /// The behaviour of one machine's kubelet: the behaviour of its class, with overrides. The second value says
    /// whether the kubelet reports Ready, if that is overridden.
    pub fn kubelet(
        &self,
        machine: &str,
        class: &str,
        mut spec: KubeletSpec,
    ) -> (KubeletSpec, Option<bool>) {
        let fits = |o: &&KubeletOverride| {
            o.machine.as_ref().is_none_or(|name| name == machine)
                && o.class.as_ref().is_none_or(|name| name == class)
        };
        let Some(found) = self.kubelets.iter().find(fits) else {
            return (spec, None);
        };
        spec.join = found.join.unwrap_or(spec.join);
        spec.pods = found.pods.unwrap_or(spec.pods);
        spec.pod_shutdown = found.pod_shutdown.or(spec.pod_shutdown);
        (spec, found.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_means_that_nothing_goes_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlFile::new(dir.path().join("control.json")).read().unwrap();
        assert_eq!(control, Control::default());
    }

    #[test]
    fn a_wrong_file_is_an_error_and_not_the_absence_of_faults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.json");
        for text in ["{", r#"{"fault":[]}"#, r#"{"faults":[{"operation":"CreateMachine"}]}"#] {
            fs::write(&path, text).unwrap();
            assert!(ControlFile::new(&path).read().is_err(), "{text} was read");
        }
    }

    #[test]
    fn the_first_override_that_fits_counts() {
        let control: Control = serde_json::from_value(serde_json::json!({"kubelets": [
            {"machine": "a", "ready": false},
            {"class": "small", "join": "never"},
        ]}))
        .unwrap();
        let spec = KubeletSpec::default();
        let of = |machine, class| control.kubelet(machine, class, spec.clone());
        assert_eq!(of("a", "small"), (spec.clone(), Some(false)));
        assert_eq!(of("b", "small").0.join, Join::Never);
        assert_eq!(of("b", "large"), (spec.clone(), None));
    }
}
