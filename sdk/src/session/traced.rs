//! The span of an operation in a driver.

use ostler_proto::v1alpha1::Operation;
use ostler_trace::{Role, Span, TraceContext, Traces};
use tokio::time::Instant;

use super::admission::kind_of;
use crate::error::code_name;
use crate::handler::Answer;

/// A span that began: a part of the core's.
pub(super) struct Traced {
    traces: Traces,
    context: TraceContext,
    parent: TraceContext,
    name: String,
    operation_id: String,
    since: Instant,
}

impl Traced {
    /// Begins the span if the core has one, and we are to send ours. The verb then sees ours, so that its own spans are parts of
    /// it; else it sees the core's.
    pub(super) fn begin(traces: &Traces, operation: &mut Operation) -> Option<Self> {
        let parent: TraceContext = operation.traceparent.parse().ok().filter(|_| traces.is_on())?;
        let context = parent.child();
        operation.traceparent = context.to_string();
        Some(Self {
            traces: traces.clone(),
            context,
            parent,
            name: operation
                .request
                .as_ref()
                .map(kind_of)
                .map_or_else(String::new, |it| format!("{it:?}")),
            operation_id: operation.operation_id.clone(),
            since: Instant::now(),
        })
    }

    /// What the logs of the verb carry.
    pub(super) fn of_logs(traced: Option<&Self>) -> tracing::Span {
        traced.map_or_else(tracing::Span::none, |traced| {
            tracing::info_span!("operation", trace = traced.context.trace_id())
        })
    }

    pub(super) fn end(self, answer: &Answer) {
        let mut attributes = vec![("ostler.operation.id", self.operation_id)];
        let failed = answer.as_ref().err().map(|error| {
            attributes.push(("ostler.error.reason", error.reason_word().to_owned()));
            code_name(error.code()).into()
        });
        self.traces.record(Span {
            name: self.name.into(),
            context: self.context,
            parent: Some(self.parent),
            role: Role::Serves,
            took: self.since.elapsed(),
            failed,
            attributes,
        });
    }
}
