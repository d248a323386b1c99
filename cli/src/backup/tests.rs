use kube::Client;
use std::os::unix::fs::PermissionsExt as _;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use ostler_apiserver::serve::{ApiServer, Options};
use ostler_apiserver::store::{Key, Record};
use ostler_lifecycle::orphans::ReportOnly;
use serde_json::json;
use tempfile::TempDir;

use super::*;

const ID: &str = "ostler-cluster-id";

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// A data directory as `up` leaves it: with a cluster id if a core ran, and a Lease.
async fn used(data_dir: &Path, core_ran: bool) {
    let data = DataDir::open(data_dir).unwrap();
    let api = ApiServer::open(Options::directory(data.api())).await.unwrap();
    let client = Client::new(api.local_service(), "default");
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let lease = Lease { metadata: meta("machine-controller"), ..Lease::default() };
    leases.create(&PostParams::default(), &lease).await.unwrap();
    if core_ran {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let data = Some([("clusterID".to_owned(), "mine".to_owned())].into());
        let map = ConfigMap { metadata: meta(ID), data, ..ConfigMap::default() };
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    api.close().await;
    for (name, text) in KNOWN {
        std::fs::write(data_dir.join(name), text).unwrap();
    }
}

/// Files about drivers.
const KNOWN: [(&str, &str); 3] = [
    ("drivers.json", "[\"Fake\"]"),
    ("aliases.json", "{\"AWS\":\"aws.example.com\"}"),
    ("driver-env.json", "[\"AWS_PROFILE\"]"),
];

async fn back_up(data_dir: &Path, file: &Path) -> anyhow::Result<()> {
    run(Args { file: file.to_owned(), data_dir: data_dir.to_owned(), replace: false }).await
}

async fn restored(file: &Path, data_dir: &Path, flags: &[&str]) -> anyhow::Result<()> {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: RestoreArgs,
    }
    let line = ["restore", file.to_str().unwrap(), "--data-dir", data_dir.to_str().unwrap()];
    let line = line.iter().chain(flags);
    restore(<Cli as clap::Parser>::try_parse_from(line).unwrap().args).await
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_backup_that_is_interrupted_leaves_no_file_with_secrets() {
    let (home, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    used(home.path(), true).await;
    let data = DataDir::open(home.path()).unwrap();
    // A server that never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let api = ApiServer::open(Options::directory(data.api())).await.unwrap();
    let tls = api.tls(&["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(data.kubeconfig(), api.kubeconfig(&tls, &format!("https://{address}"))).unwrap();
    api.close().await;
    let (file, end) = (out.path().join("b"), CancellationToken::new());
    let args = Args { file, data_dir: home.path().to_owned(), replace: false };
    let (asked, interrupt) = (silent.accept(), end.clone());
    let interrupt = async {
        let asked = asked.await.unwrap();
        assert_eq!(names(out.path()).len(), 1, "it is being written");
        interrupt.cancel();
        asked
    };
    let (taken, _asked) = tokio::join!(run_until(end, args), interrupt);
    assert!(taken.unwrap_err().to_string().contains("interrupted"));
    assert_eq!(names(out.path()), [""; 0]);
}

#[tokio::test]
async fn a_restored_directory_has_the_objects_and_keys_no_lease_and_the_mark() {
    let dir = TempDir::new().unwrap();
    let (old, new, file) =
        (dir.path().join("old"), dir.path().join("new"), dir.path().join("backup"));
    used(&old, true).await;
    back_up(&old, &file).await.unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = back_up(&old, &file).await.unwrap_err().to_string();
    assert!(again.contains("is there already"), "{again}");
    restored(&file, &new, &[]).await.unwrap();
    for name in KEY_FILES {
        let text = |root: &Path| std::fs::read(root.join(API).join(name)).unwrap();
        assert_eq!(text(&old), text(&new), "{name}");
    }
    for (name, text) in KNOWN {
        assert_eq!(std::fs::read_to_string(new.join(name)).unwrap(), text);
    }
    let api = ApiServer::open(Options::directory(new.join(API))).await.unwrap();
    let client = Client::new(api.local_service(), "default");
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    assert!(leases.get_opt("machine-controller").await.unwrap().is_none());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let data = maps.get(ID).await.unwrap().data.unwrap();
    assert_eq!(data["clusterID"], "mine");
    assert!(ReportOnly::of(&data).unwrap().reason.contains("restored from the backup"), "{data:?}");
    api.close().await;
    assert_eq!(names(dir.path()).len(), 3, "nothing is left beside: {:?}", names(dir.path()));
}

#[tokio::test]
async fn a_backup_from_before_the_first_core_is_marked_when_it_is_restored() {
    let dir = TempDir::new().unwrap();
    let (data_dir, file) = (dir.path().join("data"), dir.path().join("backup"));
    used(&data_dir, false).await;
    back_up(&data_dir, &file).await.unwrap();
    restored(&file, &data_dir, &["--force"]).await.unwrap();
    let api = ApiServer::open(Options::directory(data_dir.join(API))).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(api.local_service(), "default"));
    let data = maps.get(ID).await.unwrap().data.unwrap();
    assert!(ReportOnly::of(&data).is_some() && !data.contains_key("clusterID"), "{data:?}");
    api.close().await;
}

#[tokio::test]
async fn a_backup_of_a_running_server_is_whole_and_nobody_restores_under_it() {
    let dir = TempDir::new().unwrap();
    let (data_dir, file) = (dir.path().join("data"), dir.path().join("backup"));
    let data = DataDir::open(&data_dir).unwrap();
    let api = ApiServer::open(Options::directory(data.api())).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let tls = api.tls(&[]).unwrap();
    api.write_kubeconfig(&data.kubeconfig(), &tls, &address).unwrap();
    let end = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn({
        let (api, end) = (api.clone(), end.clone());
        async move { api.serve(listener, tls, end).await }
    });
    back_up(&data_dir, &file).await.unwrap();
    let found = survey(&file).unwrap();
    let objects = api.context().store.list(&Prefix::all(), None, None).records.len() as u64;
    assert_eq!((found.totals.objects, found.totals.files), (objects, KEY_FILES.len() as u64));
    assert!(!found.header.cluster.is_empty());
    let refused = restored(&file, &data_dir, &["--force"]).await.unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    end.cancel();
    serving.await.unwrap().unwrap();
    api.close().await;
}

#[tokio::test]
async fn what_is_there_is_moved_aside_and_drivers_keep_theirs() {
    let dir = TempDir::new().unwrap();
    let (data_dir, file) = (dir.path().join("data"), dir.path().join("backup"));
    used(&data_dir, true).await;
    back_up(&data_dir, &file).await.unwrap();
    std::fs::write(data_dir.join(API).join(OBJECTS), "damaged").unwrap();
    std::fs::create_dir_all(data_dir.join("drivers/fake")).unwrap();
    std::fs::write(data_dir.join("drivers/fake/cloud.jsonl"), "instances").unwrap();
    let refused = restored(&file, &data_dir, &[]).await.unwrap_err().to_string();
    assert!(refused.contains("not empty") && refused.contains("--force"), "{refused}");
    restored(&file, &data_dir, &["--force"]).await.unwrap();
    let aside = names(&data_dir).into_iter().find(|it| it.starts_with("before-restore-")).unwrap();
    let damaged = std::fs::read_to_string(data_dir.join(aside).join(API).join(OBJECTS)).unwrap();
    assert_eq!(damaged, "damaged");
    let cloud = std::fs::read_to_string(data_dir.join("drivers/fake/cloud.jsonl")).unwrap();
    assert_eq!(cloud, "instances");
    assert!(!names(&data_dir).contains(&"api.restoring".to_owned()));
}

#[tokio::test]
async fn a_damaged_backup_is_refused_with_the_place_before_anything_is_written() {
    let dir = TempDir::new().unwrap();
    let (data_dir, new, file) =
        (dir.path().join("data"), dir.path().join("new"), dir.path().join("backup"));
    used(&data_dir, true).await;
    back_up(&data_dir, &file).await.unwrap();
    let whole = std::fs::read_to_string(&file).unwrap();
    let cases = [
        (whole[..whole.len() / 2].to_owned(), "it ends after line"),
        (whole.replacen("mine", "nine", 1), "SHA-256"),
        (whole.replacen("\"kind\":\"ConfigMap\"", "\"kind\":ConfigMap", 1), "line "),
        (whole.replacen("\"file\":\"api/admin-token\"", "\"file\":\"api/../../x\"", 1), "SHA-256"),
        ("hello\n".to_owned(), "not the first line of a backup"),
        (String::new(), "not whole"),
    ];
    for (text, expected) in cases {
        std::fs::write(&file, text).unwrap();
        let refused = format!("{:#}", restored(&file, &new, &[]).await.unwrap_err());
        assert!(refused.contains(expected), "{expected}: {refused}");
        assert!(!new.exists());
    }
    std::fs::write(&file, whole).unwrap();
    restored(&file, &new, &["--check"]).await.unwrap();
    assert!(!new.exists(), "only verified");
}

/// A change of a backup.
type Edit = fn(&mut Parts);

/// What a backup has, to be changed and written again with a right sum.
struct Parts {
    header: Header,
    files: Vec<KeptFile>,
    records: Vec<Record>,
}

impl Parts {
    fn of(file: &Path) -> Self {
        let found = survey(file).unwrap();
        let mut entries = survey::Entries::of(File::open(file).unwrap());
        let mut records = Vec::new();
        while let Some(entry) = entries.next_entry().unwrap() {
            if let Entry::Object(record) = entry {
                records.push(record);
            }
        }
        Self { header: found.header, files: found.files, records }
    }

    fn write(&self, file: &Path) {
        let mut encoder = Encoder::begin(Vec::new(), &self.header).unwrap();
        self.files.iter().for_each(|file| encoder.file(file).unwrap());
        self.records.iter().for_each(|record| encoder.object(record).unwrap());
        std::fs::write(file, encoder.end().unwrap().0).unwrap();
    }

    fn text(&mut self, path: &str) -> &mut String {
        &mut self.files.iter_mut().find(|file| file.path == path).unwrap().text
    }

    /// The record of a definition with this spec, where it belongs in the order.
    fn define(&mut self, spec: &str) {
        let name = "machines.machine.sapcloud.io";
        let key = Key::new("apiextensions.k8s.io", "customresourcedefinitions", "", name);
        let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "uid": "u"}, "spec": spec});
        let value = object.to_string().into();
        self.records.push(Record { key, revision: self.header.revision, value });
        self.header.revision += 1;
        self.records.last_mut().unwrap().revision = self.header.revision;
        self.records.sort_by(|one, other| one.key.cmp(&other.key));
    }
}

