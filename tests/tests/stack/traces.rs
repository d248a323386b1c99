//! Spans of operations: what a collector gets of a machine's life. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1 as otlp;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_tests::objects::{delete, get, gone, in_phase, machine};
use ostler_tests::setup::Deaths;
use ostler_tests::world::{Setup, World};
use ostler_trace::Traces;
use otlp::trace_service_server::{TraceService, TraceServiceServer};
use tokio::io::DuplexStream;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tower::service_fn;

/// Spans with the names of their programs, in the order in which they came.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Span)>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<otlp::ExportTraceServiceRequest>,
    ) -> Result<Response<otlp::ExportTraceServiceResponse>, Status> {
        for of in request.into_inner().resource_spans {
            let attributes = of.resource.unwrap().attributes;
            let name = attributes.into_iter().find(|it| it.key == "service.name").unwrap();
            let name = format!("{:?}", name.value.unwrap());
            let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.0.lock().await.extend(spans.map(|span| (name.clone(), span)));
        }
        Ok(Response::new(otlp::ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves it in memory.
    fn serve(&self) -> Channel {
        let (new, connections) = mpsc::channel::<DuplexStream>(8);
        let connections = ReceiverStream::new(connections).map(Ok::<_, Infallible>);
        let service = TraceServiceServer::new(self.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(connections));
        let dial = service_fn(move |_| {
            let new = new.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                new.send(theirs).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(ours))
            }
        });
        Endpoint::from_static("http://collector").connect_with_connector_lazy(dial)
    }

    /// The spans of a trace once nothing more comes.
    async fn trace(&self, id: &str) -> Vec<(String, Span)> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let all = self.0.lock().await;
        // What a core was told and did not record, the next one is told again: the same span comes twice.
        let mut known = HashSet::new();
        let of = all.iter().filter(|(_, span)| hex(&span.trace_id) == id);
        of.filter(|(_, span)| known.insert(span.span_id.clone())).cloned().collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Program, name and result of each span, below its parent.
fn tree(spans: &[(String, Span)], parent: &[u8], depth: usize) -> Vec<String> {
    let of = spans.iter().filter(|(_, span)| span.parent_span_id == parent);
    of.flat_map(|(service, span)| {
        let service = if service.contains("core") { "core" } else { "driver" };
        let failed = span.status.as_ref().is_some_and(|it| it.code() == StatusCode::Error);
        let failed = if failed { " failed" } else { "" };
        let line = format!("{}{service} {}{failed}", "  ".repeat(depth), span.name);
        [line].into_iter().chain(tree(spans, &span.span_id, depth + 1))
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn a_creation_is_one_trace_whatever_dies_meanwhile_and_the_deletion_another() {
    let collector = Collector::default();
    let channel = collector.serve();
    let (core, deaths) = (Traces::over(channel.clone(), "core").unwrap(), Arc::<Deaths>::default());
    let traces = core.clone();
    let setup = Setup {
        tune: Arc::new(move |options| options.traces = traces.clone()),
        traces: Traces::over(channel, "driver").unwrap(),
        deaths: Arc::clone(&deaths),
        ..Setup::default()
    };
    let mut world = World::start_with(setup).await;
    // The core dies once the driver has the request that makes the instance; the next one takes the operation over.
    deaths.after_requests(Some(2));
    world.apply::<Machine>(machine("m", "fake")).await;
    deaths.due().await;
    world.crash_core();
    world.start_core().await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    let uid = get(&world, "m").await.metadata.uid.unwrap();
    let spans = collector.trace(&uid.replace('-', "")).await;
    let expected = [
        "core Creation",
        "  core GetMachineStatus failed",
        "    driver GetMachineStatus failed",
        "  core CreateMachine",
        "    driver CreateMachine",
        "  core InitializeMachine",
        "    driver InitializeMachine",
    ];
    assert_eq!(tree(&spans, &[], 0), expected, "{spans:#?}");

    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    world.stop().await;
    core.finish().await;
    let all = collector.0.lock().await;
    let deletion = all.iter().find(|(_, span)| span.name == "DeleteMachine").unwrap();
    assert_ne!(hex(&deletion.1.trace_id), uid.replace('-', ""));
    let text = format!("{all:?}");
    for secret in ["#cloud-config", "fake-1.0", "userData"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
    assert_eq!(core.lost(), 0);
}
