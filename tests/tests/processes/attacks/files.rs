//! Disks that are full, files that are damaged, directories of another user.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use ostler_tests::tools;
use serde_json::json;
use tempfile::TempDir;

use crate::attacks::client::Client;
use crate::attacks::table;
use crate::attacks::up::{Options, Up, within};

/// A refusal to start takes a moment.
const REFUSED: Duration = Duration::from_secs(20);
/// How long a server may take to find out that there is space again, or to end.
const HEALED: Duration = Duration::from_secs(20);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A file system of memory, unmounted when dropped.
struct Disk(TempDir);

impl Disk {
    /// Without the right to mount one there is none.
    fn of(megabytes: u32) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let size = format!("size={megabytes}m,mode=0700");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "ostler-attacks"])
            .arg(directory.path())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(directory));
        }
        // Containers of CI may not mount; that is no missing tool.
        tools::say_skipped("no right to mount a small file system");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _left = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

async fn write(admin: &Client, name: &str) -> Option<u16> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"a": "x".repeat(400_000)}});
    Some(admin.post(MAPS, &map).await.ok()?.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_heals_or_ends_the_process() {
    let Some(disk) = Disk::of(24) else { return };
    let mut options = Options::api_only();
    options.data = Some(disk.0.path().join("data"));
    let mut up = Up::start(options).await;
    let admin = Client::admin(&up);
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 12 << 20]).unwrap();
    let mut written = Vec::new();
    let refused = loop {
        let name = format!("m{}", written.len());
        match write(&admin, &name).await {
            Some(201) => written.push(name),
            other => break other,
        }
        assert!(written.len() < 100, "the disk never fills");
    };
    let unready = within(HEALED, async || {
        let ready = admin.get("/readyz").await.map_or(0, |answer| answer.code);
        (ready != 200).then_some(ready)
    });
    let unready = unready.await;
    std::fs::remove_file(&ballast).unwrap();
    let healed = within(HEALED, async || (write(&admin, "after").await == Some(201)).then_some(()));
    let healed = healed.await.is_some();
    let ended = up.ended();
    let end = match (&ended, healed) {
        (Some(status), _) => format!("process {status}"),
        (None, true) => "heals".to_owned(),
        (None, false) => "never heals".to_owned(),
    };
    let outcome = format!(
        "write {refused:?}, /readyz {}, {end}",
        unready.map_or_else(|| "200".to_owned(), |code| code.to_string())
    );
    table::verdict("11 disk full, then space again", "–", &outcome);
    let said = up.said();
    let up = up.kill_and_start().await;
    let admin = Client::admin(&up);
    for name in &written {
        let code = admin.get(&format!("{MAPS}/{name}")).await.unwrap().code;
        assert_eq!(code, 200, "{name} was acknowledged");
    }
    assert!(unready.is_some(), "{outcome}");
    assert!(
        healed || ended.is_some_and(|status| !status.success() && !said.is_empty()),
        "{outcome}: {said}"
    );
}

/// The exit code and the output of a start that is refused, if it ends.
async fn refusal(data: &Path) -> Option<(i32, String)> {
    let mut options = Options::api_only();
    options.data = Some(data.to_owned());
    let mut up = Up::spawn(options, TempDir::new().unwrap());
    let ready = up.stdout.clone();
    let status = tokio::select! {
        status = up.end(REFUSED) => status,
        _ready = ready.line(|line| line.starts_with("ready: ")) => None,
    }?;
    // The end of the process may be known before its last words.
    within(REFUSED, async || (!up.stderr.all().is_empty()).then_some(())).await;
    Some((status.code().unwrap_or(-1), up.stderr.all()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_is_no_new_cluster() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let mut options = Options::api_only();
    options.data = Some(data.clone());
    let mut up = Up::start(options).await;
    up.kill().await;
    std::fs::write(data.join("api/objects.redb"), []).unwrap();
    let refused = refusal(&data).await;
    table::verdict(
        "12a objects.redb of no length",
        "damaged disk",
        &refused.as_ref().map_or_else(
            || "an empty cluster starts".to_owned(),
            |(code, _)| format!("exit {code}"),
        ),
    );
    let (code, said) = refused.expect("it is refused");
    assert!(code == 1 && said.contains("objects.redb"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_open_to_others_is_refused() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = refusal(&data).await;
    table::verdict(
        "12b data directory of mode 0777",
        "other user of the computer",
        &refused.as_ref().map_or_else(|| "taken".to_owned(), |(code, _)| format!("exit {code}")),
    );
    let (code, said) = refused.expect("it is refused");
    assert!(code == 1 && said.contains(data.to_str().unwrap()), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_link_is_not_followed() {
    let directory = TempDir::new().unwrap();
    let (data, victim) = (directory.path().join("data"), directory.path().join("victim"));
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(&victim, "mine").unwrap();
    symlink(&victim, data.join("kubeconfig.part")).unwrap();
    let refused = refusal(&data).await;
    let kept = std::fs::read_to_string(&victim).unwrap_or_default() == "mine";
    table::verdict(
        "12c kubeconfig.part is a link to a file of another user",
        "other user of the computer",
        if kept { "the file is as it was" } else { "the admin token is in that file" },
    );
    assert!(kept, "{refused:?}");
}
