//! The admin listener of a core alone, on a socket and on loopback, asked with grpcurl.

use std::process::{Command, Output};

use ostler_tests::process::{PATIENCE, Process};
use ostler_tests::{stack, tools};
use tempfile::TempDir;

const LIST: &str = "ostler.driver.v1alpha1.DriverDebugService/ListSessions";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_replica_answers_its_user_or_whoever_has_the_token() {
    let Some(grpcurl) = tools::find("grpcurl", &["grpcurl"]) else { return };
    let ask = |args: &[&str]| Command::new(&grpcurl).arg("-plaintext").args(args).output().unwrap();
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let args = ["up", "--core", "none", "--driver", "none", "--api-listen", "127.0.0.1:0"];
    let args = args.map(str::to_owned).into_iter().chain(["--data-dir".to_owned(), path("data")]);
    let mut up = Process::start("ostler", args, &[]);
    up.line("`ready`", |line| line.starts_with("ready"));
    let core = |admin: &[&str]| {
        let kubeconfig = path("data/kubeconfig");
        let listen = "127.0.0.1:0";
        let args =
            ["--kubeconfig", &kubeconfig, "--drivers-listen", listen, "--metrics-listen", listen];
        Process::start("ostler-server", args.iter().chain(admin), &[])
    };

    let socket = format!("unix:{}", path("admin.sock"));
    let mut leader = core(&["--admin-listen", &socket]);
    leader.line("`ready`", |line| line.starts_with("ready"));
    let answer = ask(&[&socket, LIST]);
    assert!(text(&answer).contains("\"leading\": true"), "{}", text(&answer));

    std::fs::write(path("token"), "admin-token\n").unwrap();
    let address = format!("127.0.0.1:{}", stack::free_port());
    let token = path("token");
    let _follower = core(&["--admin-listen", &address, "--admin-token-file", &token]);
    let patience = PATIENCE.as_secs().to_string();
    // grpcurl waits until somebody listens.
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
