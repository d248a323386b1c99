//! The variables of proxies, as a company's shell or a cluster sets them for everything.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use ostler_tests::process::{Process, binaries};
use ostler_tests::tools::root;
use tempfile::TempDir;

/// Where nobody listens.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Every variable that a library may read.
fn everything<'a>(proxy: &'a str, no_proxy: &'a str) -> Vec<(&'static str, &'a str)> {
    let proxies =
        ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let proxies = proxies.into_iter().map(|name| (name, proxy));
    proxies.chain([("NO_PROXY", no_proxy), ("no_proxy", no_proxy)]).collect()
}

/// A data directory, and an `up` with the machines of the first session.
fn up(env: &[(&str, &str)]) -> (TempDir, Process) {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data").display().to_string();
    let example = root().join("deploy/examples/fake").display().to_string();
    let args = ["up", "--data-dir", &data, "--api-listen", "127.0.0.1:0", "--drivers-listen"];
    let args = args.into_iter().chain(["127.0.0.1:0", "--apply", &example]);
    let mut process = Process::start("ostler", args, env);
    process.line("`ready`", |line| line.starts_with("ready"));
    (dir, process)
}

fn ostler(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(binaries().join("ostler")).args(args).envs(env.iter().copied()).output().unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn the_first_session_works_whatever_the_variables_of_proxies_say() {
    for (proxy, no_proxy) in [
        (NOWHERE, ""),
        (NOWHERE, "127.0.0.1,localhost,"),
        (NOWHERE, "10.0.0.0/8 .svc, *.example.com:6443"),
        ("https://user:secret@proxy.invalid:3128", "localhost"),
        ("this is no proxy", "::::"),
    ] {
        let env = everything(proxy, no_proxy);
        let (dir, _up) = up(&env);
        let kubeconfig = dir.path().join("data/kubeconfig").display().to_string();
        for command in
            [&["rollout", "status", "workers"][..], &["describe", "machinedeployment", "workers"]]
        {
            let output = ostler(&[command, &["--kubeconfig", &kubeconfig]].concat(), &env);
            assert!(output.status.success(), "{proxy} {no_proxy}: {}", said(&output));
        }
    }
}

/// A proxy that sends every host's connections to one address, and notes the requested hosts.
struct Tunnels {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tunnels {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tunnels = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let asked = Arc::clone(&tunnels.asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let asked = Arc::clone(&asked);
                std::thread::spawn(move || tunnel(stream, to, &asked));
            }
        });
        tunnels
    }
}

fn tunnel(mut client: TcpStream, to: SocketAddr, asked: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    asked.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    let mut server = TcpStream::connect(to).ok()?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    let (mut from, mut back) = (server.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut back));
    std::io::copy(&mut client, &mut server).ok().map(drop)
}

#[test]
fn a_proxy_that_leads_to_the_api_server_is_used_whether_a_variable_or_the_kubeconfig_names_it() {
    let (dir, _up) = up(&[]);
    let own = std::fs::read_to_string(dir.path().join("data/kubeconfig")).unwrap();
    let server = own.lines().find_map(|line| line.split_once("server: https://")).unwrap().1;
    let address = server.trim_matches(['"', ' ']).to_owned();
    let tunnels = Tunnels::start(address.parse().unwrap());
    let proxy = format!("http://al:open%20sesame@{}", tunnels.address);
    let far = dir.path().join("far").display().to_string();
    let there = |more: &str| {
        let name =
            format!("https://api.example.invalid:6443\n    tls-server-name: 127.0.0.1{more}");
        std::fs::write(&far, own.replace(&format!("https://{address}"), &name)).unwrap();
    };
    let describe = |env: &[(&str, &str)]| {
        ostler(&["describe", "machinedeployment", "workers", "--kubeconfig", &far], env)
    };
    there("");
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        let output = describe(&[(variable, &proxy), ("NO_PROXY", "example.com,127.0.0.1")]);
        assert!(output.status.success(), "{variable}: {}", said(&output));
    }
    {
        let asked = std::mem::take(&mut *tunnels.asked.lock().unwrap());
        assert!(asked.len() >= 3, "{asked:?}");
        for head in asked {
            assert!(head.starts_with("CONNECT api.example.invalid:6443 HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("Proxy-Authorization: Basic YWw6b3BlbiBzZXNhbWU="), "{head}");
        }
    }
    for exempt in ["example.invalid", ".example.invalid", "*", "api.example.invalid:6443"] {
        let output = describe(&[("HTTPS_PROXY", &proxy), ("NO_PROXY", exempt)]);
        assert!(!output.status.success(), "{exempt}: nobody resolves the name here");
    }
    let output = describe(&[("HTTPS_PROXY", "https://u:secret@proxy.invalid")]);
    let told = said(&output);
    assert!(told.contains("HTTPS_PROXY") && !told.contains("secret"), "{told}");
    assert_eq!(tunnels.asked.lock().unwrap().len(), 0);
    // The proxy of the kubeconfig counts before all variables, as with kubectl.
    there(&format!("\n    proxy-url: \"{proxy}\""));
    let output = describe(&[("HTTPS_PROXY", NOWHERE), ("NO_PROXY", "*")]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!tunnels.asked.lock().unwrap().is_empty());
}
