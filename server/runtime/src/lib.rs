//! The framework of a controller. The framework knows no kind: a controller brings its kinds and their triggers.
//!
//! | module | what |
//! |---|---|
//! | `watch` | caches of API objects with their indexes, and the watches that fill them |
//! | `queue` | keys that wait for a pass: priorities, backoff, bounded concurrency |
//! | `kind` | the four calls of a reconcile, and the passes that make them |
//! | `client` | requests to the API: counted, limited in time, with a typed result |
//! | `unseen` | the writes that a cache does not show yet |
//! | `handover` | the last requests of the process that led before |
//! | `events` | Kubernetes events, as series and limited |
//! | `namespaces` | which namespaces are served |
//! | `clock` | the one source of wall-clock time |

#[cfg(test)]
mod bench;
pub mod client;
pub mod clock;
pub mod events;
pub mod handover;
pub mod kind;
pub mod namespaces;
pub mod queue;
pub mod unseen;
pub mod watch;
