//! A driver with the SDK, for the cloud in cloud.rs: a method for each operation. `ostler driver new --lang rust` begins with it.

mod cloud;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use ostler_driver_sdk::{
    ClassReview, Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo,
    GetMachineStatus, HotSpec, InitializeMachine, Instance, ListMachines, OptionalOperation,
    PowerState, UpdateMachine, Updated, ValidateClass, Violation,
};
use serde::{Deserialize, Serialize};

use cloud::{Cloud, Server};

const PROVIDER: &str = "rust.ostler.dev";

/// The providerSpec of a class. What is `hot` can change while an instance runs.
#[derive(Debug, Clone, Serialize, Deserialize, HotSpec)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Spec {
    size: String,
    image: String,
    /// How long this cloud takes to make an instance.
    #[ostler(hot)]
    #[serde(default)]
    boot_seconds: f64,
    #[ostler(hot)]
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

impl Spec {
    /// What the types do not catch.
    fn wrong(&self) -> Vec<Violation> {
        let reserved = self.tags.keys().any(|key| key.starts_with("ostler.dev/"));
        let rules = [
            ("size", ["small", "large"].contains(&self.size.as_str()), "must be small or large"),
            ("image", !self.image.is_empty(), "must name an image"),
            ("bootSeconds", (0.0..=600.0).contains(&self.boot_seconds), "must be from 0 to 600"),
            ("tags", !reserved, "must have none of ostler.dev/, which are the identity"),
        ];
        let wrong = rules.into_iter().filter(|(_, good, _)| !good);
        wrong.map(|(path, _, text)| Violation::new(path, text)).collect()
    }

    async fn of(ctx: &Context) -> Result<Self, DriverError> {
        let spec: Self = ctx.class().await?.spec()?;
        let refused =
            DriverError::invalid_argument("the provider spec is wrong").reason("BAD_SPEC");
        match spec.wrong() {
            wrong if wrong.is_empty() => Ok(spec),
            wrong => Err(wrong
                .into_iter()
                .fold(refused.not_applied(), |error, it| error.violation(it.path, it.description))),
        }
    }
}

/// This cloud lets everybody in whose key does not begin with `invalid`.
async fn log_in(ctx: &Context) -> Result<(), DriverError> {
    let secret = ctx.secret().await?;
    if secret.get("apiKey").is_none_or(|key| key.starts_with(b"invalid")) {
        let refused = DriverError::unauthenticated("the cloud refuses the apiKey of the secret");
        return Err(refused.reason("BAD_KEY").not_applied());
    }
    Ok(())
}

/// The instance of the machine: by the id that the core knows if cluster and name fit, else by UID.
fn find<'a>(
    cloud: &'a mut Cloud,
    ctx: &Context,
    id: Option<&str>,
) -> Result<Option<&'a mut Server>, DriverError> {
    let (target, ours) = (ctx.target(), ctx.cluster_id());
    let mine = |it: &Server| {
        it.cluster == ours
            && (it.uid == target.uid || (Some(it.id.as_str()) == id && it.name == target.name))
    };
    match cloud.servers.iter().filter(|it| mine(it)).count() {
        0 => match cloud.servers.iter().find(|it| Some(it.id.as_str()) == id) {
            Some(other) => Err(DriverError::not_ours(&other.id).of_cluster(&other.cluster)),
            None => Ok(None),
        },
        1 => Ok(cloud.servers.iter_mut().find(|it| mine(it))),
        _ => Err(DriverError::out_of_range("two instances claim to be this machine: delete one")),
    }
}

fn absent() -> DriverError {
    DriverError::not_found("there is no such instance").not_applied()
}

fn told(server: &Server) -> Instance {
    let boots = server.boots_for() > Duration::ZERO;
    Instance::new(&server.id)
        .machine(&server.name, &server.uid)
        .power_state(if boots { PowerState::Pending } else { PowerState::Running })
        .initialized(server.initialized)
}

/// What the cloud says of the machine's instance, which is changed so.
fn change(
    ctx: &Context,
    id: Option<&str>,
    act: impl FnOnce(&mut Server) -> Result<(), DriverError>,
) -> Result<Instance, DriverError> {
    cloud::ask(|cloud| {
        let server = find(cloud, ctx, id)?.ok_or_else(absent)?;
        act(server)?;
        Ok(told(server))
    })?
}

/// In each method the calls of your cloud take the place of `cloud::ask`.
struct Example;

