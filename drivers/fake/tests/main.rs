//! What a core and a user see of the driver.

#[path = "../../readme.rs"]
mod schema;

mod kubelets;
mod lost_reply;
mod pools;
mod processes;
mod readme;
mod shared_cloud;
mod verbs;
