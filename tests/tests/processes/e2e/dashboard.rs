//! `ostler dashboard`, and the page of `ostler up`, as a browser sees them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::Process;
use ostler_tests::tools;
use serde_json::Value;
use tempfile::TempDir;

use crate::e2e::manifests::one_machine;

/// Where a page is, and its token.
struct Page {
    address: String,
    token: String,
}

impl Page {
    /// Of a line with its link.
    fn of(line: &str) -> Self {
        let (_, link) = line.split_once("http://").unwrap();
        let (address, token) = link.trim().split_once("/#").unwrap();
        Self { address: address.to_owned(), token: token.to_owned() }
    }

    /// Asks with HTTP/1.0, of which a stream has no frame.
    fn ask(&self, line: &str, token: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "{line} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n")
            .unwrap();
        stream
    }

    fn answer(&self, line: &str, token: &str) -> String {
        let mut text = String::new();
        self.ask(line, token).read_to_string(&mut text).unwrap();
        text
    }

    /// The first update of the stream for which something is true.
    fn update(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let lines = BufReader::new(self.ask("GET /events", &self.token)).lines();
        let updates = lines.map(|line| line.unwrap());
        let mut updates =
            updates.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
        updates.find(is_wanted).unwrap()
    }
}

/// A kubeconfig of an account without rights.
fn without_rights(kubectl: &Kubectl, data: &Path) -> std::path::PathBuf {
    kubectl.run(["create", "serviceaccount", "guest"]);
    let token = kubectl.run(["create", "token", "guest"]);
    let own = std::fs::read_to_string(data.join("kubeconfig")).unwrap();
    let lines = own.lines().map(|line| match line.split_once("token:") {
        Some((before, _)) => format!("{before}token: {}", token.trim()),
        None => line.to_owned(),
    });
    let path = data.join("guest.kubeconfig");
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    path
}

#[test]
fn a_browser_with_the_link_reads_what_the_kubeconfig_may_read_and_nobody_else_does() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let files = one_machine();
    let files = files.iter().flat_map(|file| ["--apply", file]);
    let free = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];
    let args = ["up", "--data-dir", data.to_str().unwrap()].into_iter().chain(free).chain(files);
    let mut up = Process::start("ostler", args, &[]);
    let page = Page::of(&up.line("a link", |line| line.contains("a page for a browser")));
    up.line("`ready`", |line| line.starts_with("ready"));

    let html = page.answer("GET /", "");
    assert!(html.starts_with("HTTP/1.0 200") && html.contains("<title>Ostler</title>"), "{html}");
    for (line, token, status) in [
        ("GET /events", "guessed", "401"),
        ("GET /describe/machine/default/fake-1", "", "401"),
        ("PUT /describe/machine/default/fake-1", page.token.as_str(), "405"),
    ] {
        let said = page.answer(line, token);
        assert!(said.contains(status) && !said.contains("fake-1"), "{line}: {said}");
    }
    let joined = |update: &Value| update["machines"]["default/fake-1"]["joined"].is_number();
    let machine = page.update(joined)["machines"]["default/fake-1"].clone();
    assert_eq!(machine["steps"][0]["what"], "CreateInstance", "{machine}");
    let answers = machine["answers"].as_array().unwrap();
    let told: Vec<_> =
        answers.iter().map(|it| (it["what"].as_str(), it["failed"].as_bool())).collect();
    assert_eq!(told[1], (Some("CreateMachine"), Some(false)), "{machine}");
    assert_eq!(
        told[0],
        (Some("GetMachineStatus"), Some(false)),
        "a look that found nothing: {machine}"
    );
    let driver = page.update(|update| !update["head"]["drivers"]["Ok"][0].is_null());
    assert_eq!(driver["head"]["drivers"]["Ok"][0]["provider"], "fake.ostler.dev");
    let described = page.answer("GET /describe/machine/default/fake-1", &page.token);
    assert!(described.contains("Machine   default/fake-1"), "{described}");

    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    let guest = without_rights(&kubectl, &data);
    let mut dashboard =
        Process::start("ostler", ["dashboard", "--kubeconfig", guest.to_str().unwrap()], &[]);
    let page = Page::of(&dashboard.line("a link", |line| line.starts_with("http://")));
    let lacks = |update: &Value| update["head"]["lacks"].as_array().is_some_and(|it| it.len() == 5);
    let told = page.update(lacks);
    assert_eq!(told["head"]["lacks"][0], "no rights to list machines");
    assert_eq!(told["head"]["lacks"][3], "no rights to list machinepools");
    dashboard.terminate();
    assert!(dashboard.wait().success());
}