impl Driver for Example {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(PROVIDER).version(env!("CARGO_PKG_VERSION")).max_in_flight(64).offering([
            OptionalOperation::InitializeMachine,
            OptionalOperation::UpdateMachine,
            OptionalOperation::ValidateClass,
        ])
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let ctx = &request.ctx;
        log_in(ctx).await?;
        let spec = Spec::of(ctx).await?;
        let user_data = cloud::encoded(request.user_data());
        // Look first: this may be the second try. All tags go into the call that makes the instance.
        let (instance, boots_for) = cloud::ask(|cloud| {
            let target = ctx.target();
            if let Some(server) = find(cloud, ctx, request.provider_id.as_deref())? {
                if server.uid == target.uid
                    && (&server.spec.size, &server.spec.image) != (&spec.size, &spec.image)
                {
                    return Err(DriverError::already_exists("its instance was made differently")
                        .not_applied());
                }
                server.uid.clone_from(&target.uid); // a restored cluster: adopt it
                server.tags.extend(request.tags.clone());
                return Ok((told(server), server.boots_for()));
            }
            let mut tags = spec.tags.clone();
            tags.extend(request.tags.clone());
            let server = Server {
                id: format!("rust:///{}", uuid::Uuid::new_v4().simple()),
                cluster: ctx.cluster_id().to_owned(),
                uid: target.uid.clone(),
                name: target.name.clone(),
                ready_at: SystemTime::now() + Duration::from_secs_f64(spec.boot_seconds),
                initialized: false,
                user_data,
                spec,
                tags,
            };
            let made = (told(&server), server.boots_for());
            cloud.servers.push(server);
            Ok(made)
        })??;
        tokio::select! {
            () = tokio::time::sleep(boots_for) => Ok(instance.power_state(PowerState::Running)),
            // The instance exists, whatever follows.
            () = ctx.cancelled() => Err(DriverError::canceled("the instance still boots").partial()),
        }
    }

    async fn initialize_machine(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        log_in(&request.ctx).await?;
        change(&request.ctx, Some(&request.provider_id), |server| {
            server.initialized = true;
            Ok(())
        })
    }

    async fn update_machine(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        log_in(&request.ctx).await?;
        let spec = Spec::of(&request.ctx).await?;
        let mut applied_paths = Vec::new();
        let _now = change(&request.ctx, Some(&request.provider_id), |server| {
            let fixed = ostler_driver_sdk::hot::fixed_changes(&server.spec, &spec);
            let fixed = fixed.map_err(|error| DriverError::internal(error.to_string()))?;
            let fixed = request.in_the_way(&spec, fixed);
            if !fixed.is_empty() {
                return Err(DriverError::not_hot_updatable(fixed));
            }
            let mut tags = server.tags.clone();
            tags.retain(|key, _| !server.spec.tags.contains_key(key)); // tags of others stay
            tags.extend(spec.tags.clone());
            if tags != server.tags {
                applied_paths.push("tags".to_owned());
            }
            (server.tags, server.spec.tags) = (tags, spec.tags.clone());
            Ok(())
        })?;
        Ok(Updated { applied_paths })
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let ctx = &request.ctx;
        log_in(ctx).await?;
        let (ours, id) = (ctx.cluster_id().to_owned(), request.provider_id);
        cloud::ask(|cloud| {
            let (target, before) = (ctx.target(), cloud.servers.len());
            let named = |it: &Server| Some(&it.id) == id.as_ref();
            cloud.servers.retain(|it| {
                it.cluster != ours
                    || (it.uid != target.uid && !(named(it) && it.name == target.name))
            });
            match cloud.servers.iter().find(|it| named(it)) {
                Some(other) => {
                    let (provider_id, cluster_id) = (other.id.clone(), other.cluster.clone());
                    Deletion::NotOurs { provider_id, cluster_id } // it is there, and not touched
                }
                None if cloud.servers.len() < before => Deletion::Deleted,
                None => Deletion::WasAbsent,
            }
        })
        .map_err(Into::into)
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        log_in(&request.ctx).await?;
        change(&request.ctx, request.provider_id.as_deref(), |_| Ok(()))
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        log_in(&request.ctx).await?;
        let ours = request.ctx.cluster_id();
        let mine = |cloud: &mut Cloud| {
            cloud.servers.iter().filter(|it| it.cluster == ours).map(told).collect()
        };
        Ok(cloud::ask(mine)?)
    }

    async fn validate_class(&self, request: ValidateClass) -> Result<ClassReview, DriverError> {
        Ok(request.review(Spec::wrong))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, question @ ..] = words.as_slice()
        && word == "probe"
    {
        return match cloud::probe(question) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _unheard = writeln!(std::io::stderr(), "{error}");
                ExitCode::FAILURE
            }
        };
    }
    ostler_driver_sdk::run(Example).await
}
