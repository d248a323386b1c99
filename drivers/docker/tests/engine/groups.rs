//! Groups: what a driver that knows nothing finds on the engine, and what is left there.

use ostler_driver_docker::DockerDriver;
use ostler_driver_sdk::{
    Certainty, CreatePool, DeletePool, DeletePoolMachines, Deletion, Driver as _, DriverError,
    GetPoolStatus, ListMachines, PoolModel, PoolSize, PoolStatus, UpdatePool, UpdatePoolMachine,
    UserData,
};
use serde_json::json;

use crate::docker::Docker;
use crate::machine::{Machine, Sweep};

fn model(hash: &str) -> PoolModel {
    let user_data = UserData::for_tests("canary-user-data");
    PoolModel { hash: hash.to_owned(), user_data, ..PoolModel::default() }
}

/// A pool that only a test knows, and what it is asked with: each time by a driver that was started just now.
struct Stage {
    docker: Docker,
    /// Name, UID, cluster and class are those of the pool.
    pool: Machine,
    _sweep: Sweep,
}

impl Stage {
    fn new(name: &str) -> Option<Self> {
        let docker = Docker::here()?;
        let pool = Machine::new(name, &json!({ "volumes": [{ "name": "data", "path": "/data" }] }));
        let sweep = pool.swept(&docker);
        Some(Self { docker, pool, _sweep: sweep })
    }

    fn driver(&self) -> DockerDriver {
        DockerDriver::new(self.docker.engine())
    }

    async fn create(&self, desired: i32) -> Result<(), DriverError> {
        let ctx = self.pool.ctx();
        let tags = ctx.pool_identity().tags();
        let model = model("one");
        let asked = CreatePool { ctx, desired, model, tags, provider_id: None };
        self.driver().create_pool(asked).await.map(drop)
    }

    async fn status(&self) -> Result<PoolStatus, DriverError> {
        let (ctx, provider_id) = (self.pool.ctx(), None);
        let asked = GetPoolStatus { ctx, provider_id, with_instances: true };
        self.driver().get_pool_status(asked).await
    }

    /// Reads the group; how many instances it names.
    async fn read(&self) -> Result<usize, DriverError> {
        Ok(self.status().await?.instances.len())
    }

    fn names(&self, label: &str) -> Vec<String> {
        let cluster = format!("label=ostler.dev/cluster-id={}", self.pool.cluster);
        let label = format!("label={label}");
        let args = ["ps", "-a", "--filter", &cluster, "--filter", &label, "--format", "{{.Names}}"];
        let mut names: Vec<_> = self.docker.run(&args).lines().map(str::to_owned).collect();
        names.sort();
        names
    }

    fn instances(&self) -> Vec<String> {
        self.names("docker.ostler.dev/number")
    }

    /// The container that stands for the group.
    fn holder(&self) -> String {
        let all = self.names("docker.ostler.dev/group");
        let instances = self.instances();
        all.into_iter().find(|name| !instances.contains(name)).unwrap()
    }

    async fn delete_named(&self, name: &str, sizes: (i32, i32)) -> Result<(), DriverError> {
        let request = DeletePoolMachines {
            ctx: self.pool.ctx(),
            provider_id: format!("docker:///{}", self.holder()),
            instances: vec![format!("docker:///{name}")],
            size: PoolSize { expected: sizes.0, wanted: sizes.1 },
        };
        self.driver().delete_pool_machines(request).await.map(drop)
    }

    /// The class of the pool is its model from now on.
    async fn update(&self, hash: &str) {
        let provider_id = format!("docker:///{}", self.holder());
        let model = Some(model(hash));
        let update = UpdatePool { ctx: self.pool.ctx(), provider_id, size: None, model };
        drop(self.driver().update_pool(update).await.unwrap());
    }

    async fn bring(&self, name: &str, hash: &str, drained: bool) -> Result<(), DriverError> {
        let request = UpdatePoolMachine {
            ctx: self.pool.ctx(),
            provider_id: format!("docker:///{}", self.holder()),
            instance: format!("docker:///{name}"),
            model_hash: hash.to_owned(),
            drained,
        };
        self.driver().update_pool_machine(request).await.map(drop)
    }

