//! The Docker Engine, and the only place that knows its client library.
//!
//! Every call has a time in which it must be answered. The version of the API is agreed on with the
//! engine that is there, at the first call and after every loss of it.

mod archive;
mod containers;
mod error;
mod events;
mod exec;
mod host;
mod images;
mod journal;
mod networks;
mod volumes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use parking_lot::Mutex;

pub use archive::File;
pub use containers::{Container, Life, Limits, NewContainer, Summary};
pub use error::{Call, EngineError, Failure};
pub use events::{Happened, What};
pub(crate) use exec::Command;
pub use host::{DockerHost, NotADockerHost};
pub use networks::{NewNetwork, bridge_gateway};
pub use volumes::NewVolume;

/// For the answer to one call. A busy disk takes long to make a container.
const CALL: Duration = Duration::from_mins(2);
/// For the answer to the first call, which asks for nothing.
const HELLO: Duration = Duration::from_secs(10);

/// The capacity of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// CPUs, in billionths.
    pub nano_cpus: i64,
    /// Bytes of memory.
    pub memory: i64,
}

/// A network or a volume of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is removed by: the id of a network, the name of a volume.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

/// Labels of something.
pub type Labels = std::collections::BTreeMap<String, String>;

/// A Docker Engine. Clones share the connection.
#[derive(Clone)]
pub struct Engine {
    host: DockerHost,
    agreed: Arc<Mutex<Option<Docker>>>,
}

impl Engine {
    /// The engine at `host`, which need not be there yet.
    pub fn new(host: DockerHost) -> Self {
        Self { host, agreed: Arc::default() }
    }

    /// Where it is.
    pub fn host(&self) -> &DockerHost {
        &self.host
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let pong = tokio::time::timeout(HELLO, docker.ping()).await;
        let pong = pong.unwrap_or(Err(bollard::errors::Error::RequestTimeoutError));
        self.checked(Call::Hello, pong).map(drop)
    }

    /// The CPUs and the memory of the engine.
    pub async fn capacity(&self) -> Result<Capacity, EngineError> {
        let info = self.docker().await?.info().await;
        let info = self.checked(Call::Hello, info)?;
        let nano_cpus = info.ncpu.unwrap_or_default().saturating_mul(1_000_000_000);
        Ok(Capacity { nano_cpus, memory: info.mem_total.unwrap_or_default() })
    }

    async fn docker(&self) -> Result<Docker, EngineError> {
        if let Some(docker) = self.agreed.lock().clone() {
            return Ok(docker);
        }
        let path = self.host.path().to_string_lossy().into_owned();
        let docker = Docker::connect_with_unix(&path, CALL.as_secs(), API_DEFAULT_VERSION);
        let docker = self.checked(Call::Hello, docker)?;
        let agreed = tokio::time::timeout(HELLO, docker.negotiate_version()).await;
        let agreed = agreed.unwrap_or(Err(bollard::errors::Error::RequestTimeoutError));
        let docker = self.checked(Call::Hello, agreed)?;
        tracing::debug!(version = %docker.client_version(), "agreed on a version of the engine's API");
        *self.agreed.lock() = Some(docker.clone());
        Ok(docker)
    }

    /// The answer, or what failed. Another engine may be there after a loss.
    fn checked<T>(
        &self,
        call: Call,
        answer: Result<T, bollard::errors::Error>,
    ) -> Result<T, EngineError> {
        answer.map_err(|error| {
            let error = EngineError::new(call, &error);
            if error.is_loss() {
                *self.agreed.lock() = None;
            }
            error
        })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engine").field(&self.host).finish()
    }
}

/// Filters for objects with all of `labels`.
fn labelled(labels: &[(&str, &str)]) -> std::collections::HashMap<String, Vec<String>> {
    let wanted = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    std::collections::HashMap::from([("label".to_owned(), wanted)])
}

/// The engine omits empty maps.
fn sorted<K: Ord, V>(
    map: Option<std::collections::HashMap<K, V>>,
) -> std::collections::BTreeMap<K, V> {
    map.into_iter().flatten().collect()
}
