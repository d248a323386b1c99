//! The admin listener of a core alone, on a socket and on loopback, asked with grpcurl.

use std::process::{Command, Output};

use ostler_tests::ports::free_port;
use ostler_tests::process::{PATIENCE, Process};
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools;

const LIST: &str = "ostler.driver.v1alpha1.DriverDebugService/ListSessions";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_replica_answers_its_user_or_whoever_has_the_token() {
    let Some(grpcurl) = tools::find("grpcurl", &["grpcurl"]) else { return };
    let ask = |args: &[&str]| Command::new(&grpcurl).arg("-plaintext").args(args).output().unwrap();
    let Some(mut stack) = Stack::start() else { return };
    let path = |stack: &Stack, name: &str| stack.file(name).to_str().unwrap().to_owned();
    let socket = format!("unix:{}", path(&stack, "admin.sock"));
    stack.core_args(["--admin-listen", &socket]);
    stack.kill(Part::Core);
    stack.restart(Part::Core);
    let answer = ask(&[&socket, LIST]);
    assert!(text(&answer).contains("\"leading\": true"), "{}", text(&answer));

    let token = path(&stack, "admin-token");
    std::fs::write(&token, "admin-token\n").unwrap();
    let (address, any) = (format!("127.0.0.1:{}", free_port()), "127.0.0.1:0");
    let kubeconfig = stack.kubeconfig().to_str().unwrap();
    let args = ["--kubeconfig", kubeconfig, "--drivers-listen", any, "--metrics-listen", any];
    let admin = ["--admin-listen", &address, "--admin-token-file", &token];
    let _follower = Process::start("ostler-server", args.iter().chain(&admin), &[]);
    let patience = PATIENCE.as_secs().to_string();
    // grpcurl waits until the core listens.
    let header = ["-connect-timeout", &patience, "-H", "authorization: Bearer admin-token"];
    let began = std::time::Instant::now();
    let answer = loop {
        let answer = ask(&[&header[..], &[&address, LIST]].concat());
        if answer.status.success() || began.elapsed() > PATIENCE {
            break text(&answer);
        }
    };
    assert!(answer.contains("\"core\"") && !answer.contains("\"leading\""), "{answer}");
    for refused in [ask(&[&address, LIST]), ask(&[&address, "list"])] {
        let said = text(&refused);
        assert!(!refused.status.success() && said.contains("admin token"), "{said}");
    }
}