    async fn delete(&self) -> Result<Deletion, DriverError> {
        let (ctx, provider_id) = (self.pool.ctx(), None);
        self.driver().delete_pool(DeletePool { ctx, provider_id }).await
    }
}

#[tokio::test]
async fn a_driver_that_knows_nothing_goes_on_where_the_one_before_was_killed() {
    let Some(stage) = Stage::new("goes-on") else { return };
    stage.create(2).await.unwrap();
    assert_eq!(stage.instances().len(), 0, "that is noted, and the read makes them");
    assert_eq!(stage.read().await.unwrap(), 2);
    let [first, second] = <[String; 2]>::try_from(stage.instances()).unwrap();

    // Killed after it noted a named deletion, and the answer was lost: the same comes again, twice.
    for _ in 0..3 {
        stage.delete_named(&first, (2, 1)).await.unwrap();
    }
    assert_eq!(stage.read().await.unwrap(), 1);
    assert_eq!(stage.instances(), [second.as_str()]);
    stage.delete_named(&first, (2, 1)).await.unwrap();
    assert_eq!(stage.read().await.unwrap(), 1, "an id that is gone lowers nothing");

    // Somebody removes one by hand: another one comes, under another name and with the same user data.
    stage.docker.run(&["rm", "-f", &second]);
    assert_eq!(stage.read().await.unwrap(), 1);
    let now = stage.instances();
    assert!(now != [second.as_str()] && now.len() == 1, "{now:?}");
    assert_eq!(stage.docker.exec(&now[0], "cat /etc/ostler/user-data"), "canary-user-data");
    assert_eq!(stage.docker.of_cluster(&stage.pool.cluster).len(), 3, "with the volume of one");

    assert_eq!(stage.delete().await.unwrap(), Deletion::Deleted);
    assert_eq!(stage.delete().await.unwrap(), Deletion::WasAbsent);
    assert_eq!(stage.docker.of_cluster(&stage.pool.cluster), [""; 0]);
}

#[tokio::test]
async fn what_was_half_made_when_the_driver_was_killed_is_no_instance_and_goes() {
    let Some(stage) = Stage::new("half-made") else { return };
    stage.create(1).await.unwrap();
    let holder = stage.holder();
    let labels = [
        format!("ostler.dev/cluster-id={}", stage.pool.cluster),
        format!("ostler.dev/pool-name={}", stage.pool.name),
        format!("ostler.dev/pool-uid={}", stage.pool.uid),
        format!("docker.ostler.dev/group={holder}"),
        "docker.ostler.dev/instance=half-made-0".to_owned(),
        "docker.ostler.dev/number=0".to_owned(),
    ];
    let labels = labels.iter().flat_map(|label| ["--label", label]);
    let made = ["create", "--name", "half-made-0"].into_iter().chain(labels);
    stage.docker.run(&made.chain([crate::image::NAME]).collect::<Vec<_>>());
    assert_eq!(stage.read().await.unwrap(), 1);
    let now = stage.instances();
    assert!(now.len() == 1 && now != ["half-made-0"], "{now:?}");
    stage.delete().await.unwrap();
}

#[tokio::test]
async fn a_group_whose_own_container_somebody_removed_is_found_by_its_instances() {
    let Some(stage) = Stage::new("pruned") else { return };
    stage.create(2).await.unwrap();
    stage.read().await.unwrap();
    let (holder, before) = (stage.holder(), stage.instances());
    stage.docker.run(&["rm", "-f", &holder]);
    assert_eq!(stage.read().await.unwrap(), 2, "it is there, and has what it has");
    let size = Some(PoolSize { expected: 2, wanted: 3 });
    let provider_id = format!("docker:///{holder}");
    let update = UpdatePool { ctx: stage.pool.ctx(), provider_id, size, model: None };
    let error = stage.driver().update_pool(update).await.unwrap_err();
    assert_eq!(error.reason_word(), "GROUP_FORGOTTEN");

    stage.create(5).await.unwrap();
    assert_eq!((stage.holder(), stage.read().await.unwrap()), (holder.clone(), 2));
    assert_eq!(stage.instances(), before, "it keeps its size");
    stage.docker.run(&["rm", "-f", &holder]);
    assert_eq!(stage.delete().await.unwrap(), Deletion::Deleted);
    assert_eq!(stage.docker.of_cluster(&stage.pool.cluster), [""; 0]);
}

