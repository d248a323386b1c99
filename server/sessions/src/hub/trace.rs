//! The span of an operation, from its submission to its outcome.
//!
//! The trace of an operation follows from the recorded intent: a creation is one trace from the first look for an
//! instance until its initialization, whose id is the UID of the Machine; all attempts of any other change are one; a
//! question is one of its own. So a retry continues its trace, also by another core, and a Machine of months has no trace of months.

use std::time::Duration;

use ostler_api::driver::{ErrorCode, OperationKind};
use ostler_api::names;
use ostler_api::operation::Target;
use ostler_proto::v1alpha1::{MachineErrorCode, Operation, operation::Request};
use ostler_trace::{Role, Span, TraceContext, of_creation, of_operation};
use tokio::time::Instant;

use super::Hub;
use super::operations::{Answer, Op};

impl Hub {
    /// The span of an operation for its driver; empty if spans are off.
    pub(super) fn traceparent(&self, id: &str, kind: OperationKind, of: &Operation) -> String {
        if !self.options.traces.is_on() {
            return String::new();
        }
        let target = of.target.as_ref().filter(|target| target.kind == names::MACHINE);
        let continues = match target {
            Some(target) if creates(kind, of) => target.uid.as_str(),
            _ if kind.is_mutation() => of.idempotency_key.as_str(),
            _ => "",
        };
        of_operation(id, continues).to_string()
    }
}

/// Whether the operation is a part of the creation of a machine.
fn creates(kind: OperationKind, operation: &Operation) -> bool {
    match &operation.request {
        // A look for an instance that may be there already.
        Some(Request::GetMachineStatus(asked)) => asked.provider_id.is_empty(),
        _ => matches!(kind, OperationKind::CreateMachine | OperationKind::InitializeMachine),
    }
}

/// The span of an operation that ends now, if it has one.
pub(super) fn span(now: Instant, id: &str, operation: &Op, answer: &Answer) -> Option<Span> {
    let context: TraceContext = operation.request.traceparent.parse().ok()?;
    let target = operation.target();
    let mut attributes = vec![
        ("ostler.operation.id", id.to_owned()),
        ("ostler.provider", operation.provider.as_str().to_owned()),
        ("ostler.object", crate::audit::object(target)),
        ("ostler.object.uid", target.uid.clone()),
        ("ostler.delivery", operation.request.delivery.to_string()),
        ("ostler.queued", format!("{:?}", operation.placed - operation.since)),
    ];
    let failed = answer.as_ref().err().map(|failure| {
        attributes.push(("ostler.error.reason", failure.reason.clone()));
        code(failure.code).into()
    });
    let creation = of_creation(&target.uid);
    Some(Span {
        name: operation.kind.name().into(),
        context,
        parent: (creation.trace_id() == context.trace_id()).then_some(creation),
        role: Role::Asks,
        took: now - operation.since,
        failed,
        attributes,
    })
}

/// The name of the code in spans of drivers.
fn code(of: ErrorCode) -> &'static str {
    let named =
        |code: MachineErrorCode| code.as_str_name().trim_start_matches("MACHINE_ERROR_CODE_");
    MachineErrorCode::try_from(of.number()).map_or_else(|_| of.name(), named)
}

/// The span of a whole creation.
pub(crate) fn creation(target: &Target, took: Duration, failed: Option<&'static str>) -> Span {
    Span {
        name: "Creation".into(),
        context: of_creation(target.uid.as_str()),
        parent: None,
        role: Role::Whole,
        took,
        failed: failed.map(Into::into),
        attributes: vec![
            ("ostler.object", format!("{}/{}/{}", target.kind, target.namespace, target.name)),
            ("ostler.object.uid", target.uid.to_string()),
        ],
    }
}
