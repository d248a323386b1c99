//! The processes beside the core: the same driver on the stream and behind the adapter, and the adapter.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use ostler_driver_sdk::{
    CreateMachine, DeleteMachine, Deletion, Driver, DriverArgs, DriverError, DriverInfo,
    GetMachineStatus, Instance, ListMachines, Options, options, run_with,
};
use ostler_proto::v1alpha1 as proto;
use proto::machine_driver_service_server::{MachineDriverService, MachineDriverServiceServer};
use proto::{GetInfoResponse, MachineRecord, OperationContext, OperationKind};
use tokio::net::UnixListener;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// The variable that names the role of a process.
pub(crate) const ROLE: &str = "OSTLER_BENCH_ROLE";
pub(crate) const TOKEN: &str = "bench";
pub(crate) const DIRECT: &str = "direct.example.com";
pub(crate) const ADAPTED: &str = "adapted.example.com";
const MAX_IN_FLIGHT: u32 = 256;

pub(crate) async fn run(role: &str) {
    let directory = PathBuf::from(std::env::var_os("OSTLER_BENCH_DIRECTORY").unwrap());
    let socket = directory.join("driver").join("s");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    match role {
        // In a task, as `run` does.
        "direct" => {
            let driver = tokio::spawn(run_with(Direct, session(&directory, role)));
            driver.await.unwrap().unwrap();
        }
        "adapter" => ostler_adapter::serve(socket, None, session(&directory, role)).await.unwrap(),
        _ => {
            let service = MachineDriverServiceServer::new(Unary);
            let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        }
    }
}

fn session(directory: &Path, role: &str) -> Options {
    let token_file = directory.join(format!("{role}.token"));
    std::fs::write(&token_file, TOKEN).unwrap();
    let args = DriverArgs {
        endpoint: std::env::var("OSTLER_ENDPOINT").unwrap(),
        token_file: Some(token_file),
        exit_on_stdin_eof: true,
        instance_name: Some(role.to_owned()),
        ..DriverArgs::default()
    };
    options(&args).unwrap()
}

/// Waits for as long as the provider spec says.
async fn work(provider_spec_json: &str) {
    let number = provider_spec_json.strip_prefix("{\"work\": ").and_then(|it| it.split(',').next());
    let milliseconds = number.unwrap().parse().unwrap();
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}

struct Direct;

impl Driver for Direct {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(DIRECT).max_in_flight(MAX_IN_FLIGHT)
    }

    async fn create_machine(&self, asked: CreateMachine) -> Result<Instance, DriverError> {
        work(&asked.ctx.class().await?.provider_spec_json).await;
        asked.ctx.secret().await?;
        Ok(Instance::new(format!("bench:///{}", asked.ctx.target().uid)))
    }

    async fn delete_machine(&self, _: DeleteMachine) -> Result<Deletion, DriverError> {
        Ok(Deletion::WasAbsent)
    }

    async fn get_machine_status(&self, asked: GetMachineStatus) -> Result<Instance, DriverError> {
        work(&asked.ctx.class().await?.provider_spec_json).await;
        asked.ctx.secret().await?;
        Ok(Instance::new(asked.provider_id.unwrap_or_default()))
    }

    async fn list_machines(&self, _: ListMachines) -> Result<Vec<Instance>, DriverError> {
        Ok(Vec::new())
    }
}

struct Unary;

type Answered<T> = Result<Response<T>, Status>;

async fn record(context: Option<Box<OperationContext>>) -> Option<MachineRecord> {
    let OperationContext { target, machine_class, cluster_id, .. } = *context.unwrap();
    work(&machine_class.unwrap().provider_spec_json).await;
    let target = target.unwrap();
    Some(MachineRecord {
        provider_id: format!("bench:///{}", target.uid),
        machine_name: target.name,
        machine_uid: target.uid,
        cluster_id,
        ..MachineRecord::default()
    })
}

#[tonic::async_trait]
impl MachineDriverService for Unary {
    type ListMachinesStream =
        Pin<Box<dyn Stream<Item = Result<proto::ListMachinesResponse, Status>> + Send>>;

    type WatchEventsStream = tokio_stream::Empty<Result<proto::WatchEventsResponse, Status>>;

    async fn watch_events(
        &self,
        _: Request<proto::WatchEventsRequest>,
    ) -> Answered<Self::WatchEventsStream> {
        Err(Status::unimplemented(""))
    }