#[tokio::test]
async fn user_data_of_a_group_are_in_no_label_and_its_instances_are_no_machines() {
    let Some(stage) = Stage::new("secret") else { return };
    stage.create(1).await.unwrap();
    stage.read().await.unwrap();
    for name in stage.names("docker.ostler.dev/group") {
        let shown = stage.docker.inspect(&name).to_string();
        assert!(!shown.contains("canary") && !shown.contains("Y2FuYXJ5"), "{shown}");
    }
    let file = format!("{}:/etc/ostler/group.json", stage.holder());
    let archive = stage.docker.command(&["cp", &file, "-"]).output().unwrap().stdout;
    let mode = archive.get(100..108).map(String::from_utf8_lossy).unwrap_or_default();
    assert!(mode.contains("0600"), "{mode}");
    let listed = stage.driver().list_machines(ListMachines { ctx: stage.pool.ctx() }).await;
    assert_eq!(listed.unwrap().len(), 0);
    stage.delete().await.unwrap();
}

#[tokio::test]
async fn an_instance_is_made_anew_under_its_name_only_once_its_node_is_drained() {
    let Some(mut stage) = Stage::new("in-place") else { return };
    stage.create(1).await.unwrap();
    stage.read().await.unwrap();
    let [name] = <[String; 1]>::try_from(stage.instances()).unwrap();
    // The files that the node agent keeps.
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("lib/ostler/pki");
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::write(kept.join("client.pem"), "canary").unwrap();
    stage.docker.run(&["cp", &dir.path().display().to_string(), &format!("{name}:/var")]);
    stage.docker.exec(&name, "touch /data/mine /tmp/mine");
    let volumes = json!([{ "name": "data", "path": "/data" }]);
    stage.pool =
        stage.pool.with(&json!({ "environment": { "COLOUR": "bay" }, "volumes": volumes }));
    stage.update("two").await;
    assert_eq!(stage.read().await.unwrap(), 1);
    let wrong = stage.bring(&name, "one", true).await.unwrap_err();
    assert_eq!(wrong.reason_word(), "MODEL_CHANGED");
    let fixed = stage.bring(&name, "two", false).await.unwrap_err();
    assert_eq!(fixed.reason_word(), "NOT_HOT_UPDATABLE");
    for _ in 0..2 {
        stage.bring(&name, "two", true).await.unwrap();
    }
    assert_eq!((stage.read().await.unwrap(), stage.instances()), (1, vec![name.clone()]));
    let pem = "/var/lib/ostler/pki/client.pem";
    let shown = format!("echo $COLOUR; ls /data /tmp; cat {pem}; stat -c :%a {pem}");
    assert_eq!(stage.docker.exec(&name, &shown), "bay\n/data:\nmine\n\n/tmp:\ncanary:600");

    stage.pool = stage.pool.with(&json!({ "volumes": [] }));
    stage.update("three").await;
    stage.bring(&name, "three", true).await.unwrap();
    assert_eq!(stage.docker.exec(&name, &format!("cat {pem}")), "canary");
    assert_eq!(stage.docker.of_cluster(&stage.pool.cluster).len(), 2, "its volume is gone");
    stage.delete().await.unwrap();
}

#[tokio::test]
async fn a_set_up_that_does_not_end_holds_up_neither_its_group_nor_itself() {
    let Some(mut stage) = Stage::new("hangs") else { return };
    let set_up = "echo x >>/tmp/starts; case $(cat /etc/hostname) in *-0) while [ ! -e /tmp/go ]; do sleep 0.1; done;; esac";
    stage.pool = stage.pool.with(&json!({ "initialize": [["/bin/sh", "-c", set_up]] }));
    stage.create(2).await.unwrap();
    assert_eq!(stage.read().await.unwrap(), 2, "and the first one is set up still");
    let told = format!("{:?}", stage.status().await.unwrap().instances);
    assert!(told.contains("COMMAND_RUNS"), "{told}");
    let first = stage.instances().remove(0);
    stage.docker.exec(&first, "touch /tmp/go");
    while format!("{:?}", stage.status().await.unwrap().instances).contains("COMMAND_RUNS") {}
    let status = stage.status().await.unwrap();
    assert!(
        status.instances.iter().all(|it| format!("{it:?}").contains("Succeeded")),
        "{status:?}"
    );
    assert_eq!(stage.docker.exec(&first, "cat /tmp/starts"), "x", "it was started once");
    stage.delete().await.unwrap();
}

