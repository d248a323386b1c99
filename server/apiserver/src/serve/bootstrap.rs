//! The initial objects of every cluster.

use http::StatusCode;
use serde_json::json;

use crate::{context::Context, control::Loopback, store::Key};

use super::OpenError;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the namespaces that are not there yet.
pub(super) async fn namespaces(context: &Context, loopback: &Loopback) -> Result<(), OpenError> {
    for name in NAMESPACES {
        if context.store.get(&Key::new("", "namespaces", "", name)).is_some() {
            continue;
        }
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let answer = loopback.create("/api/v1/namespaces", &namespace).await;
        if !answer.code.is_success() && answer.code != StatusCode::CONFLICT {
            return Err(OpenError::Bootstrap { name, code: answer.code.as_u16() });
        }
    }
    Ok(())
}
