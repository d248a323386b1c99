//! What a core and a user see of the driver.

#[expect(clippy::unwrap_used, reason = "tests")]
#[path = "../../readme.rs"]
mod schema;

mod kubelets;
mod lost_reply;
mod pools;
mod processes;
mod readme;
mod shared_cloud;
mod verbs;
