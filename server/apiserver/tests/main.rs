//! What clients see of the server.

mod backup;
mod control_plane;
mod finding;
mod https;
mod joining;
mod kube_client;
mod limits;
mod requests;
mod tls;