    async fn get_info(&self, _: Request<proto::GetInfoRequest>) -> Answered<GetInfoResponse> {
        let kinds = [
            OperationKind::CreateMachine,
            OperationKind::DeleteMachine,
            OperationKind::GetMachineStatus,
            OperationKind::ListMachines,
        ];
        Ok(Response::new(GetInfoResponse {
            provider: ADAPTED.to_owned(),
            boot_id: "7f8d9440-5eea-4cbf-a2da-9816c1749049".to_owned(),
            operation_kinds: kinds.map(Into::into).to_vec(),
            max_in_flight: MAX_IN_FLIGHT,
            ..GetInfoResponse::default()
        }))
    }

    async fn probe(&self, _: Request<proto::ProbeRequest>) -> Answered<proto::ProbeResponse> {
        Ok(Response::new(proto::ProbeResponse::default()))
    }

    async fn create_machine(
        &self,
        asked: Request<proto::CreateMachineRequest>,
    ) -> Answered<proto::CreateMachineResponse> {
        let machine = record(asked.into_inner().context).await;
        Ok(Response::new(proto::CreateMachineResponse { machine, ..Default::default() }))
    }

    async fn initialize_machine(
        &self,
        _: Request<proto::InitializeMachineRequest>,
    ) -> Answered<proto::InitializeMachineResponse> {
        Err(Status::unimplemented(""))
    }

    async fn update_machine(
        &self,
        _: Request<proto::UpdateMachineRequest>,
    ) -> Answered<proto::UpdateMachineResponse> {
        Err(Status::unimplemented(""))
    }

    async fn delete_machine(
        &self,
        _: Request<proto::DeleteMachineRequest>,
    ) -> Answered<proto::DeleteMachineResponse> {
        Err(Status::unimplemented(""))
    }

    async fn get_machine_status(
        &self,
        asked: Request<proto::GetMachineStatusRequest>,
    ) -> Answered<proto::GetMachineStatusResponse> {
        let machine = record(asked.into_inner().context).await;
        Ok(Response::new(proto::GetMachineStatusResponse { machine }))
    }

    async fn list_machines(
        &self,
        _: Request<proto::ListMachinesRequest>,
    ) -> Answered<Self::ListMachinesStream> {
        Err(Status::unimplemented(""))
    }

    async fn get_volume_ids(
        &self,
        _: Request<proto::GetVolumeIdsRequest>,
    ) -> Answered<proto::GetVolumeIdsResponse> {
        Err(Status::unimplemented(""))
    }

    async fn validate_class(
        &self,
        _: Request<proto::ValidateClassRequest>,
    ) -> Answered<proto::ValidateClassResponse> {
        Err(Status::unimplemented(""))
    }

    async fn create_pool(
        &self,
        _: Request<proto::CreatePoolRequest>,
    ) -> Answered<proto::CreatePoolResponse> {
        Err(Status::unimplemented(""))
    }

    async fn update_pool(
        &self,
        _: Request<proto::UpdatePoolRequest>,
    ) -> Answered<proto::UpdatePoolResponse> {
        Err(Status::unimplemented(""))
    }

    async fn delete_pool(
        &self,
        _: Request<proto::DeletePoolRequest>,
    ) -> Answered<proto::DeletePoolResponse> {
        Err(Status::unimplemented(""))
    }

    type GetPoolStatusStream = tokio_stream::Empty<Result<proto::GetPoolStatusResponse, Status>>;

    async fn get_pool_status(
        &self,
        _: Request<proto::GetPoolStatusRequest>,
    ) -> Answered<Self::GetPoolStatusStream> {
        Err(Status::unimplemented(""))
    }

    type ListPoolsStream = tokio_stream::Empty<Result<proto::ListPoolsResponse, Status>>;

    async fn list_pools(
        &self,
        _: Request<proto::ListPoolsRequest>,
    ) -> Answered<Self::ListPoolsStream> {
        Err(Status::unimplemented(""))
    }

    async fn delete_pool_machines(
        &self,
        _: Request<proto::DeletePoolMachinesRequest>,
    ) -> Answered<proto::DeletePoolMachinesResponse> {
        Err(Status::unimplemented(""))
    }

    async fn update_pool_machine(
        &self,
        _: Request<proto::UpdatePoolMachineRequest>,
    ) -> Answered<proto::UpdatePoolMachineResponse> {
        Err(Status::unimplemented(""))
    }

    async fn cancel_operation(
        &self,
        _: Request<proto::CancelOperationRequest>,
    ) -> Answered<proto::CancelOperationResponse> {
        Ok(Response::new(proto::CancelOperationResponse {}))
    }
}
