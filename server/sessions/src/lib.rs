//! The gRPC side of the core: driver sessions, dispatch, class and secret service.
//!
//! [`Sessions`] is the handle that everything else uses. Drivers dial in to the service behind it;
//! controllers [submit](Sessions::submit) operations, look at the [view](Sessions::view) of a
//! target, and [acknowledge](Sessions::acknowledge) recorded results.
//!
//! Inside, decisions and effects are apart:
//!
//! | module | what |
//! |---|---|
//! | `session` | the protocol of one stream, its frames, what waits to be written |
//! | `hub` | every decision about sessions, roles, queues and operations; pure, time comes in |
//! | `shell` | the lock and the clock around the hub, and the effects it asks for |
//! | `service` | gRPC: Register, classes, secrets, health, reflection |
//! | `audit` | who did what, for the audit log |
//! | `gate` | how many may be connected, and how long without saying who they are |
//! | `listen` | where drivers dial in: loopback, TLS, unix sockets; who is at the other end |
//! | `debug` | gRPC for people: sessions, operations and frames shown, one operation by hand |
//! | `tail` | frames as people read them along |
//! | `convert` | the operations of the core as those of the wire, and answers back |
//! | `local` | a session without a wire, for a driver within this process |
//! | `revisions` | revisions of classes that drivers may still ask for |

mod audit;
mod auth;
mod class;
mod convert;
mod debug;
mod event;
#[cfg(any(feature = "fuzz", test))]
pub mod fuzz;
mod gate;
mod hub;
mod id_comparisons;
mod listen;
mod local;
mod metrics;
mod operation;
mod options;
mod record;
mod revisions;
mod scrape;
mod serve;
mod service;
mod session;
mod sessions;
mod shell;
mod tail;

pub use auth::{
    AuthError, Authenticator, Peer, PeerCertificate, PeerProcess, Presented, Principal, Providers,
    StaticTokens,
};
pub use class::{ClassContent, ClassError, ClassSource, MachineShape, SecretContent};
pub use debug::{
    AdminOptions, Caller, KnownTarget, OrphanDesk, OrphanFate, OrphanReport, Refused, ReportedHold,
    ReportedOrphan, Targets,
};
pub use event::{ProviderState, SessionEvent};
pub use gate::{Gate, GateLayer, GateRules, Guarded, Pass, bounded_server};
pub use id_comparisons::IdComparisons;
pub use listen::{
    Connection, Incoming, ListenAddress, ListenError, Listeners, ServerTls, TlsError, TlsFiles,
    UnixError,
};
pub use local::LocalSession;
pub use operation::{FramePart, SubmitError};
pub use options::{Limits, SessionsOptions, Timing};
pub use ostler_api::operation::Term;
pub use ostler_proto::v1alpha1::OperationInfo;
pub use ostler_rate::{Rate, RateError, TokenBucket};
pub use record::RecordedOperation;
pub use serve::ServeError;
pub use sessions::Sessions;
/// For implementations of [`Authenticator`] and [`ClassSource`].
pub use tonic::async_trait;
