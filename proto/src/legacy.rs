//! The protocol of the first proposal: the same messages in two packages. See `docs/mcm-providers.md`.

use std::fmt;

/// Package `infra`, service `Infragrpc`: what the core implements.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod infra {
    tonic::include_proto!("infra");
}

/// Package `service`, service `Servicegrpc`: the same on the wire, by another path.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod service {
    tonic::include_proto!("service");
}

impl fmt::Debug for infra::Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        redacted(f, &self.data, &self.error)
    }
}

impl fmt::Debug for service::Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        redacted(f, &self.data, &self.error)
    }
}

fn redacted(f: &mut fmt::Formatter<'_>, data: &str, error: &str) -> fmt::Result {
    f.debug_struct("Secret")
        .field("data", &format_args!("<{} bytes>", data.len()))
        .field("error", &error)
        .finish()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::{infra, service};

    #[test]
    fn debug_of_a_secret_shows_its_size_only() {
        let data = "canary-7f3a".to_owned();
        let shown = format!("{:?}", infra::Secret { data, error: String::new() });
        assert!(shown.contains("<11 bytes>") && !shown.contains("canary"), "{shown}");
    }

    #[test]
    fn both_packages_have_the_same_bytes_and_they_are_those_of_the_first_proposal() {
        use infra::{McMside, mc_mside::OperationParams};
        let class = infra::MachineClassMeta { name: "/c".into(), revision: 1 };
        let params = OperationParams {
            machine_class_meta_data: Some(class),
            credentials: String::new(),
            machine_id: "id".into(),
            machine_name: "m".into(),
        };
        let sent = McMside {
            operation_id: 2,
            operation_type: "create".into(),
            operationparams: Some(params),
        };
        // By hand: field numbers and wire types are what drivers in the field decode.
        let mut expected = vec![0x08, 2, 0x12, 6];
        expected.extend(b"create");
        expected.extend([0x1a, 15, 0x0a, 6, 0x0a, 2]);
        expected.extend(b"/c");
        expected.extend([0x10, 1, 0x1a, 2]);
        expected.extend(b"id");
        expected.extend([0x22, 1]);
        expected.extend(b"m");
        assert_eq!(sent.encode_to_vec(), expected);
        let other = service::McMside::decode(expected.as_slice()).unwrap();
        assert_eq!(other.encode_to_vec(), expected);
    }

    #[test]
    fn every_answer_has_its_number() {
        use infra::driver_side::{
            CreateResp, DeleteResp, ListResp, Machine, RegisterationResp, Response,
        };
        let text = |text: &str| text.to_owned();
        let registration = RegisterationResp {
            name: text("a"),
            group: text("b"),
            kind: text("c"),
            version: text("d"),
        };
        let machine = Machine { machine_id: text("a"), machine_name: text("b") };
        let cases = [
            (
                Response::RegisterResp(registration),
                vec![0x1a, 12, 0x0a, 1, b'a', 0x12, 1, b'b', 0x1a, 1, b'c', 0x22, 1, b'd'],
            ),
            (
                Response::Createresponse(CreateResp {
                    provider_id: text("a"),
                    nodename: text("b"),
                    error: text("c"),
                }),
                vec![0x22, 9, 0x0a, 1, b'a', 0x12, 1, b'b', 0x1a, 1, b'c'],
            ),
            (
                Response::Deleteresponse(DeleteResp { error: text("a") }),
                vec![0x2a, 3, 0x0a, 1, b'a'],
            ),
            (
                Response::Listresponse(ListResp { list: vec![machine], error: text("c") }),
                vec![0x32, 11, 0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'b', 0x12, 1, b'c'],
            ),
        ];
        for (response, expected) in cases {
            let answer = infra::DriverSide { response: Some(response), ..Default::default() };
            assert_eq!(answer.encode_to_vec(), expected);
            let other = service::DriverSide::decode(expected.as_slice()).unwrap();
            assert_eq!(other.encode_to_vec(), expected);
        }
    }
}
