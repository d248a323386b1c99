//! Images from a registry: a small one of the test's own.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ostler_driver_docker::DockerDriver;
use ostler_driver_sdk::{Certainty, Code};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::docker::Docker;
use crate::machine::Machine;

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold("sha256:".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The first byte of a connection with TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// Path to type and content.
type Pages = HashMap<String, (&'static str, Vec<u8>)>;

/// A layer that no engine has.
fn new_layer() -> Vec<u8> {
    let content = format!("{:?}", std::time::SystemTime::now());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "etc/made", content.as_bytes()).unwrap();
    archive.into_inner().unwrap()
}

fn pages(layers: [Vec<u8>; 2]) -> Pages {
    let kind = |name: &str| format!("application/vnd.docker.{name}");
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/sleep", "9"]},
        "rootfs": {"type": "layers", "diff_ids": layers.each_ref().map(|it| digest(it))},
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": kind("distribution.manifest.v2+json"),
        "config": {"mediaType": kind("container.image.v1+json"), "size": config.len(), "digest": digest(&config)},
        "layers": layers.each_ref().map(|it| json!({"mediaType": kind("image.rootfs.diff.tar"), "size": it.len(), "digest": digest(it)})),
    });
    let manifest = manifest.to_string().into_bytes();
    let manifest_type = "application/vnd.docker.distribution.manifest.v2+json";
    let blob = "application/octet-stream";
    let mut pages = Pages::from([
        ("/v2/".to_owned(), ("application/json", b"{}".to_vec())),
        ("/v2/pulled/manifests/1".to_owned(), (manifest_type, manifest.clone())),
        (format!("/v2/pulled/manifests/{}", digest(&manifest)), (manifest_type, manifest)),
        (format!("/v2/pulled/blobs/{}", digest(&config)), (blob, config)),
    ]);
    for layer in layers {
        pages.insert(format!("/v2/pulled/blobs/{}", digest(&layer)), (blob, layer));
    }
    pages
}

async fn answer(mut stream: TcpStream, pages: Arc<Pages>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
        head.push(byte[0]);
        // An engine tries TLS first, and would wait 10 s for an answer to that.
        if head == [TLS_HANDSHAKE] {
            break;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let unknown = json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]});
    let none = ("application/json", unknown.to_string().into_bytes());
    let limit = json!({"errors": [{"code": "TOOMANYREQUESTS", "message": "pull rate limit"}]});
    let limit = ("application/json", limit.to_string().into_bytes());
    let (status, (kind, body)) = match pages.get(path) {
        Some(page) => ("200 OK", page),
        None if path.starts_with("/v2/busy/") => ("503 Service Unavailable", &none),
        None if path.starts_with("/v2/limited/") => ("429 Too Many Requests", &limit),
        None => ("404 Not Found", &none),
    };
    let digest = digest(body);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {digest}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body: &[u8] = if method == "HEAD" { &[] } else { body };
    drop(stream.write_all(&[head.as_bytes(), body].concat()).await);
}

/// A registry on this computer, which engines trust without TLS.
async fn registry(pages: Pages) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let pages = Arc::new(pages);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&pages)));
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_the_engine_lacks_is_pulled_and_tells_how_far_it_is() {
    let Some(docker) = Docker::here() else { return };
    let base = std::fs::read(crate::image::archive()).unwrap();
    let registry = registry(pages([base, new_layer()])).await;
    let (engine, image) = (docker.engine(), format!("{registry}/pulled:1"));
    let mut said = Vec::new();
    engine.pull(&image, |word, _| said.push(word.to_owned())).await.unwrap();
    assert!(said.iter().any(|word| word == "Pull complete"), "{said:?}");
    docker.run(&["image", "rm", &image]);

    let driver = DockerDriver::new(engine);
    let pulled = |image: &str| json!({"image": image, "imagePullPolicy": "IfNotPresent"});
    let machine = Machine::new("pulled", &pulled(&image));
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    for (name, code, reason) in [
        ("absent", Code::InvalidArgument, "IMAGE_UNKNOWN"),
        ("busy", Code::Unavailable, "PULL_FAILED"),
        ("limited", Code::ResourceExhausted, "THROTTLED"),
    ] {
        let image = format!("{registry}/{name}:1");
        let error = machine.sibling(name).with(&pulled(&image)).create(&driver).await.unwrap_err();
        assert_eq!((error.code(), error.reason_word()), (code, reason), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        assert!(error.message().contains(&image), "{error}");
    }
    let away = machine.sibling("away").with(&pulled("localhost:1/nobody:1"));
    let error = away.create(&driver).await.unwrap_err();
    assert_eq!(
        (error.code(), error.reason_word()),
        (Code::Unavailable, "REGISTRY_AWAY"),
        "{error}"
    );
    assert_eq!(error.certainty(), Certainty::NotApplied);
    machine.delete(&driver).await.unwrap();
    docker.run(&["image", "rm", &image]);
    assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
}
