//! Machines as they are made, initialized and deleted.

use ostler_driver_docker::DockerDriver;
use ostler_driver_sdk::{
    Certainty, Code, CreateMachine, DeleteMachine, Deletion, Driver as _, GetMachineStatus,
};
use serde_json::json;

use crate::docker::Docker;
use crate::machine::{Machine, provider_id};

#[tokio::test]
async fn a_machine_has_its_name_its_identity_and_its_user_data_before_its_first_process() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new(
        "worker-1",
        &json!({
            "environment": {"COLOUR": "bay"},
            "volumes": [{"name": "data", "path": "/data"}],
            "memory": "16Mi", "cpu": "250m",
        }),
    );
    let _sweep = machine.swept(&docker);
    let made = machine.create_with(&driver, "#!/bin/sh\n# Grüße\n").await.unwrap();
    assert_eq!(provider_id(&made), machine.id());
    let container = machine.container();
    let seen = docker.inspect(&container);
    let labels = &seen["Config"]["Labels"];
    assert_eq!(labels["ostler.dev/cluster-id"], machine.cluster.as_str());
    assert_eq!(labels["ostler.dev/machine-uid"], machine.uid.as_str());
    assert_eq!(labels["ostler.dev/machine-name"], "worker-1");
    assert_eq!(seen["Config"]["Hostname"], "worker-1");
    let host = &seen["HostConfig"];
    assert_eq!((&host["Memory"], &host["NanoCpus"]), (&json!(16 << 20), &json!(250_000_000)));
    assert_eq!(host["Privileged"], json!(false));
    assert_eq!(host["RestartPolicy"]["Name"], "always");
    let printed = docker.exec(&container, "echo $OSTLER_NODE_NAME $OSTLER_PROVIDER_ID $COLOUR; cat /etc/ostler/user-data; stat -c %a:%u /etc/ostler/user-data");
    let expected = format!("worker-1 {} bay\n#!/bin/sh\n# Grüße\n600:0", machine.id());
    assert_eq!(printed, expected);
    let again = machine.create(&driver).await.unwrap();
    assert_eq!(provider_id(&again), machine.id());
    assert_eq!(docker.of_cluster(&machine.cluster).len(), 2, "a container and its volume");
    machine.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
    machine.delete(&driver).await.unwrap();
    assert_eq!(machine.status(&driver).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn user_data_are_a_variable_or_are_executed_where_the_class_says_so() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new(
        "by-variable",
        &json!({"userData": {"as": "Environment", "variable": "SEED"}}),
    );
    let _sweep = machine.swept(&docker);
    drop(machine.create_with(&driver, "two\nlines").await.unwrap());
    assert_eq!(docker.exec(&machine.container(), "echo \"$SEED\""), "two\nlines");
    let binary = machine.sibling("binary");
    let request = CreateMachine::for_tests(binary.ctx(), vec![0xff, 0]);
    let refused = driver.create_machine(request).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.certainty()),
        (Code::InvalidArgument, Certainty::NotApplied)
    );

    let executed = machine.sibling("executed").with(&json!({"userData": {"as": "Executed"}}));
    drop(executed.create_with(&driver, "#!/bin/sh\ntouch /tmp/done\n").await.unwrap());
    assert_eq!(docker.exec(&executed.container(), "ls /tmp"), "", "not before InitializeMachine");
    drop(executed.initialize(&driver).await.unwrap());
    assert_eq!(docker.exec(&executed.container(), "ls /tmp"), "done");
    for machine in [&machine, &executed] {
        machine.delete(&driver).await.unwrap();
    }
    assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
}

#[tokio::test]
async fn initialization_connects_networks_and_runs_commands_and_nothing_of_a_machine_is_left() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new(
        "connected",
        &json!({
            "networks": [{"name": "one", "own": true, "internal": true}, {"name": "two", "own": true, "internal": true}],
            "volumes": [{"name": "data", "path": "/data"}],
            "initialize": [["/bin/touch", "/tmp/ready"]],
        }),
    );
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let container = machine.container();
    let networks =
        || docker.inspect(&container)["NetworkSettings"]["Networks"].as_object().unwrap().len();
    assert_eq!(networks(), 1);
    drop(machine.initialize(&driver).await.unwrap());
    assert_eq!(networks(), 2);
    assert_eq!(docker.exec(&container, "ls /tmp"), "ready");
    docker.exec(&container, "touch /tmp/later");
    drop(machine.initialize(&driver).await.unwrap());
    assert_eq!(docker.of_cluster(&machine.cluster).len(), 4);
    machine.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
}

