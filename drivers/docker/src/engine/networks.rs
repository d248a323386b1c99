//! Networks.

use std::net::{IpAddr, Ipv4Addr};

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
    let mut gateways = configs.filter_map(|config| gateway_of(config.gateway, config.subnet));
    gateways.next().ok_or_else(|| {
        let why = "the network bridge has no gateway address".to_owned();
        EngineError { call: Call::Look, failure: Failure::Garbled(why) }
    })
}

/// The gateway of a subnet: the one that is named, else the first address, which an engine takes
/// without naming it.
fn gateway_of(gateway: Option<String>, subnet: Option<String>) -> Option<IpAddr> {
    if let Some(gateway) = gateway.and_then(|text| text.parse().ok()) {
        return Some(gateway);
    }
    let subnet = subnet?;
    let (address, bits) = subnet.split_once('/')?;
    let (address, bits): (Ipv4Addr, u32) = (address.parse().ok()?, bits.parse().ok()?);
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits)?).unwrap_or(0);
    Some(Ipv4Addr::from((u32::from(address) & mask) | 1).into())
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
    pub(crate) async fn make_network(&self, new: NewNetwork) -> Result<(), EngineError> {
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
    pub(crate) async fn remove_network(&self, id: &str) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        match self.checked(Call::Remove, docker.remove_network(id).await) {
            Err(error) if error.is_refusal(404) => Ok(()),
            answer => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::gateway_of;

    #[test]
    fn the_gateway_is_the_one_that_is_named_or_else_the_first_address() {
        for (gateway, subnet, expected) in [
            (Some("172.17.0.5"), Some("172.17.0.0/16"), Some("172.17.0.5")),
            (None, Some("172.17.0.0/16"), Some("172.17.0.1")),
            (Some(""), Some("10.1.2.64/26"), Some("10.1.2.65")),
            (None, Some("172.17.0.0"), None),
            (None, Some("172.17.0.0/33"), None),
            (None, None, None),
        ] {
            let found = gateway_of(gateway.map(str::to_owned), subnet.map(str::to_owned));
            assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{subnet:?}");
        }
    }
}
