//! A kubeconfig for the administrator.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::store::secret::Secret;

/// The name of cluster, user and context in the file.
const NAME: &str = "embedded";

pub(super) fn render(server: &str, authority_pem: &str, token: &Secret) -> String {
    let authority = BASE64_STANDARD.encode(authority_pem);
    let token = token.expose();
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {NAME}
  user:
    token: {token}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {NAME}
    namespace: default
current-context: {NAME}
"
    )
}
