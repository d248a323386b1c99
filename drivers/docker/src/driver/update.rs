//! UpdateMachine: limits by the engine, tags by the file.

use ostler_driver_sdk::hot::{self, HotSpec, NotJson, Value};
use ostler_driver_sdk::{DriverError, UpdateMachine, Updated};
use serde::Serialize;

use super::DockerDriver;
use super::files::twice;
use super::find::Found;
use crate::engine::{Capacity, EngineError, Limits};
use crate::errors::{Left, driver_error};
use crate::identity::FIXED_SPEC;
use crate::spec::{ProviderSpec, Resource, TAGS_FILE};
use crate::tags::TagFile;

impl DockerDriver {
    pub(super) async fn update(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        let UpdateMachine { ctx, provider_id, .. } = &request;
        let spec = self.spec(&*ctx.class().await?)?;
        let identity = ctx.identity();
        let _turn = self.busy.turn(&identity)?;
        let found = self.find(ctx, Some(provider_id)).await?.filter(Found::is_made);
        let gone = || DriverError::not_found("the engine has no container of this machine");
        let mut found = found.ok_or_else(|| gone().not_applied())?;
        let fixed = request.in_the_way(&spec, fixed_changes(&found, &spec)?);
        if !fixed.is_empty() {
            return Err(DriverError::not_hot_updatable(fixed));
        }
        let applied_paths = self.bring(&mut found, &spec, None).await?;
        Ok(Updated { applied_paths })
    }

    /// Brings limits and tags to the spec, and notes the model of which it is; the paths of what was changed.
    pub(super) async fn bring(
        &self,
        found: &mut Found,
        spec: &ProviderSpec,
        model: Option<&str>,
    ) -> Result<Vec<String>, DriverError> {
        let mut applied = self.bring_limits(found, spec).await?;
        let left = if applied.is_empty() { Left::Nothing } else { Left::Something };
        let before = found.tags.clone();
        if let Some(model) = model {
            found.tags.driver.model = Some(model.to_owned());
        }
        for resource in Resource::ALL {
            if found.tags.bring(resource, spec.tags.of(resource)) {
                applied.push(resource.path().to_owned());
            }
        }
        if found.tags != before {
            let written = self.write_tags(found.name(), &found.tags).await;
            written.map_err(|error| driver_error(&error, left))?;
        }
        Ok(applied)
    }

    /// Brings the container to the limits of the spec; the paths of what was changed.
    async fn bring_limits(
        &self,
        found: &Found,
        spec: &ProviderSpec,
    ) -> Result<Vec<String>, DriverError> {
        let failed = |error: EngineError| driver_error(&error, Left::Nothing);
        let (has, mut wanted) = (found.container.limits, limits(spec));
        if has == wanted {
            return Ok(Vec::new());
        }
        if lifts(has.nano_cpus, wanted.nano_cpus) || lifts(has.memory, wanted.memory) {
            wanted = lifted(has, wanted, self.engine.capacity().await.map_err(failed)?);
        }
        let paths = [
            ("cpu", has.nano_cpus != wanted.nano_cpus),
            ("memory", has.memory != wanted.memory),
            ("pids", has.pids != wanted.pids),
            ("restartPolicy", has.restart != wanted.restart),
        ];
        let paths: Vec<_> = paths
            .iter()
            .filter(|(_, differs)| *differs)
            .map(|(path, _)| (*path).to_owned())
            .collect();
        if !paths.is_empty() {
            self.engine.update(found.name(), wanted).await.map_err(failed)?;
        }
        Ok(paths)
    }

    /// Writes the tags of a container.
    pub(super) async fn write_tags(
        &self,
        container: &str,
        tags: &TagFile,
    ) -> Result<(), EngineError> {
        self.engine.write_files(container, &twice(TAGS_FILE, tags)).await
    }
}

/// The limits of a spec.
pub(super) fn limits(spec: &ProviderSpec) -> Limits {
    Limits {
        nano_cpus: spec.cpu.map_or(0, crate::spec::Cpu::nanos),
        memory: spec.memory.map_or(0, crate::spec::Memory::bytes),
        pids: spec.pids.count(),
        restart: spec.restart_policy,
    }
}

fn lifts(has: i64, wanted: i64) -> bool {
    has > 0 && wanted == 0
}

/// The engine cannot take a limit away: all that it has is as good.
fn lifted(has: Limits, wanted: Limits, all: Capacity) -> Limits {
    let lift = |has, wanted, all| if lifts(has, wanted) { all } else { wanted };
    Limits {
        nano_cpus: lift(has.nano_cpus, wanted.nano_cpus, all.nano_cpus),
        memory: lift(has.memory, wanted.memory, all.memory),
        pids: wanted.pids,
        restart: wanted.restart,
    }
}

/// The fixed part of a spec as the container remembers it.
#[derive(Serialize)]
struct Fixed(Value);

impl HotSpec for Fixed {
    fn fixed_part(&self) -> Result<Value, NotJson> {
        Ok(self.0.clone())
    }
}

/// What of the spec differs from what the container was made of, and cannot be changed on it.
pub(super) fn fixed_changes(
    found: &Found,
    spec: &ProviderSpec,
) -> Result<Vec<String>, DriverError> {
    let label = found.container.summary.labels.get(FIXED_SPEC);
    let Some(made_of) = label.and_then(|text| serde_json::from_str(text).ok()) else {
        return Ok(vec![String::from("image")]);
    };
    let wanted = spec.fixed_part().map_err(|error| internal(&error))?;
    hot::fixed_changes(&Fixed(made_of), &Fixed(wanted)).map_err(|error| internal(&error))
}

/// The fixed part of a spec, for a label.
pub(super) fn fixed_label(spec: &ProviderSpec) -> Result<String, DriverError> {
    spec.fixed_part().map(|part| part.to_string()).map_err(|error| internal(&error))
}

fn internal(error: &NotJson) -> DriverError {
    DriverError::internal(error.to_string()).not_applied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::RestartPolicy;

    #[test]
    fn a_limit_that_is_taken_away_becomes_all_that_there_is() {
        let restart = RestartPolicy::Always;
        let all = Capacity { nano_cpus: 2_000, memory: 9_000 };
        let limits = |nano_cpus, memory| Limits { nano_cpus, memory, pids: 64, restart };
        assert_eq!(lifted(limits(1, 1), limits(0, 0), all), limits(2_000, 9_000));
        assert_eq!(lifted(limits(1, 0), limits(0, 5), all), limits(2_000, 5));
        assert_eq!(lifted(limits(0, 1), limits(0, 0), all), limits(0, 9_000));
    }
}
