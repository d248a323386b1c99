//! What an old driver may read is the class and the secret of the operation it works on, and nothing else, whatever it asks for.

use ostler_tests::legacy_driver::OldCloud;
use serde_json::{Value, json};

use crate::legacy::scene::{PATH, create, driver, has_instance, tags, world};

#[tokio::test(start_paused = true)]
async fn the_class_and_the_secret_of_the_create_in_flight_are_served_in_the_shape_of_old() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    cloud.hold(true);
    create(&world, "m", "old").await;
    cloud.until_made(1).await;
    let class: Value = serde_json::from_str(&cloud.read_class(PATH).await.unwrap()).unwrap();
    let expected = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "OldMachineClass",
        "metadata": { "name": "old", "namespace": "default" },
        "spec": {
            "region": "eu", "tags": tags(),
            "secretRef": { "name": "old", "namespace": "default" },
        },
    });
    assert_eq!(class, expected);
    let secret = cloud.read_secret("default", "old").await.unwrap();
    let secret: Value = serde_json::from_str(&secret).unwrap();
    assert_eq!((&secret["kind"], &secret["apiVersion"]), (&json!("Secret"), &json!("v1")));
    let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["accessKey", "userData"]);
    cloud.hold(false);
    world.until("m", "made", has_instance).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_other_path_leads_anywhere() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    cloud.hold(true);
    create(&world, "m", "old").await;
    cloud.until_made(1).await;
    let base = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";
    let paths = [
        String::new(),
        "/".to_owned(),
        "old".to_owned(),
        "/api/v1/namespaces/kube-system/secrets/x".to_owned(),
        "/api/v1/namespaces/default/secrets/secret-of-old".to_owned(),
        format!("{base}/oldmachineclasses"),
        format!("{base}/oldmachineclasses/"),
        format!("{base}/oldmachineclasses/other"),
        format!("{base}/oldmachineclasses/none"),
        format!("{base}/machineclasses/old"),
        format!("{base}/secrets/../oldmachineclasses/old"),
        format!("{base}/oldmachineclasses/../../../../../../api/v1/secrets"),
        format!("{PATH}/"),
        format!("{PATH}?watch=true"),
        format!("{PATH}#"),
        format!("{PATH}\0"),
        format!("/{PATH}"),
        format!("{PATH}/../other"),
        PATH.replace("default", "kube-system"),
        PATH.replace("oldmachineclasses", "OldMachineClasses"),
        PATH.replace("v1alpha1", "v1beta1"),
        PATH.replace("/old", "/%6Fld"),
        PATH.repeat(10_000),
    ];
    let mut answers = Vec::new();
    for path in &paths {
        answers.push(cloud.read_class(path).await.unwrap_err());
    }
    for (namespace, name) in [
        ("default", "other"),
        ("default", "secret-of-old"),
        ("default", "secret-of-other"),
        ("default", "fake"),
        ("default", ""),
        ("", "old"),
        ("kube-system", "old"),
        ("default", "../default/old"),
        ("default", "none"),
    ] {
        answers.push(cloud.read_secret(namespace, name).await.unwrap_err());
    }
    // One and the same, so that nothing can be learned by asking.
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(cloud.read_class(PATH).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_served_while_nothing_is_in_flight() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    while cloud.asked().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let before = [
        cloud.read_class(PATH).await.unwrap_err(),
        cloud.read_secret("default", "old").await.unwrap_err(),
    ];
    create(&world, "m", "old").await;
    world.until("m", "made", has_instance).await;
    let after = [
        cloud.read_class(PATH).await.unwrap_err(),
        cloud.read_secret("default", "old").await.unwrap_err(),
    ];
    assert_eq!(before, after);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn user_data_is_there_for_the_create_and_not_for_the_list_before_it() {
    let world = world().await;
    let mut driver = crate::legacy::answers::Raw::register(&world).await;
    create(&world, "m", "old").await;
    let asked = driver.next().await;
    assert_eq!(asked.operation_type, "list");
    let keys = |secret: String| {
        let secret: Value = serde_json::from_str(&secret).unwrap();
        secret["data"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(driver.secret("default", "old").await.unwrap()), ["accessKey"]);
    let asked = driver.until_create(asked).await;
    assert_eq!(asked.operation_type, "create");
    assert_eq!(keys(driver.secret("default", "old").await.unwrap()), ["accessKey", "userData"]);
}

#[tokio::test(start_paused = true)]
async fn another_connection_reads_nothing_of_what_the_driver_may() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    cloud.hold(true);
    create(&world, "m", "old").await;
    cloud.until_made(1).await;
    let mut other = crate::legacy::answers::Raw::open(&world).await;
    assert!(other.class(PATH).await.is_err());
    assert!(other.secret("default", "old").await.is_err());
}
