//! A driver of the first proposal with a cloud in memory, written after what such drivers do on the wire and not after what
//! the core expects: it opens the stream and waits, does one thing at a time in the loop that reads, reads class and secret
//! with a deadline of a second each, creates without looking, deletes without saying whether it found something, answers what
//! it does not know with nothing, does not care whether a message could be sent, and dials anew every five seconds without
//! ever closing what it had.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ostler_legacy::{LegacyKind, LegacyOptions};
use ostler_proto::legacy::infra::driver_side::{
    CreateResp, DeleteResp, ListResp, Machine, RegisterationResp, Response,
};
use ostler_proto::legacy::infra::infragrpc_client::InfragrpcClient;
use ostler_proto::legacy::infra::mc_mside::OperationParams;
use ostler_proto::legacy::infra::{DriverSide, MachineClassMeta, SecretMeta};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// The class kind of this driver.
pub const KIND: [&str; 3] = ["machine.sapcloud.io", "v1alpha1", "OldMachineClass"];
/// The provider that the core knows the driver by.
pub const PROVIDER: &str = "old.example.com";

/// The core's options for this driver.
pub fn options() -> LegacyOptions {
    let [group, version, kind] = KIND.map(str::to_owned);
    let kind = LegacyKind { group, version, kind };
    LegacyOptions::new([(kind, PROVIDER.to_owned())].into())
}

const DEADLINE: Duration = Duration::from_secs(1);
const REDIAL: Duration = Duration::from_secs(5);

/// One instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// As in `Node.spec.providerID`.
    pub id: String,
    /// The name of the machine.
    pub name: String,
    /// Its user data.
    pub user_data: String,
    /// The access key of its creation.
    pub access_key: String,
    tags: Vec<String>,
}

/// The cloud, and what the driver was asked; clones are the same.
#[derive(Clone, Debug)]
pub struct OldCloud {
    state: Arc<Mutex<State>>,
    /// Whether creates that made their instance are kept from answering.
    held: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    vms: BTreeMap<String, Vm>,
    made: usize,
    asked: Vec<String>,
    client: Option<InfragrpcClient<Channel>>,
    streams: usize,
}

impl Default for OldCloud {
    fn default() -> Self {
        Self { state: Arc::default(), held: watch::Sender::new(false) }
    }
}

impl OldCloud {
    /// What there is.
    pub fn vms(&self) -> Vec<Vm> {
        self.lock().vms.values().cloned().collect()
    }

    /// Makes another instance like the first one, for a machine of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn plant(&self, name: &str) {
        let vm = self.vms().swap_remove(0);
        let vm = Vm { id: format!("{}0", vm.id), name: name.to_owned(), ..vm };
        self.lock().vms.insert(vm.id.clone(), vm);
    }

    /// How many were ever made.
    pub fn made(&self) -> usize {
        self.lock().made
    }

    /// The types of the operations that were asked for, in order.
    pub fn asked(&self) -> Vec<String> {
        self.lock().asked.clone()
    }

    /// How many streams were opened.
    pub fn streams(&self) -> usize {
        self.lock().streams
    }

    /// From now on a create makes its instance and then keeps the driver busy; or does so no more.
    pub fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// Waits until a create is kept from answering.
    ///
    /// # Panics
    /// If none comes within a day.
    pub async fn until_made(&self, count: usize) {
        let waiting = async {
            while self.made() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_hours(24), waiting).await.expect("it is made");
    }

    /// Asks for a class over the connection of the driver: data or error.
    ///
    /// # Panics
    /// If there is no connection.
    pub async fn read_class(&self, name: &str) -> Result<String, String> {
        let client = self.lock().client.clone().expect("the driver is connected");
        class(client, name).await
    }

    /// Asks for a secret over the connection of the driver: data or error.
    ///
    /// # Panics
    /// If there is no connection.
    pub async fn read_secret(&self, namespace: &str, name: &str) -> Result<String, String> {
        let client = self.lock().client.clone().expect("the driver is connected");
        secret(client, namespace, name).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }
}

/// Runs for ever. `connect` makes a connection.
pub async fn run<C, F, E>(connect: C, cloud: OldCloud)
where
    C: Fn() -> F,
    F: Future<Output = Result<Channel, E>>,
{
    let mut never_closed = Vec::new();
    loop {
        if let Ok(channel) = connect().await {
            never_closed.push(channel.clone());
            let _retried = serve(InfragrpcClient::new(channel), &cloud).await;
        }
        tokio::time::sleep(REDIAL).await;
    }
}

async fn serve(mut client: InfragrpcClient<Channel>, cloud: &OldCloud) -> Result<(), Status> {
    let (sender, answers) = mpsc::channel(1);
    let mut stream = client.register(ReceiverStream::new(answers)).await?.into_inner();
    {
        let mut state = cloud.lock();
        state.client = Some(client.clone());
        state.streams += 1;
    }
    while let Some(asked) = stream.message().await? {
        let params = asked.operationparams.unwrap_or_default();
        cloud.lock().asked.push(asked.operation_type.clone());
        let response = match asked.operation_type.as_str() {
            "register" => Some(Response::RegisterResp(registration())),
            "create" => Some(Response::Createresponse(create(&client, cloud, &params).await)),
            "delete" => Some(Response::Deleteresponse(DeleteResp {
                error: delete(&client, cloud, &params).await.err().unwrap_or_default(),
            })),
            "list" => Some(Response::Listresponse(listing(&client, cloud, &params).await)),
            _ => None,
        };
        let answer = DriverSide {
            operation_id: asked.operation_id,
            operation_type: asked.operation_type,
            response,
        };
        let _not_looked_at = sender.send(answer).await;
    }
    Ok(())
}

