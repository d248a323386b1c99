//! `Debug` of the messages that carry secrets: names and sizes, never content.

use std::fmt;

use crate::v1alpha1::{BootstrapData, GetSecretResponse, OperationContext};

impl fmt::Debug for BootstrapData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapData")
            .field("user_data", &format_args!("<{} bytes>", self.user_data.len()))
            .field("format", &self.format)
            .finish()
    }
}

impl fmt::Debug for GetSecretResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetSecretResponse")
            .field("r#ref", &self.r#ref)
            .field("data", &format_args!("<{} keys>", self.data.len()))
            .field("cache_for", &self.cache_for)
            .finish()
    }
}

impl fmt::Debug for OperationContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationContext")
            .field("operation_id", &self.operation_id)
            .field("target", &self.target)
            .field("cluster_id", &self.cluster_id)
            .field("machine_class", &self.machine_class)
            .field("secret", &format_args!("<{} keys>", self.secret.len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use crate::v1alpha1::{
        BootstrapData, CreateMachineRequest, GetSecretResponse, Operation, OperationContext,
        operation,
    };

    const CANARY: &[u8] = b"canary-7f3a";

    #[test]
    fn debug_of_an_operation_never_shows_its_user_data() {
        let create = CreateMachineRequest {
            bootstrap: Some(BootstrapData { user_data: CANARY.to_vec(), format: String::new() }),
            ..Default::default()
        };
        let operation = Operation {
            request: Some(operation::Request::CreateMachine(create)),
            ..Default::default()
        };
        let shown = format!("{operation:?}");
        assert!(shown.contains("<11 bytes>"), "{shown}");
        assert!(!shown.contains("canary") && !shown.contains(&format!("{CANARY:?}")), "{shown}");
    }

    #[test]
    fn debug_of_a_secret_shows_neither_keys_nor_values() {
        let data = HashMap::from([("canary-key".to_owned(), CANARY.to_vec())]);
        let shown = format!("{:?}", GetSecretResponse { data, ..Default::default() });
        assert!(shown.contains("<1 keys>"), "{shown}");
        assert!(!shown.contains("canary") && !shown.contains(&format!("{CANARY:?}")), "{shown}");
    }

    #[test]
    fn debug_of_a_unary_request_never_shows_the_secret_of_its_context() {
        let secret = HashMap::from([("canary-key".to_owned(), CANARY.to_vec())]);
        let context = Some(Box::new(OperationContext { secret, ..Default::default() }));
        let shown = format!("{:?}", CreateMachineRequest { context, ..Default::default() });
        assert!(shown.contains("<1 keys>"), "{shown}");
        assert!(!shown.contains("canary") && !shown.contains(&format!("{CANARY:?}")), "{shown}");
    }
}