#[tokio::test]
async fn a_backup_with_which_up_would_not_start_is_refused_before_anything_is_moved() {
    let dir = TempDir::new().unwrap();
    let (data_dir, file, bad) =
        (dir.path().join("data"), dir.path().join("backup"), dir.path().join("bad"));
    used(&data_dir, true).await;
    back_up(&data_dir, &file).await.unwrap();
    let cases: [(Edit, &str); 8] = [
        (|it| "x".clone_into(it.text("api/admin-token")), "holds a secret of 1 characters"),
        (|it| it.text("api/token-signing-key").push_str("\nä"), "characters that no secret has"),
        (|it| it.files.push(it.files[0].clone()), "stands here again"),
        (|it| "{}".clone_into(it.text("api/pki/authority.json")), "authority.json"),
        (
            |it| {
                let text = it.text("api/pki/authority.json");
                *text = text.replacen("BEGIN CERTIFICATE", "BEGIN NOTHING", 1);
            },
            "authority.json",
        ),
        (|it| it.header.revision = u64::MAX, "leaves no room"),
        (|it| "[]".clone_into(it.text("aliases.json")), "aliases.json is not what"),
        (|it| it.define("text"), "machines.machine.sapcloud.io cannot be used"),
    ];
    for (edit, expected) in cases {
        let mut parts = Parts::of(&file);
        edit(&mut parts);
        parts.write(&bad);
        let before = names(&data_dir);
        for flags in [&["--check"][..], &["--force"]] {
            let refused = format!("{:#}", restored(&bad, &data_dir, flags).await.unwrap_err());
            assert!(refused.contains(expected), "{expected}: {refused}");
        }
        assert_eq!(names(&data_dir), before, "nothing is moved: {expected}");
    }
    Parts::of(&file).write(&bad);
    restored(&bad, &data_dir, &["--check"]).await.unwrap();
}

#[test]
fn files_that_a_data_directory_does_not_have_are_refused() {
    let file = |path: &str| KeptFile { path: path.to_owned(), text: "{}".to_owned() };
    let keys: Vec<KeptFile> = KEY_FILES.iter().map(|it| file(&format!("{API}/{it}"))).collect();
    survey::check_files(&keys).unwrap();
    let more = [keys.clone(), vec![file("api/../../.ssh/authorized_keys")]].concat();
    assert!(survey::check_files(&more).unwrap_err().to_string().contains("does not know"));
    assert!(survey::check_files(&keys[1..]).unwrap_err().to_string().contains("has no api/"));
}

#[test]
fn a_restore_that_was_killed_at_its_last_step_is_not_taken_for_a_new_directory() {
    let dir = TempDir::new().unwrap();
    refuse_half_restored(dir.path()).unwrap();
    std::fs::create_dir(dir.path().join("api.restoring")).unwrap();
    let refused = refuse_half_restored(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("broken off"), "{refused}");
}