#[tokio::test]
async fn a_command_that_fails_leaves_the_machine_uninitialized_and_says_how_it_ended() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("broken", &json!({"initialize": [["/bin/sh", "-c", "exit 3"]]}));
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let error = machine.initialize(&driver).await.unwrap_err();
    assert_eq!((error.code(), error.reason_word()), (Code::FailedPrecondition, "COMMAND_FAILED"));
    assert!(error.message().contains("status 3"), "{error}");
    assert_eq!(error.certainty(), Certainty::Partial);
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_any_more_is_not_started_again_beside_itself() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let slow = "echo x >>/tmp/starts; while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 3";
    let slow = json!([["/bin/sh", "-c", "echo y >>/tmp/before"], ["/bin/sh", "-c", slow]]);
    let machine = Machine::new("slow", &json!({ "initialize": slow }));
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let container = machine.container();
    let begun = async {
        while docker.exec(&container, "ls /tmp") != "before\nstarts" {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = machine.initialize(&driver) => panic!("{ended:?}"),
        () = begun => {}
    }
    let error = machine.initialize(&driver).await.unwrap_err();
    assert_eq!((error.code(), error.reason_word()), (Code::Uninitialized, "COMMAND_RUNS"));
    docker.exec(&container, "touch /tmp/go");
    let mut error = error;
    while error.reason_word() == "COMMAND_RUNS" {
        error = machine.initialize(&driver).await.unwrap_err();
    }
    assert!(error.message().contains("status 3"), "{error}");
    assert_eq!(docker.exec(&container, "cat /tmp/starts /tmp/before"), "x\ny");
    assert_eq!(machine.initialize(&driver).await.unwrap_err().reason_word(), "COMMAND_FAILED");
    assert_eq!(docker.exec(&container, "cat /tmp/starts /tmp/before"), "x\nx\ny\ny");
}

#[tokio::test]
async fn all_containers_of_a_machine_go_with_it() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("twice", &json!({"volumes": [{"name": "data", "path": "/data"}]}));
    let _sweep = machine.swept(&docker);
    for provider_id in [None, Some(machine.id())] {
        drop(machine.create(&driver).await.unwrap());
        let second = format!("second-{}", machine.container());
        let labels = [
            format!("ostler.dev/cluster-id={}", machine.cluster),
            format!("ostler.dev/machine-name={}", machine.name),
            format!("ostler.dev/machine-uid={}", machine.uid),
        ];
        let labels = labels.iter().flat_map(|label| ["--label", label]);
        let made = ["create", "--name", &second].into_iter().chain(labels);
        docker.run(&made.chain([crate::image::NAME]).collect::<Vec<_>>());
        let error = machine.status(&driver).await.unwrap_err();
        assert_eq!(error.reason_word(), "SEVERAL_INSTANCES");
        let deleted =
            driver.delete_machine(DeleteMachine { ctx: machine.ctx(), provider_id }).await;
        assert_eq!(deleted.unwrap(), Deletion::Deleted);
        assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
    }
}

#[tokio::test]
async fn a_restored_machine_takes_its_container_over_and_its_parts_go_with_it() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let before = Machine::new("restored", &json!({"volumes": [{"name": "data", "path": "/data"}]}));
    let _sweep = before.swept(&docker);
    drop(before.create(&driver).await.unwrap());
    let after = before.sibling("restored");
    let mut request = CreateMachine::for_tests(after.ctx(), "");
    request.provider_id = Some(before.id());
    let adopted = driver.create_machine(request).await.unwrap();
    assert_eq!(provider_id(&adopted), before.id());
    assert_eq!(provider_id(&after.status(&driver).await.unwrap()), before.id());
    assert_eq!(before.status(&driver).await.unwrap_err().code(), Code::NotFound);
    // The container is gone already, by a delete that was cut off.
    docker.run(&["rm", "-f", &before.container()]);
    let provider_id = Some(before.id());
    driver.delete_machine(DeleteMachine { ctx: after.ctx(), provider_id }).await.unwrap();
    assert_eq!(docker.of_cluster(&before.cluster), [""; 0]);
}

#[tokio::test]
async fn a_cluster_whose_id_changed_keeps_its_containers_and_their_parts_go_with_them() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let before = Machine::new("moved", &json!({"volumes": [{"name": "data", "path": "/data"}]}));
    let _sweep = before.swept(&docker);
    drop(before.create(&driver).await.unwrap());
    let after = before.moved();
    let namesake = after.sibling("moved");
    assert_eq!(after.list(&driver).await.unwrap().len(), 1);
    let refused = namesake.status(&driver).await.unwrap_err();
    assert_eq!((refused.provider_id(), refused.cluster_id()), (&*before.id(), &*before.cluster));
    assert_eq!(namesake.create(&driver).await.unwrap_err().reason_word(), "NOT_OURS");
    namesake.delete(&driver).await.unwrap();
    assert_eq!(provider_id(&after.status(&driver).await.unwrap()), before.id());
    assert_eq!(provider_id(&after.create(&driver).await.unwrap()), before.id());
    // From here on the id of before need not be told.
    let settled = Machine { previous: None, ..after };
    assert_eq!(settled.list(&driver).await.unwrap().len(), 1);
    assert_eq!(before.list(&driver).await.unwrap().len(), 0);
    assert_eq!(provider_id(&settled.status(&driver).await.unwrap()), before.id());
    settled.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&before.cluster), [""; 0]);
}

