//! The drivers' listener, looked at with grpcurl.

use std::process::{Command, Output};

use ostler_tests::stack::Stack;
use ostler_tests::tools;

const SERVICE: &str = "ostler.driver.v1alpha1.DriverService";

#[test]
fn grpcurl_lists_the_services_without_a_token_and_gets_nothing_else() {
    let Some(grpcurl) = tools::find("grpcurl", &["grpcurl"]) else { return };
    let Some(stack) = Stack::start() else { return };
    let address = format!("127.0.0.1:{}", stack.core_port());
    let ask = |args: &[&str]| -> Output {
        let output = Command::new(&grpcurl).arg("-plaintext").args(args).output();
        output.unwrap()
    };

    let listed = String::from_utf8(ask(&[&address, "list"]).stdout).unwrap();
    assert!(listed.contains(SERVICE) && listed.contains("grpc.health.v1.Health"), "{listed}");

    let health = ask(&["-d", "{}", &address, "grpc.health.v1.Health/Check"]);
    assert!(String::from_utf8(health.stdout).unwrap().contains("SERVING"));

    for method in ["GetMachineClass", "GetSecret", "Register"] {
        let refused = ask(&["-d", "{}", &address, &format!("{SERVICE}/{method}")]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains("Unauthenticated"), "{method}: {said}");
    }
}
