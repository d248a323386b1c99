//! Networks.

use std::net::IpAddr;

use bollard::models::{NetworkConnectRequest, NetworkCreateRequest};
use bollard::query_parameters::{InspectNetworkOptions, ListNetworksOptions};

use super::{Call, DockerHost, Engine, EngineError, Failure, Labels, Part, labelled, sorted};

/// A network to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNetwork {
    /// Its name.
    pub name: String,
    /// Its driver; the engine's choice if left out.
    pub driver: Option<String>,
    /// It leads nowhere else.
    pub internal: bool,
    /// Its labels.
    pub labels: Labels,
}

/// The address of the host in Docker's default bridge: containers reach the host by it.
pub async fn bridge_gateway(host: &DockerHost) -> Result<IpAddr, EngineError> {
    let engine = Engine::new(host.clone());
    let docker = engine.docker().await?;
    let bridge = docker.inspect_network("bridge", None::<InspectNetworkOptions>).await;
    let bridge = engine.checked(Call::Look, bridge)?;
    let configs = bridge.ipam.and_then(|ipam| ipam.config).into_iter().flatten();
    let mut gateways = configs.filter_map(|config| config.gateway);
    let gateway = gateways.find_map(|gateway| gateway.parse().ok());
    gateway.ok_or_else(|| {
        let why = "the network bridge has no gateway address".to_owned();
        EngineError { call: Call::Look, failure: Failure::Garbled(why) }
    })
}

impl Engine {
    /// Networks with all of these labels.
    pub async fn networks(&self, labels: &[(&str, &str)]) -> Result<Vec<Part>, EngineError> {
        let docker = self.docker().await?;
        let options = ListNetworksOptions { filters: Some(labelled(labels)) };
        let found = self.checked(Call::Look, docker.list_networks(Some(options)).await)?;
        let part = |network: bollard::models::Network| Part {
            id: network.id.unwrap_or_default(),
            name: network.name.unwrap_or_default(),
            labels: sorted(network.labels),
        };
        Ok(found.into_iter().map(part).collect())
    }

    /// Makes a network. Docker makes a second one of the same name without a word: look before.
    pub async fn make_network(&self, new: NewNetwork) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let request = NetworkCreateRequest {
            name: new.name,
            driver: new.driver,
            internal: Some(new.internal),
            labels: Some(new.labels.into_iter().collect()),
            ..NetworkCreateRequest::default()
        };
        self.checked(Call::MakeNetwork, docker.create_network(request).await).map(drop)
    }

    /// Connects a container to a network.
    pub async fn connect(&self, network: &str, container: &str) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let request =
            NetworkConnectRequest { container: container.to_owned(), ..Default::default() };
        self.checked(Call::Connect, docker.connect_network(network, request).await)
    }

    /// Removes a network; one that is not there is gone.
    pub async fn remove_network(&self, id: &str) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        match self.checked(Call::Remove, docker.remove_network(id).await) {
            Err(error) if error.is_refusal(404) => Ok(()),
            answer => answer,
        }
    }
}