/// As if the driver had died between making and starting the container: the words that make it.
fn half_made(machine: &Machine, fixed: &str) -> Vec<String> {
    let labels = [
        ("ostler.dev/cluster-id", machine.cluster.clone()),
        ("ostler.dev/machine-name", machine.name.clone()),
        ("ostler.dev/machine-uid", machine.uid.clone()),
        ("docker.ostler.dev/instance", machine.container()),
        ("docker.ostler.dev/fixed-spec", fixed.to_owned()),
    ];
    let words = ["create", "--network", "none", "--name", &machine.container()].map(str::to_owned);
    let labels = labels
        .into_iter()
        .flat_map(|(key, value)| ["--label".to_owned(), format!("{key}={value}")]);
    words.into_iter().chain(labels).chain([crate::image::NAME.to_owned()]).collect()
}

#[tokio::test]
async fn what_a_create_left_half_made_is_completed_and_adopted_after_its_cluster_got_another_id() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let before = Machine::new("half", &json!({"volumes": [{"name": "data", "path": "/data"}]}));
    let _sweep = before.swept(&docker);
    drop(before.create(&driver).await.unwrap());
    let container = docker.inspect(&before.container());
    let fixed = container["Config"]["Labels"]["docker.ostler.dev/fixed-spec"].clone();
    docker.run(&["rm", "-f", &before.container()]);
    let words = half_made(&before, fixed.as_str().unwrap());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    docker.run(&words);
    let after = before.moved();
    assert_eq!(after.status(&driver).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(provider_id(&after.create(&driver).await.unwrap()), before.id());
    let settled = Machine { previous: None, ..after.clone() };
    assert_eq!(provider_id(&settled.status(&driver).await.unwrap()), before.id());
    // The container is gone already, by a delete that was cut off, and its volume has the id of before.
    docker.run(&["rm", "-f", &before.container()]);
    after.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&before.cluster), [""; 0]);
}

#[tokio::test]
async fn what_a_create_left_half_made_is_no_machine_until_the_next_one_completes_it() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("half", &json!({"volumes": [{"name": "data", "path": "/data"}]}));
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let fixed =
        docker.inspect(&machine.container())["Config"]["Labels"]["docker.ostler.dev/fixed-spec"]
            .clone();
    docker.run(&["rm", "-f", &machine.container()]);
    let (container, words) = (machine.container(), half_made(&machine, fixed.as_str().unwrap()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    docker.run(&words);
    assert_eq!(machine.status(&driver).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(machine.list(&driver).await.unwrap().len(), 1, "a scan for orphans sees it");
    drop(machine.create_with(&driver, "late").await.unwrap());
    assert_eq!(docker.exec(&container, "cat /etc/ostler/user-data"), "late");
    docker.run(&["rm", "-f", &container]);
    docker.run(&words);
    machine.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
}

#[tokio::test]
async fn containers_of_others_are_left_alone_whatever_id_is_named() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("mine", &json!({}));
    let other = Machine::new("mine", &json!({}));
    let _sweeps = [machine.swept(&docker), other.swept(&docker)];
    drop(other.create(&driver).await.unwrap());
    let provider_id = Some(other.id());
    let deleted = driver
        .delete_machine(DeleteMachine { ctx: machine.ctx(), provider_id: provider_id.clone() })
        .await
        .unwrap();
    let cluster_id = other.cluster.clone();
    assert_eq!(deleted, Deletion::NotOurs { provider_id: other.id(), cluster_id });
    let status =
        driver.get_machine_status(GetMachineStatus { ctx: machine.ctx(), provider_id }).await;
    let refused = status.unwrap_err();
    assert_eq!(refused.reason_word(), "NOT_OURS");
    assert_eq!((refused.provider_id(), refused.cluster_id()), (&*other.id(), &*other.cluster));
    assert!(other.status(&driver).await.is_ok());
    // Another container has the name already.
    let taken = machine.sibling("taken");
    docker.run(&["create", "--network", "none", "--name", &taken.container(), crate::image::NAME]);
    let error = taken.create(&driver).await.unwrap_err();
    docker.run(&["rm", "-f", &taken.container()]);
    assert_eq!((error.code(), error.reason_word()), (Code::AlreadyExists, "NAME_TAKEN"));
}