#[tokio::test]
async fn what_is_left_of_a_group_whose_containers_somebody_removed_goes_with_it() {
    let Some(stage) = Stage::new("removed") else { return };
    stage.create(2).await.unwrap();
    stage.read().await.unwrap();
    for name in stage.names("docker.ostler.dev/group") {
        stage.docker.run(&["rm", "-f", &name]);
    }
    assert_eq!(stage.docker.of_cluster(&stage.pool.cluster).len(), 2, "volumes");
    assert_eq!(stage.delete().await.unwrap(), Deletion::Deleted);
    assert_eq!(stage.docker.of_cluster(&stage.pool.cluster), [""; 0]);
    assert_eq!(stage.delete().await.unwrap(), Deletion::WasAbsent);
}

#[tokio::test]
async fn an_instance_stays_while_there_is_no_image_to_make_it_anew_from() {
    let Some(mut stage) = Stage::new("no-image") else { return };
    stage.create(1).await.unwrap();
    stage.read().await.unwrap();
    let before = stage.instances();
    for policy in ["Never", "IfNotPresent"] {
        let image = "127.0.0.1:1/ostler-none:1";
        stage.pool = stage.pool.with(&json!({ "image": image, "imagePullPolicy": policy }));
        stage.update(policy).await;
        let error = stage.bring(&before[0], policy, true).await.unwrap_err();
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
        assert_eq!(stage.docker.exec(&before[0], "echo runs"), "runs");
    }
    stage.delete().await.unwrap();
}

/// What could not be done for the group, or for an instance that the engine still has.
fn fault(status: &PoolStatus) -> String {
    format!("{:?}", status.pool)
}

#[tokio::test]
async fn an_instance_that_cannot_be_made_or_removed_holds_up_no_other_and_is_told() {
    let Some(mut stage) = Stage::new("stuck") else { return };
    // The first of all cannot be set up.
    let set_up = "case $(cat /etc/hostname) in *-0) exit 1;; esac";
    stage.pool = stage.pool.with(&json!({
        "initialize": [["/bin/sh", "-c", set_up]], "volumes": [{ "name": "data", "path": "/data" }],
    }));
    stage.create(3).await.unwrap();
    let status = stage.status().await.unwrap();
    assert!(fault(&status).contains("OperationError"), "{status:?}");
    assert_eq!((stage.read().await.unwrap(), stage.instances().len()), (3, 3));

    // Another container uses the volume of one of two that go.
    let [one, two, three] = <[String; 3]>::try_from(stage.instances()).unwrap();
    let label = format!("label=docker.ostler.dev/instance={one}");
    let volume = stage.docker.run(&["volume", "ls", "-q", "--filter", &label]);
    let (user, bind) = (format!("user-of-{one}"), format!("{}:/data", volume.trim()));
    stage.docker.run(&["create", "--name", &user, "-v", &bind, crate::image::NAME, "true"]);
    stage.delete_named(&one, (3, 2)).await.unwrap();
    stage.delete_named(&two, (2, 1)).await.unwrap();
    let status = stage.status().await;
    let left = stage.instances();
    stage.docker.run(&["rm", &user]);
    let status = status.unwrap();
    assert!(fault(&status).contains("OperationError"), "{status:?}");
    assert_eq!(left, [three.as_str()]);
    assert_eq!((stage.read().await.unwrap(), stage.instances()), (1, vec![three]));
    assert_eq!(stage.docker.of_cluster(&stage.pool.cluster).len(), 3, "no volume of another one");
    stage.delete().await.unwrap();
}
