//! Wishes of users for pools, and the cloud's treatment of their instances.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ostler_api::names::annotation;
use ostler_api::{MachineClass, MachinePool};
use serde_json::{Value, json};

use super::super::users::Users;
use super::super::world::{PROVIDERS, World};
use super::plans::CLASSES;
use super::{Wish, orphans, others, pool_name};

/// The bootstrap token of instances of groups.
const TOKEN: &str = "p00lex.0123456789abcdef";

/// Name of a class of groups.
pub fn class_name(number: u8) -> String {
    format!("g{number}")
}

/// Name of the Secret of the token that instances of groups join with. A user made the Secret, and it stays.
pub fn token_name() -> String {
    format!("bootstrap-token-{TOKEN:.6}")
}

pub(super) fn spec(class: u8) -> Value {
    let mut spec = json!({ "region": "r", "image": "i", "kubelet": { "podShutdown": "3s" } });
    match class {
        // Quick.
        0 => {}
        // Slow, and each third instance very slow.
        1 => {
            spec["latency"] = json!({ "create": "3s", "boot": "5s", "join": "4s", "delete": "8s" });
            spec["groups"] = json!({ "slowEvery": 3, "slowBoot": "90s" });
        }
        // Each fourth instance fails.
        _ => spec["groups"] = json!({ "failEvery": 4 }),
    }
    spec
}

impl Users {
    /// What instances of groups are made from: their user data are the same for all, with a token of their own.
    pub async fn prepare_pools(&self) {
        let user_data = format!(
            "--token={TOKEN} --register-with-taints=node.machine.sapcloud.io/instance-not-ready=:NoSchedule"
        );
        let (id, secret) = TOKEN.split_once('.').expect("a token has two parts");
        let token = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": token_name(), "namespace": "kube-system" },
            "stringData": {
                "token-id": id, "token-secret": secret,
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            },
        });
        let data = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "group", "namespace": "default" },
            "stringData": { "userData": user_data, "accessToken": "good" },
        });
        for secret in [token, data] {
            let secret: Secret = serde_json::from_value(secret).expect("these are secrets");
            let namespace = secret.metadata.namespace.clone().unwrap_or_default();
            let api = Api::<Secret>::namespaced(self.client(), &namespace);
            api.create(&PostParams::default(), &secret).await.expect("it is accepted");
        }
        for number in 0..CLASSES {
            let class: MachineClass = serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
                "metadata": { "name": class_name(number), "namespace": "default" },
                "provider": PROVIDERS[0],
                "providerSpec": spec(number),
                "secretRef": { "name": "group", "namespace": "default" },
            }))
            .expect("this is a class");
            let api = Api::<MachineClass>::default_namespaced(self.client());
            api.create(&PostParams::default(), &class).await.expect("it is accepted");
        }
    }

    async fn keep_pool(
        &self,
        (pool, replicas, class): (u8, u8, u8),
        (annotations, strategy): (Value, Value),
    ) {
        let pool: MachinePool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": {
                "name": pool_name(pool), "namespace": "default", "annotations": annotations,
            },
            "spec": {
                "replicas": replicas,
                "strategy": strategy,
                "template": {
                    "spec": { "class": { "kind": "MachineClass", "name": class_name(class) } },
                },
            },
        }))
        .expect("this is a pool");
        self.pools().create(&PostParams::default(), &pool).await.ok();
    }

    /// Another spec of a class: running instances take tags, and no image.
    async fn edit_pool_class(&self, class: u8, tags: u8, image: u8) {
        let mut spec = spec(class);
        spec["tags"] = json!({ "vm": { "version": tags.to_string() } });
        spec["image"] = json!(if image == 0 { "i".to_owned() } else { format!("i{image}") });
        let patch = Patch::Merge(json!({ "providerSpec": spec }));
        let api = Api::<MachineClass>::default_namespaced(self.client());
        api.patch(&class_name(class), &PatchParams::default(), &patch).await.ok();
    }

    fn pools(&self) -> Api<MachinePool> {
        Api::default_namespaced(self.client())
    }

    pub(super) async fn patch_pool(&self, pool: u8, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.pools().patch(&pool_name(pool), &params, &patch).await.ok();
    }
}

