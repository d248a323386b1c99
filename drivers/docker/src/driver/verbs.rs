//! The verbs.

use std::time::Duration;

use ostler_driver_sdk::{
    Class, ClassReview, CreateMachine, CreatePool, DeleteMachine, DeletePool, DeletePoolMachines,
    Deletion, Driver, DriverError, DriverInfo, Events, GetMachineStatus, GetPoolStatus,
    InitializeMachine, Instance, ListMachines, ListPools, OptionalOperation, Part, Pool,
    PoolInstance, PoolMachinesDeleted, PoolStatus, Readiness, UpdateMachine, UpdatePool,
    UpdatePoolMachine, Updated, ValidateClass,
};

use super::{DockerDriver, PROVIDER};
use crate::spec::ProviderSpec;

/// An engine takes many calls and has one disk: more concurrent calls are not faster.
const MAX_IN_FLIGHT: u32 = 32;
/// An engine lists a new container immediately; a busy engine may take this long to make a container whose caller died.
const LIST_LAG: Duration = Duration::from_secs(10);

impl Driver for DockerDriver {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(PROVIDER)
            .name("ostler-driver-docker")
            .version(env!("CARGO_PKG_VERSION"))
            .max_in_flight(MAX_IN_FLIGHT)
            .list_lag(LIST_LAG)
            .knows_previous_cluster_ids()
            .offering([
                OptionalOperation::InitializeMachine,
                OptionalOperation::UpdateMachine,
                OptionalOperation::ValidateClass,
                OptionalOperation::Pools,
                OptionalOperation::DeletePoolMachines,
                OptionalOperation::UpdatePoolMachine,
            ])
    }

    fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    fn events(&self) -> Option<Events> {
        Some(self.events.clone())
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        self.create(request).await
    }

    async fn initialize_machine(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        self.initialize(request).await
    }

    async fn update_machine(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        self.update(request).await
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        self.delete(request).await
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        self.status(request).await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        self.list(request).await
    }

    async fn list_parts(&self, request: ListMachines) -> Result<Vec<Part>, DriverError> {
        self.parts(request).await
    }

    /// All classes have the one engine.
    fn list_scope(&self, _class: &Class) -> String {
        "engine".to_owned()
    }

    async fn validate_class(&self, request: ValidateClass) -> Result<ClassReview, DriverError> {
        let mut review = request.review(ProviderSpec::violations);
        if let Ok(spec) = request.spec::<ProviderSpec>() {
            let refusals = self.permissions.refusals(&spec);
            review.violations.extend(refusals.into_iter().map(|refusal| refusal.violation));
        }
        Ok(review)
    }

    async fn create_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        self.make_pool(request).await
    }

    async fn update_pool(&self, request: UpdatePool) -> Result<Pool, DriverError> {
        self.change_pool(request).await
    }

    async fn delete_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        self.remove_pool(request).await
    }

    async fn get_pool_status(&self, request: GetPoolStatus) -> Result<PoolStatus, DriverError> {
        self.read_pool(request).await
    }

    async fn list_pools(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        self.read_pools(request).await
    }

    async fn delete_pool_machines(
        &self,
        request: DeletePoolMachines,
    ) -> Result<PoolMachinesDeleted, DriverError> {
        self.remove_pool_machines(request).await
    }

    async fn update_pool_machine(
        &self,
        request: UpdatePoolMachine,
    ) -> Result<PoolInstance, DriverError> {
        self.bring_pool_machine(request).await
    }
}
