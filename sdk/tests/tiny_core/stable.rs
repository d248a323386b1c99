//! A driver whose verbs do what the name of the machine says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_driver_sdk::{
    CancellationToken, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError,
    DriverInfo, Events, GetMachineStatus, InitializeMachine, Instance, ListMachines,
    OptionalOperation, Options, Readiness, run_with,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::TinyCore;

/// A driver of the provider `stable.example.com`.
#[derive(Clone, Default)]
pub(crate) struct Stable {
    pub(crate) creates: Arc<AtomicUsize>,
    /// Lets one machine named `waits…` go on.
    pub(crate) go: Arc<Notify>,
    pub(crate) listed: usize,
    pub(crate) readiness: Readiness,
    pub(crate) events: Events,
}

/// A driver that runs.
pub(crate) struct Running {
    pub(crate) shutdown: CancellationToken,
    pub(crate) hurry: CancellationToken,
    pub(crate) ended: JoinHandle<()>,
}

impl Stable {
    pub(crate) fn run(&self, core: &TinyCore) -> Running {
        let (shutdown, hurry) = (CancellationToken::new(), CancellationToken::new());
        let options = Options::new(core.connector())
            .shutdown(shutdown.clone())
            .hurry(hurry.clone())
            .drain_timeout(Duration::from_secs(25));
        let driver = self.clone();
        let ended = tokio::spawn(async move { run_with(driver, options).await.unwrap() });
        Running { shutdown, hurry, ended }
    }

    async fn act(&self, ctx: &Context) -> Result<(), DriverError> {
        let name = ctx.target().name.as_str();
        match name.split('-').next().unwrap_or_default() {
            "hangs" => std::future::pending().await,
            "panics" => panic!("as asked"),
            "waits" => self.go.notified().await,
            "cancels" => {
                ctx.cancelled().await;
                return Err(DriverError::canceled("stopped").not_applied());
            }
            "talks" => {
                ctx.progress_percent("Copying", 40, "the disk");
                ctx.save_checkpoint("disk-1");
                self.go.notified().await;
            }
            "throttles" => {
                let wait = Duration::from_secs(7);
                return Err(DriverError::throttled("slow down").not_applied().retry_after(wait));
            }
            "checkpoints" => {
                ctx.progress("Booting", "half way");
                ctx.save_checkpoint("step-2");
                return Err(DriverError::unavailable("later").partial());
            }
            "notes" => {
                let secret = ctx.secret().await?;
                ctx.save_checkpoint("step-1");
                ctx.save_checkpoint(format!("logins/{}", secret.text("password")?));
                return Err(DriverError::unavailable("later").partial());
            }
            "classy" => {
                #[derive(serde::Deserialize)]
                struct Spec {
                    size: u32,
                }
                assert_eq!(ctx.class().await?.spec::<Spec>()?.size, 3);
            }
            "secretive" => {
                let secret = ctx.secret().await?;
                return Err(DriverError::unauthenticated(format!(
                    "login {} refused",
                    secret.text("password")?
                )));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Driver for Stable {
    fn info(&self) -> DriverInfo {
        DriverInfo::new("stable.example.com")
            .max_in_flight(4)
            .offering([OptionalOperation::InitializeMachine])
    }

    fn events(&self) -> Option<Events> {
        Some(self.events.clone())
    }

    fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        self.creates.fetch_add(1, Ordering::SeqCst);
        self.act(&request.ctx).await?;
        let instance = Instance::new(format!("stable:///{}", request.ctx.target().uid));
        if !request.ctx.target().name.starts_with("quotes") {
            return Ok(instance);
        }
        let user_data = std::str::from_utf8(request.user_data()).unwrap();
        let fault = format!("invalid user data {user_data} {}", "x".repeat(100_000));
        Ok(instance.fault(DriverError::failed_precondition(fault)))
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        self.act(&request.ctx).await?;
        Ok(Deletion::Deleted)
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        self.act(&request.ctx).await?;
        Err(DriverError::not_found("no such horse"))
    }

    async fn list_machines(&self, _: ListMachines) -> Result<Vec<Instance>, DriverError> {
        let instance = |index| Instance::new(format!("stable:///{index}"));
        Ok((0..self.listed).map(instance).collect())
    }

    async fn initialize_machine(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        Ok(Instance::new(request.provider_id).initialized(true))
    }
}
