//! Spans of operations, sent to a collector over OTLP.
//!
//! Spans here have times and ids of their own making, which the tracers of the SDK of OpenTelemetry do not give: a span of the
//! core begins in one pass and ends in another, its id follows from the operation, and after a restart of the core another
//! process ends it. So of that SDK only the exporter is used. The queue is ours, since its own counts no loss.

mod context;
mod export;

pub use context::{TraceContext, of_creation, of_operation};
pub use export::{Role, Span, TraceArgs, TraceError, Traces};
