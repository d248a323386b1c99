//! A unary driver whose list does not end: the adapter takes as much as the core, and neither the API server nor the core
//! is felled by what it keeps.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use ostler_proto::v1alpha1::{GetInfoResponse, ListMachinesResponse, MachineRecord, OperationKind};
use ostler_tests::process::{PATIENCE, Process};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};

const PROVIDER: &str = "endless.example.com";
/// Of one part of the list; a client takes no part of more than 4 MiB.
const PART: usize = 4_000_000;
/// The most memory of `up` or an adapter. A list takes 64 MiB, and exists a few times while it is passed on.
const MOST_KIB: u64 = 700 << 10;

/// The lists that were begun and that the other side ended.
#[derive(Clone, Default)]
struct Ended(Arc<(AtomicUsize, Notify)>);

struct Open(Ended);

impl Drop for Open {
    fn drop(&mut self) {
        let (count, changed) = &*self.0.0;
        count.fetch_add(1, Ordering::Relaxed);
        changed.notify_one();
    }
}

impl Ended {
    async fn reach(&self, wanted: usize) {
        let (count, changed) = &*self.0;
        while count.load(Ordering::Relaxed) < wanted {
            tokio::time::timeout(PATIENCE, changed.notified()).await.expect("lists are ended");
        }
    }
}

fn framed(message: &impl Message) -> Bytes {
    let content = message.encode_to_vec();
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &content].concat().into()
}

fn status(code: &'static str) -> Frame<Bytes> {
    let code = ("grpc-status".parse().unwrap(), HeaderValue::from_static(code));
    Frame::trailers(HeaderMap::from_iter([code]))
}

fn answer(parts: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Response {
    let body = Body::new(StreamBody::new(parts.map(Ok::<_, Infallible>)));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

fn serve(asked: &Request, ended: Ended) -> Response {
    match asked.uri().path().rsplit('/').next() {
        Some("GetInfo") => {
            let kinds = [
                OperationKind::CreateMachine,
                OperationKind::DeleteMachine,
                OperationKind::ListMachines,
            ];
            let info = GetInfoResponse {
                provider: PROVIDER.to_owned(),
                boot_id: "7f8d9440-5eea-4cbf-a2da-9816c1749049".to_owned(),
                operation_kinds: kinds.map(Into::into).into(),
                ..GetInfoResponse::default()
            };
            answer(tokio_stream::iter([Frame::data(framed(&info)), status("0")]))
        }
        Some("ListMachines") => {
            let machine_name = "x".repeat(PART);
            let machines = vec![MachineRecord { machine_name, ..MachineRecord::default() }];
            let part =
                framed(&ListMachinesResponse { machines, ..ListMachinesResponse::default() });
            let open = Open(ended);
            answer(tokio_stream::iter(std::iter::repeat(())).map(move |()| {
                let _list = &open;
                Frame::data(part.clone())
            }))
        }
        _ => answer(tokio_stream::once(status("12"))),
    }
}

/// A driver whose process puts `socket` in the place of its own socket.
fn program(directory: &Path, socket: &Path) -> String {
    let path = directory.join("driver.sh");
    let script =
        format!("#!/bin/sh\nln {} \"$OSTLER_DRIVER_SOCKET\"\nsleep 600\n", socket.display());
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{PROVIDER}={}", path.display())
}

fn peak_kib(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_list_of_a_unary_driver_costs_neither_up_nor_its_adapter_more_than_a_long_one() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, ended) = (directory.path().join("s"), Ended::default());
    let listener = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    let counted = ended.clone();
    let router = Router::new().fallback(async move |asked: Request| serve(&asked, counted.clone()));
    let server = tonic::transport::Server::builder().add_routes(router.into());
    let _server = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(
        server.serve_with_incoming(listener),
    ));

    let manifests = directory.path().join("manifests.yaml");
    fs::write(&manifests, MANIFESTS).unwrap();
    let data = directory.path().join("data");
    let driver = program(directory.path(), &socket);
    let args = [
        "up",
        "--data-dir",
        data.to_str().unwrap(),
        "--api-listen",
        "127.0.0.1:0",
        "--drivers-listen",
        "127.0.0.1:0",
        "--driver",
        &driver,
        "--apply",
        manifests.to_str().unwrap(),
    ];
    let mut up = Process::start("ostler", args, &[]);
    let started =
        up.line("the start of the adapter", |line| line.contains("the adapter of driver"));
    let adapter = started.rsplit(' ').next().unwrap().to_owned();
    ended.reach(3).await;
    assert!(up.resident_kib() < MOST_KIB, "up: {} KiB", up.resident_kib());
    assert!(peak_kib(&adapter) < MOST_KIB, "the adapter: {} KiB", peak_kib(&adapter));
    up.terminate();
    assert!(tokio::task::spawn_blocking(move || up.wait()).await.unwrap().success());
}

const MANIFESTS: &str = r"
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: endless, namespace: default}
provider: endless.example.com
providerSpec: {}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {name: one, namespace: default}
spec: {class: {kind: MachineClass, name: endless}}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {name: two, namespace: default}
spec: {class: {kind: MachineClass, name: endless}}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {name: three, namespace: default}
spec: {class: {kind: MachineClass, name: endless}}
";
