//! The drivers' listener, looked at with grpcurl.

use std::process::{Command, Output};

use ostler_tests::process::Process;
use ostler_tests::tools;
use tempfile::TempDir;

const SERVICE: &str = "ostler.driver.v1alpha1.DriverService";

#[test]
fn grpcurl_lists_the_services_without_a_token_and_gets_nothing_else() {
    let Some(grpcurl) = tools::find("grpcurl", &["grpcurl"]) else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let listen = "127.0.0.1:0";
    let args = ["up", "--driver", "none", "--api-listen", listen, "--drivers-listen", listen];
    let args = args.into_iter().chain(["--data-dir", data.to_str().unwrap()]);
    let mut up = Process::start("ostler", args, &[]);
    let said = up.line("the drivers' address", |line| line.contains("takes drivers at"));
    let address = said.rsplit(' ').next().unwrap().to_owned();
    up.line("`ready`", |line| line.starts_with("ready"));
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