/// The answer to `register`.
pub fn registration() -> RegisterationResp {
    let [group, version, kind] = KIND.map(str::to_owned);
    RegisterationResp { name: "externalDriver".to_owned(), group, kind, version }
}

async fn create(
    client: &InfragrpcClient<Channel>,
    cloud: &OldCloud,
    params: &OperationParams,
) -> CreateResp {
    let (class, secret) = match class_and_secret(client, params).await {
        Ok(both) => both,
        Err(error) => {
            let literal = || "Error".to_owned();
            return CreateResp { provider_id: literal(), nodename: literal(), error };
        }
    };
    let (id, nodename) = {
        let mut state = cloud.lock();
        state.made += 1;
        let number = state.made;
        let region = class["spec"]["region"].as_str().unwrap_or_default();
        let id = format!("old:///{region}/i-{number}");
        let vm = Vm {
            id: id.clone(),
            name: params.machine_name.clone(),
            user_data: decoded(&secret["data"]["userData"]),
            access_key: decoded(&secret["data"]["accessKey"]),
            tags: tags(&class),
        };
        state.vms.insert(id.clone(), vm);
        (id, format!("ip-10-0-0-{number}"))
    };
    let mut held = cloud.held.subscribe();
    let _released = held.wait_for(|held| !held).await;
    CreateResp { provider_id: id, nodename, error: String::new() }
}

async fn delete(
    client: &InfragrpcClient<Channel>,
    cloud: &OldCloud,
    params: &OperationParams,
) -> Result<(), String> {
    let found = list(client, cloud, params).await?;
    // Nothing found is fine.
    for (id, _) in found {
        cloud.lock().vms.remove(&id);
    }
    Ok(())
}

async fn listing(
    client: &InfragrpcClient<Channel>,
    cloud: &OldCloud,
    params: &OperationParams,
) -> ListResp {
    match list(client, cloud, params).await {
        Ok(found) => {
            let machine = |(machine_id, machine_name)| Machine { machine_id, machine_name };
            ListResp { list: found.into_iter().map(machine).collect(), error: String::new() }
        }
        Err(error) => ListResp { list: Vec::new(), error },
    }
}

async fn list(
    client: &InfragrpcClient<Channel>,
    cloud: &OldCloud,
    params: &OperationParams,
) -> Result<Vec<(String, String)>, String> {
    let (class, _) = class_and_secret(client, params).await?;
    let wanted = tags(&class);
    let wanted = |part: &str| wanted.iter().find(|key| key.contains(part)).cloned();
    let (Some(cluster), Some(role)) =
        (wanted("kubernetes.io/cluster/"), wanted("kubernetes.io/role/"))
    else {
        return Ok(Vec::new());
    };
    let state = cloud.lock();
    let vms = state.vms.values().filter(|vm| vm.tags.contains(&cluster) && vm.tags.contains(&role));
    let vms = vms.filter(|vm| params.machine_id.is_empty() || vm.id == params.machine_id);
    Ok(vms.map(|vm| (vm.id.clone(), vm.name.clone())).collect())
}

async fn class_and_secret(
    client: &InfragrpcClient<Channel>,
    params: &OperationParams,
) -> Result<(Value, Value), String> {
    let meta = params.machine_class_meta_data.as_ref().ok_or("no class is named")?;
    let parsed = |text: String| serde_json::from_str::<Value>(&text).map_err(|it| it.to_string());
    let class = parsed(class(client.clone(), &meta.name).await?)?;
    let named = |key: &str| class["spec"]["secretRef"][key].as_str().unwrap_or_default();
    let secret = secret(client.clone(), named("namespace"), named("name")).await?;
    Ok((class.clone(), parsed(secret)?))
}

async fn class(mut client: InfragrpcClient<Channel>, name: &str) -> Result<String, String> {
    let asked = client.get_machine_class(MachineClassMeta { name: name.to_owned(), revision: 1 });
    let found = tokio::time::timeout(DEADLINE, asked).await.map_err(|it| it.to_string())?;
    let found = found.map_err(|status| status.to_string())?.into_inner();
    if found.error.is_empty() { Ok(found.data) } else { Err(found.error) }
}

async fn secret(
    mut client: InfragrpcClient<Channel>,
    namespace: &str,
    name: &str,
) -> Result<String, String> {
    let asked = client.get_secret(Request::new(SecretMeta {
        secret_name: name.to_owned(),
        name_space: namespace.to_owned(),
        revision: 1,
    }));
    let found = tokio::time::timeout(DEADLINE, asked).await.map_err(|it| it.to_string())?;
    let found = found.map_err(|status| status.to_string())?.into_inner();
    if found.error.is_empty() { Ok(found.data) } else { Err(found.error) }
}

fn tags(class: &Value) -> Vec<String> {
    let tags = class["spec"]["tags"].as_object();
    tags.into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

/// The text behind a value of a Secret.
fn decoded(value: &Value) -> String {
    let bytes =
        serde_json::from_value::<k8s_openapi::ByteString>(value.clone()).unwrap_or_default();
    String::from_utf8(bytes.0).unwrap_or_default()
}
