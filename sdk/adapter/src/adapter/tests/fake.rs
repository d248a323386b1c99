//! A driver in this process.

use std::pin::Pin;

use proto::machine_driver_service_server::MachineDriverService;
use tokio::sync::Semaphore;
use tokio_stream::Stream;
use tonic::{Request as Call, Response as Reply, Status};

use super::*;

/// A driver whose creates wait for a permit; all requests are recorded.
#[derive(Debug, Clone)]
pub(super) struct Fake {
    pub(super) permits: Arc<Semaphore>,
    pub(super) began: Arc<Semaphore>,
    pub(super) asked: Arc<Mutex<Vec<proto::OperationContext>>>,
    pub(super) cancelled: Arc<Semaphore>,
    pub(super) running: Arc<Mutex<Vec<RunningOperation>>>,
    /// How often the driver was asked for its info.
    pub(super) looks: Arc<Semaphore>,
    /// The reason why the driver is not ready, or the status with which its probe fails.
    pub(super) lack: Arc<Mutex<Result<String, Status>>>,
    /// How often the driver's events were watched; each watch yields one event and ends.
    pub(super) watched: Arc<Semaphore>,
    /// The status of calls after their work.
    pub(super) bare: Arc<Mutex<Option<Status>>>,
}

impl Fake {
    pub(super) fn new(running: Vec<RunningOperation>) -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self {
            permits: none(),
            began: none(),
            asked: Arc::default(),
            cancelled: none(),
            running: Arc::new(Mutex::new(running)),
            looks: none(),
            lack: Arc::new(Mutex::new(Ok("the cloud is away".to_owned()))),
            watched: none(),
            bare: Arc::default(),
        }
    }

    fn end(&self) -> Result<(), Status> {
        self.bare.lock().clone().map_or(Ok(()), Err)
    }
}

type Answered<T> = Result<Reply<T>, Status>;

#[tonic::async_trait]
impl MachineDriverService for Fake {
    type ListMachinesStream =
        Pin<Box<dyn Stream<Item = Result<proto::ListMachinesResponse, Status>> + Send>>;

    async fn get_info(&self, _: Call<proto::GetInfoRequest>) -> Answered<GetInfoResponse> {
        self.looks.add_permits(1);
        let kinds = [
            OperationKind::CreateMachine,
            OperationKind::DeleteMachine,
            OperationKind::ListMachines,
        ];
        Ok(Reply::new(GetInfoResponse {
            provider: PROVIDER.to_owned(),
            boot_id: BOOT.to_owned(),
            operation_kinds: kinds.map(Into::into).to_vec(),
            running: self.running.lock().clone(),
            capabilities: vec![DriverCapability::Events.into()],
            ..Default::default()
        }))
    }

    async fn probe(&self, _: Call<proto::ProbeRequest>) -> Answered<proto::ProbeResponse> {
        let not_ready_reason = self.lack.lock().clone()?;
        Ok(Reply::new(proto::ProbeResponse { not_ready_reason }))
    }

    async fn create_machine(
        &self,
        call: Call<proto::CreateMachineRequest>,
    ) -> Answered<proto::CreateMachineResponse> {
        let this = self.clone();
        // A handler that goes on when its client has gone, as the contract says.
        let work = tokio::spawn(async move {
            this.asked.lock().extend(call.into_inner().context.map(|it| *it));
            this.began.add_permits(1);
            this.permits.acquire().await.unwrap().forget();
        });
        work.await.unwrap();
        self.end()?;
        Ok(Reply::new(proto::CreateMachineResponse {
            checkpoint: "made".to_owned(),
            ..Default::default()
        }))
    }

    async fn initialize_machine(
        &self,
        _: Call<proto::InitializeMachineRequest>,
    ) -> Answered<proto::InitializeMachineResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn update_machine(
        &self,
        _: Call<proto::UpdateMachineRequest>,
    ) -> Answered<proto::UpdateMachineResponse> {
        Err(Status::not_found("project not found"))
    }

    async fn delete_machine(
        &self,
        _: Call<proto::DeleteMachineRequest>,
    ) -> Answered<proto::DeleteMachineResponse> {
        self.end()?;
        Ok(Reply::new(proto::DeleteMachineResponse::default()))
    }