/// Carries a wish out.
pub async fn happen(world: &World, wish: Wish) {
    let users = &world.users;
    match wish {
        Wish::Keep { pool, replicas, class, surge, missing } => {
            let strategy = json!({
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": surge, "maxUnavailable": missing },
            });
            users.keep_pool((pool, replicas, class), (json!({}), strategy)).await;
        }
        Wish::KeepInPlace { pool, replicas, class, missing, replace } => {
            let failed = if replace { "Replace" } else { "Hold" };
            let strategy = json!({
                "type": "InPlaceUpdate",
                "inPlaceUpdate": { "maxUnavailable": missing, "onUpdateFailure": failed },
            });
            users.keep_pool((pool, replicas, class), (json!({}), strategy)).await;
        }
        Wish::KeepScaled { pool, replicas, class } => {
            let by = json!({ annotation::REPLICAS_MANAGED_BY: "others" });
            users.keep_pool((pool, replicas, class), (by, json!({}))).await;
        }
        Wish::Resize { pool, size } => others::resize(world, pool, size).await,
        Wish::Update { pool, machine, on } => {
            if let Some(name) = nth(world, pool, machine) {
                let asks = json!({ annotation::UPDATE_INSTANCE: on.then_some("") });
                users.patch_machine(&name, json!({ "metadata": { "annotations": asks } })).await;
            }
        }
        Wish::Edit { class, tags, image } => users.edit_pool_class(class, tags, image).await,
        Wish::Tear { pool } => orphans::tear(world, pool).await,
        Wish::Stray { pool } => orphans::stray(world, pool).await,
        Wish::Scale { pool, replicas } => {
            users.patch_pool(pool, json!({ "spec": { "replicas": replicas } })).await;
        }
        Wish::Roll { pool, version } => {
            let spec = json!({ "version": format!("v{version}") });
            users.patch_pool(pool, json!({ "spec": { "template": { "spec": spec } } })).await;
        }
        Wish::Machine { pool, machine } => {
            if let Some(name) = nth(world, pool, machine) {
                users.delete(&name).await;
            }
        }
        Wish::Pods { pool, machine, round } => {
            if let Some(name) = nth(world, pool, machine) {
                users.pods(&name, 2, 15, false, 1_000 + usize::from(round)).await;
            }
        }
        Wish::Lose { pool, machine } => {
            if let Some(name) = nth(world, pool, machine) {
                lose(world, &name);
            }
        }
        Wish::Delete { pool } => users.delete_by_name::<MachinePool>(&pool_name(pool)).await,
    }
}

/// The name of a machine of a pool, if it has any.
fn nth(world: &World, pool: u8, number: u8) -> Option<String> {
    let pool = pool_name(pool);
    let lives = world.around.oracle.lives().into_values();
    let label = ostler_api::names::label::POOL_NAME;
    let of_pool = lives.filter(|it| it.machine.label(label) == Some(&pool));
    let mut names: Vec<_> = of_pool.map(|it| it.name).collect();
    names.sort();
    let at = usize::from(number).checked_rem(names.len())?;
    names.get(at).cloned()
}

/// The instance is gone, and its kubelet is silent from then on.
fn lose(world: &World, machine: &str) {
    let oracle = &world.around.oracle;
    let Some(life) = oracle.lives().into_values().find(|it| it.name == machine) else { return };
    let Some(id) = life.machine.provider_id().map(ToString::to_string) else { return };
    world.around.trace.note("cloud", format_args!("loses {id} of {machine}"));
    for cloud in &world.around.clouds {
        cloud.remove(std::slice::from_ref(&id)).expect("a cloud in memory has no journal");
    }
    world.falls_silent(machine, &id);
}
