//! Changes of running machines.

use ostler_driver_docker::DockerDriver;
use ostler_driver_sdk::{Certainty, Code};
use serde_json::{Value, json};

use crate::docker::Docker;
use crate::machine::Machine;

fn tags(docker: &Docker, machine: &Machine) -> Value {
    let file = docker.exec(&machine.container(), "cat /etc/ostler/tags.json");
    serde_json::from_str(&file).unwrap()
}

#[tokio::test]
async fn limits_restart_policy_and_tags_change_while_the_machine_runs() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let volumes = json!([{"name": "data", "path": "/data"}]);
    let machine = Machine::new(
        "growing",
        &json!({
            "volumes": volumes, "memory": "16Mi", "tags": {"container": {"team": "a", "old": "1"}},
        }),
    );
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let process = docker.inspect(&machine.container())["State"]["Pid"].clone();
    // A stranger's tag.
    let engine = docker.engine();
    let mut file: Value = tags(&docker, &machine);
    file["volume"]["backup"] = json!("daily");
    let file = ostler_driver_docker::engine::File {
        path: "/etc/ostler/tags.json".to_owned(),
        mode: 0o644,
        content: file.to_string().into(),
    };
    engine.write_files(&machine.container(), &[file]).await.unwrap();

    let wanted = machine.with(&json!({
        "volumes": volumes, "memory": "32Mi", "cpu": "500m", "restartPolicy": "OnFailure",
        "tags": {"container": {"team": "b"}, "volume": {"tier": "1"}},
    }));
    let updated = wanted.update(&driver).await.unwrap();
    assert_eq!(
        updated.applied_paths,
        ["cpu", "memory", "restartPolicy", "tags.container", "tags.volume"]
    );
    let seen = docker.inspect(&machine.container());
    let host = &seen["HostConfig"];
    assert_eq!((&host["Memory"], &host["NanoCpus"]), (&json!(32 << 20), &json!(500_000_000)));
    assert_eq!(host["RestartPolicy"]["Name"], "on-failure");
    assert_eq!(seen["State"]["Pid"], process, "the same process");
    let now = tags(&docker, &machine);
    assert_eq!(now["container"], json!({"team": "b"}));
    assert_eq!(now["volume"], json!({"tier": "1", "backup": "daily"}));
    assert_eq!(wanted.update(&driver).await.unwrap().applied_paths, [""; 0]);

    // Limits that are taken away: all that the engine has.
    let free = machine.with(&json!({"volumes": volumes}));
    let lifted = free.update(&driver).await.unwrap();
    assert_eq!(
        lifted.applied_paths,
        ["cpu", "memory", "restartPolicy", "tags.container", "tags.volume"]
    );
    let host = docker.inspect(&machine.container())["HostConfig"].clone();
    assert!(host["Memory"].as_i64().unwrap() > 32 << 20, "{host}");
    assert_eq!(free.update(&driver).await.unwrap().applied_paths, [""; 0]);
}

#[tokio::test]
async fn a_change_of_what_is_fixed_is_refused_as_a_whole() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("fixed", &json!({"memory": "16Mi"}));
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let wanted = machine.with(&json!({"memory": "32Mi", "environment": {"A": "b"}}));
    let error = wanted.update(&driver).await.unwrap_err();
    assert_eq!(
        (error.reason_word(), error.certainty()),
        ("NOT_HOT_UPDATABLE", Certainty::NotApplied)
    );
    assert_eq!(error.violations()[0].path, "environment.A");
    assert_eq!(docker.inspect(&machine.container())["HostConfig"]["Memory"], json!(16 << 20));
    assert_eq!(wanted.create(&driver).await.unwrap_err().code(), Code::AlreadyExists);
}

#[tokio::test]
async fn an_update_that_the_engine_refuses_changes_nothing() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("refused", &json!({"memory": "16Mi"}));
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let tags = json!({"container": {"a": "b"}});
    let wanted = machine.with(&json!({"memory": "32Mi", "cpu": "4096", "tags": tags}));
    let error = wanted.update(&driver).await.unwrap_err();
    assert_eq!((error.code(), error.reason_word()), (Code::InvalidArgument, "CPU_LIMIT"));
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert_eq!(docker.inspect(&machine.container())["HostConfig"]["Memory"], json!(16 << 20));
    let good = machine.with(&json!({"memory": "16Mi", "tags": tags}));
    assert_eq!(good.update(&driver).await.unwrap().applied_paths, ["tags.container"]);
}