    async fn get_machine_status(
        &self,
        _: Call<proto::GetMachineStatusRequest>,
    ) -> Answered<proto::GetMachineStatusResponse> {
        self.end()?;
        Err(Status::unimplemented("not here"))
    }

    type WatchEventsStream = tokio_stream::Once<Result<proto::WatchEventsResponse, Status>>;

    async fn watch_events(
        &self,
        _: Call<proto::WatchEventsRequest>,
    ) -> Answered<Self::WatchEventsStream> {
        self.watched.add_permits(1);
        let provider_id = format!("fake:///{}", self.watched.available_permits());
        let event = proto::DriverEvent { provider_id, ..Default::default() };
        let told = proto::WatchEventsResponse { event: Some(event) };
        Ok(Reply::new(tokio_stream::once(Ok(told))))
    }

    async fn create_pool(
        &self,
        _: Call<proto::CreatePoolRequest>,
    ) -> Answered<proto::CreatePoolResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn update_pool(
        &self,
        _: Call<proto::UpdatePoolRequest>,
    ) -> Answered<proto::UpdatePoolResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn delete_pool(
        &self,
        _: Call<proto::DeletePoolRequest>,
    ) -> Answered<proto::DeletePoolResponse> {
        Err(Status::unimplemented("not here"))
    }

    type GetPoolStatusStream =
        Pin<Box<dyn Stream<Item = Result<proto::GetPoolStatusResponse, Status>> + Send>>;

    async fn get_pool_status(
        &self,
        call: Call<proto::GetPoolStatusRequest>,
    ) -> Answered<Self::GetPoolStatusStream> {
        self.asked.lock().extend(call.into_inner().context.map(|it| *it));
        self.end()?;
        let part = |id: &str, desired| {
            let machines =
                vec![proto::PoolMachineRecord { instance_id: id.to_owned(), ..Default::default() }];
            let pool = proto::PoolRecord { desired, ..Default::default() };
            Ok(proto::GetPoolStatusResponse { pool: Some(pool), machines, pages: 0 })
        };
        Ok(Reply::new(Box::pin(tokio_stream::iter([part("0", 1), part("1", 2)]))))
    }

    type ListPoolsStream = tokio_stream::Empty<Result<proto::ListPoolsResponse, Status>>;

    async fn list_pools(
        &self,
        _: Call<proto::ListPoolsRequest>,
    ) -> Answered<Self::ListPoolsStream> {
        Err(Status::unimplemented("not here"))
    }

    async fn delete_pool_machines(
        &self,
        _: Call<proto::DeletePoolMachinesRequest>,
    ) -> Answered<proto::DeletePoolMachinesResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn update_pool_machine(
        &self,
        _: Call<proto::UpdatePoolMachineRequest>,
    ) -> Answered<proto::UpdatePoolMachineResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn list_machines(
        &self,
        call: Call<proto::ListMachinesRequest>,
    ) -> Answered<Self::ListMachinesStream> {
        self.end()?;
        self.asked.lock().extend(call.into_inner().context.map(|it| *it));
        let part = |name: &str| {
            let machines = vec![proto::MachineRecord {
                provider_id: format!("fake:///{name}"),
                machine_name: name.to_owned(),
                machine_uid: format!("uid-{name}"),
                ..Default::default()
            }];
            Ok(proto::ListMachinesResponse { machines, ..Default::default() })
        };
        Ok(Reply::new(Box::pin(tokio_stream::iter([part("a"), part("b")]))))
    }

    async fn get_volume_ids(
        &self,
        call: Call<proto::GetVolumeIdsRequest>,
    ) -> Answered<proto::GetVolumeIdsResponse> {
        self.asked.lock().extend(call.into_inner().context.map(|it| *it));
        Ok(Reply::new(proto::GetVolumeIdsResponse::default()))
    }

    async fn validate_class(
        &self,
        call: Call<proto::ValidateClassRequest>,
    ) -> Answered<proto::ValidateClassResponse> {
        self.asked.lock().extend(call.into_inner().context.map(|it| *it));
        Ok(Reply::new(proto::ValidateClassResponse::default()))
    }

    async fn cancel_operation(
        &self,
        _: Call<proto::CancelOperationRequest>,
    ) -> Answered<proto::CancelOperationResponse> {
        self.cancelled.add_permits(1);
        Ok(Reply::new(proto::CancelOperationResponse {}))
    }
}
