//! A driver that is right as long as its cloud is: the suite between the two finds each lie. Driver and cloud are in
//! `tests/broken/http`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;

use ostler_tests::process::{Process, binaries};
use ostler_tests::tools::root;

/// The defect, the case that shows it, and the replacements in the driver's text.
type Lie = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const STATUS: &str = "    return o.GetMachineStatusResponse(machine=record(need(x)))\n";
/// Takes an error of this reason for absence.
macro_rules! absent_on {
    ($reason:literal) => {
        &[(
            STATUS,
            concat!(
                "    try:\n        return o.GetMachineStatusResponse(machine=record(need(x)))\n    except Failed as failed:\n        if failed.error.reason == \"",
                $reason,
                "\":\n            raise Failed(\"NOT_FOUND\", \"NO_INSTANCE\", \"there is none\")\n        raise\n"
            ),
        )]
    };
}
const SEARCH: &str = "        answer = call(x, \"GET\", f\"/{kind}?{query}\")\n";
const DELETE: &str =
    "            gone = call(x, \"DELETE\", f\"/{kind}/{it['id']}\") is not None or gone\n";
const DELETES_ANYHOW: &[(&str, &str)] = &[(
    DELETE,
    "            try:\n                call(x, \"DELETE\", f\"/{kind}/{it['id']}\")\n            except Failed:\n                pass\n            gone = True\n",
)];
const HALF_IS_EMPTY: &[(&str, &str)] = &[(
    "    except (OSError, http.client.HTTPException, ValueError):",
    "    except http.client.IncompleteRead:\n        return {\"items\": [], \"more\": False}\n    except (OSError, http.client.HTTPException, ValueError):",
)];
const CERTAIN: &[(&str, &str)] = &[(
    "    before, x.left = x.left, x.left if method == \"GET\" else \"UNKNOWN\"\n",
    "    before = x.left\n",
)];

const LIES: &[Lie] = &[
    ("a 500 is absence", "status 1 500", absent_on!("CLOUD_FAILED")),
    ("no answer in time is absence", "status-by-id 1 hang", absent_on!("NO_ANSWER")),
    ("a 403 is absence", "status 1 403", absent_on!("REFUSED")),
    ("a 429 is absence", "status 1 429", absent_on!("THROTTLED")),
    (
        "a 404 of anything is absence",
        "status 1 404",
        &[
            ("if error.code == 404 and \"no_such_thing\" in text:", "if error.code == 404:"),
            (
                SEARCH,
                "        answer = call(x, \"GET\", f\"/{kind}?{query}\") or {\"items\": [], \"more\": False}\n",
            ),
        ],
    ),
    (
        "a list ends with the page that fails",
        "list 2 500",
        &[(
            SEARCH,
            "        try:\n            answer = call(x, \"GET\", f\"/{kind}?{query}\")\n        except Failed:\n            if page == 0: raise\n            break\n",
        )],
    ),
    ("half an answer is an empty one", "list 1 half", HALF_IS_EMPTY),
    (
        "a create whose answer was lost made nothing, though there is a disk",
        "create 2 lost",
        CERTAIN,
    ),
    ("a deletion whose answer was lost did nothing", "delete 2 lost", CERTAIN),
    (
        "creates without looking and without a token",
        "create 3 lost",
        &[
            (
                "    server = find(x)\n    if server is None:",
                "    server = None\n    if server is None:",
            ),
            ("body, x.op.idempotency_key)", "body, str(time.time()))"),
        ],
    ),
    (
        "the disk of a half-made create stays",
        "create-deleted 3 500",
        &[(
            "        for it in search(x, kind, uid=x.op.target.uid):\n",
            "        for it in search(x, kind, uid=x.op.target.uid) if kind == \"servers\" or gone else ():\n",
        )],
    ),
    (
        "an outage is a want of quota",
        "create 1 500",
        &[(
            "Failed(\"UNAVAILABLE\", \"CLOUD_FAILED\"",
            "Failed(\"RESOURCE_EXHAUSTED\", \"CLOUD_FAILED\"",
        )],
    ),
    (
        "an outage of a second costs a day",
        "delete 1 reset",
        &[(
            "\"the cloud does not answer\")",
            "\"the cloud does not answer\", retry_after=datetime.timedelta(days=1))",
        )],
    ),
    (
        "initialized, whatever the cloud said",
        "initialize 2 500",
        &[(
            "    server = call(x, \"PUT\", f\"/servers/{need(x)['id']}\", {\"initialized\": True})\n",
            "    server = need(x)\n    try:\n        call(x, \"PUT\", f\"/servers/{server['id']}\", {\"initialized\": True})\n    except Failed:\n        pass\n",
        )],
    ),
    (
        "applied, whatever the cloud said",
        "update 2 409",
        &[(
            "    call(x, \"PUT\", f\"/servers/{server['id']}\", {\"tags\": {**server[\"tags\"], **want}})\n",
            "    try:\n        call(x, \"PUT\", f\"/servers/{server['id']}\", {\"tags\": {**server[\"tags\"], **want}})\n    except Failed:\n        pass\n",
        )],
    ),
    ("a deletion that is refused is done", "delete 2 409", DELETES_ANYHOW),
    ("a disk that is not deleted is gone", "delete-by-id 4 500", DELETES_ANYHOW),
    ("a model whose answer was lost was not made", "pool-create 2 lost", CERTAIN),
    (
        "makes a group without looking and without a token",
        "pool-create 3 lost",
        &[
            (
                "    group = find_group(x)\n    if group is None:",
                "    group = None\n    if group is None:",
            ),
            ("\"/groups\", body, x.op.idempotency_key)", "\"/groups\", body, str(time.time()))"),
        ],
    ),
    (
        "a 500 is no group",
        "pool-status 1 500",
        &[(
            "    group = need_group(x)\n    machines =",
            "    try:\n        group = need_group(x)\n    except Failed as failed:\n        if failed.error.reason == \"CLOUD_FAILED\":\n            raise Failed(\"NOT_FOUND\", \"NO_GROUP\", \"there is none\")\n        raise\n    machines =",
        )],
    ),
    (
        "the instances end with the page that fails",
        "pool-status-by-id 3 500",
        &[(
            SEARCH,
            "        try:\n            answer = call(x, \"GET\", f\"/{kind}?{query}\")\n        except Failed:\n            if page == 0: raise\n            break\n",
        )],
    ),
    ("half a list of groups is an empty one", "pool-list 1 half", HALF_IS_EMPTY),
    (
        "changed, whatever the cloud said",
        "pool-update 2 409",
        &[(
            "        group = call(x, \"PUT\", f\"/groups/{group['id']}\", {\"size\": size, \"model\": model})\n",
            "        try:\n            call(x, \"PUT\", f\"/groups/{group['id']}\", {\"size\": size, \"model\": model})\n        except Failed:\n            pass\n",
        )],
    ),
    ("the deletion of a group that is refused is done", "pool-delete 2 409", DELETES_ANYHOW),
    (
        "lowers the size, then deletes, and does so again",
        "pool-delete-machines 5 500",
        &[
            ("    if left and lower and", "    if False and"),
            (
                "        call(x, \"DELETE\", f\"/members/{there[key]['id']}{lower}\")\n",
                "        group = call(x, \"PUT\", f\"/groups/{group['id']}\", {\"size\": group[\"size\"] - 1})\n        call(x, \"DELETE\", f\"/members/{there[key]['id']}\")\n",
            ),
        ],
    ),
    (
        "an instance has the model, whatever the cloud said",
        "pool-update-machine 4 409",
        &[(
            "    member = call(x, \"PUT\", f\"/members/{member['id']}\", {\"model\": group[\"model\"]})\n",
            "    try:\n        call(x, \"PUT\", f\"/members/{member['id']}\", {\"model\": group[\"model\"]})\n    except Failed:\n        pass\n    member[\"model\"] = group[\"model\"]\n",
        )],
    ),
];

