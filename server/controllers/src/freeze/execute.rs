//! Writes what a freeze changes: the label first, which is what holds the creation; a user's annotation goes last, so that
//! a crash before that repeats what the user asked for.

use kube::api::Patch;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use ostler_api::machine_deployment::MachineDeploymentCondition;
use ostler_api::machine_set::MachineSetCondition;
use ostler_api::names::{annotation, label};
use ostler_api::{MachineDeployment, MachineSet};
use ostler_lifecycle::freeze::Plan;
use serde_json::{Value, json};

use super::Freezes;
use crate::reconcile::PassError;
use crate::watch::{Author, By};
use crate::writes::{Object, WriteError};

impl Freezes {
    pub(super) async fn write_set(
        &self,
        set: &MachineSet,
        plan: &Plan<MachineSetCondition>,
    ) -> Result<(), PassError> {
        let conditions = plan.conditions.as_ref().map(|all| json!({ "machineSetCondition": all }));
        let written = self.write(set, plan.label, conditions, plan.remove_annotation).await?;
        if let Some(written) = written {
            self.stores.sets.update(written, Author::new(By::FreezeOfSet, set));
        }
        Ok(())
    }

    pub(super) async fn write_deployment(
        &self,
        deployment: &MachineDeployment,
        plan: &Plan<MachineDeploymentCondition>,
    ) -> Result<(), PassError> {
        let conditions = plan.conditions.as_ref().map(|all| json!({ "conditions": all }));
        let written =
            self.write(deployment, plan.label, conditions, plan.remove_annotation).await?;
        if let Some(written) = written {
            let author = Author::new(By::FreezeOfDeployment, deployment);
            self.stores.deployments.update(written, author);
        }
        Ok(())
    }

    /// Each write is on condition of the version before it; returns the last one.
    async fn write<K>(
        &self,
        object: &K,
        frozen: Option<bool>,
        status: Option<Value>,
        remove_annotation: bool,
    ) -> Result<Option<K>, PassError>
    where
        K: Object + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let meta = object.meta();
        let name = meta.name.clone().unwrap_or_default();
        let api: Api<K> = self.writer.api(meta.namespace.as_deref().unwrap_or_default());
        let mut version = meta.resource_version.clone();
        let mut last = None;
        if let Some(frozen) = frozen {
            let value = if frozen { json!("True") } else { Value::Null };
            let labels = json!({ "resourceVersion": version, "labels": { label::FREEZE: value } });
            let written = self.writer.patch(&api, &name, &json!({ "metadata": labels })).await;
            let written: K = written.map_err(failed)?;
            version.clone_from(&written.meta().resource_version);
            last = Some(written);
        }
        if let Some(status) = status {
            let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
            let written = self.writer.patch_status(&api, &name, Patch::Merge(&patch)).await;
            let written: K = written.map_err(failed)?;
            version.clone_from(&written.meta().resource_version);
            last = Some(written);
        }
        if remove_annotation {
            let gone = json!({ annotation::UNFREEZE: null });
            let gone = json!({ "resourceVersion": version, "annotations": gone });
            let written = self.writer.patch(&api, &name, &json!({ "metadata": gone })).await;
            last = Some(written.map_err(failed)?);
        }
        Ok(last)
    }
}

fn failed(source: WriteError) -> PassError {
    PassError::of_write("cannot write that a set is frozen", source)
}
