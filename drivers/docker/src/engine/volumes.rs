//! Volumes.

use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{ListVolumesOptions, RemoveVolumeOptions};

use super::{Call, Engine, EngineError, Labels, Part, labelled};

/// A volume to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name.
    pub name: String,
    /// Its driver; the engine's choice if left out.
    pub driver: Option<String>,
    /// Its labels.
    pub labels: Labels,
}

impl Engine {
    /// Volumes with all of these labels.
    pub async fn volumes(&self, labels: &[(&str, &str)]) -> Result<Vec<Part>, EngineError> {
        let docker = self.docker().await?;
        let options = ListVolumesOptions { filters: Some(labelled(labels)) };
        let found = self.checked(Call::Look, docker.list_volumes(Some(options)).await)?;
        let part = |volume: bollard::models::Volume| Part {
            id: volume.name.clone(),
            name: volume.name,
            labels: volume.labels.into_iter().collect(),
        };
        Ok(found.volumes.into_iter().flatten().map(part).collect())
    }

    /// Makes a volume, or finds the volume of this name. A volume without any label is the rest of an engine that was
    /// killed before it wrote the labels: no list would ever show the volume, so it is made anew.
    pub(crate) async fn make_volume(&self, new: NewVolume) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let (name, labelled) = (new.name.clone(), !new.labels.is_empty());
        let request = VolumeCreateRequest {
            name: Some(new.name),
            driver: new.driver,
            labels: Some(new.labels.into_iter().collect()),
            ..VolumeCreateRequest::default()
        };
        let made = docker.create_volume(request.clone()).await;
        let made = self.checked(Call::MakeVolume, made)?;
        if labelled && made.labels.is_empty() {
            self.remove_volume(&name).await?;
            self.checked(Call::MakeVolume, docker.create_volume(request).await)?;
        }
        Ok(())
    }

    /// Removes a volume; one that is not there is gone.
    pub(crate) async fn remove_volume(&self, name: &str) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let removed = docker.remove_volume(name, None::<RemoveVolumeOptions>).await;
        match self.checked(Call::Remove, removed) {
            Err(error) if error.is_refusal(404) => Ok(()),
            answer => answer,
        }
    }
}