/// The suite between the driver, changed so, and the cloud at this address.
fn sanity(clone: &Path, cloud: &str, args: &[&str], changes: &[(&str, &str)]) -> Output {
    let (dir, http) = (tempfile::tempdir().unwrap(), root().join("tests/broken/http"));
    let sdk = clone.join("sdk/python");
    for folder in [".venv", "stubs"] {
        symlink(sdk.join(folder), dir.path().join(folder)).unwrap();
    }
    for file in ["ostler_driver.py", "ostler_trace.py"] {
        fs::copy(sdk.join(file), dir.path().join(file)).unwrap();
    }
    let mut driver = fs::read_to_string(http.join("driver.py")).unwrap();
    for (old, new) in changes {
        assert!(driver.contains(old), "the driver has no {old:?}");
        driver = driver.replace(old, new);
    }
    fs::write(dir.path().join("driver.py"), driver).unwrap();
    let (here, file) = (dir.path().display(), |name: &str| http.join(name).display().to_string());
    Command::new(binaries().join("ostler"))
        .env("CLOUD_URL", cloud)
        .args([
            "sanity",
            "--unary",
            "--timeout-scale",
            "0.5",
            "--cloud",
            cloud,
            "--cloud-env",
            "CLOUD_URL",
        ])
        .args(["--driver-cmd", &format!("{here}/.venv/bin/python {here}/driver.py")])
        .args(["--probe-cmd", &format!("python3 {}", file("cloud.py"))])
        .args(["--class", &file("class.yaml"), "--hot-class", &file("hot-class.yaml")])
        .args(["--secret", &file("secret.yaml")])
        .args(args)
        .output()
        .unwrap()
}

/// The cloud as a process, and where it is.
fn cloud() -> (Process, String) {
    let program = root().join("tests/broken/http/cloud.py").display().to_string();
    let args = ["python3".to_owned(), program, "serve".to_owned()];
    let mut cloud = Process::start("/usr/bin/env", args, &[]);
    let address = cloud.line("its address", |line| line.starts_with("http://"));
    (cloud, address)
}

#[test]
fn a_driver_that_keeps_the_contract_does_so_whatever_its_cloud_does() {
    let Some(clone) = super::sdks::python() else { return };
    let (_cloud, address) = cloud();
    // All cases of a create take minutes.
    let output = sanity(clone, &address, &["--focus", "^faults/list$"], &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("✓ faults/list"), "{said}");
    for case in ["create 3 lost", "create-deleted 3 500"] {
        let output = sanity(clone, &address, &["--only", case], &[]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("✓ faults/create"), "{case}: {said}");
    }
}

#[test]
fn every_lie_about_a_cloud_that_fails_is_seen_in_its_case() {
    const AT_ONCE: usize = 4;
    let Some(clone) = super::sdks::python() else { return };
    let (_cloud, address) = cloud();
    let (left, missed) = (Mutex::new(LIES.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().next();
                    let Some((what, case, changes)) = next else { return };
                    let output = sanity(clone, &address, &["--only", case], changes);
                    let said = String::from_utf8_lossy(&output.stdout);
                    let named = said.contains(&format!("--only '{case}' repeats it"));
                    if !named || output.status.code() != Some(1) {
                        missed.lock().unwrap().push(format!("{what}, {case}:\n{said}"));
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}
