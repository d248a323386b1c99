//! What is wrong with a unary driver is found: the driver of sdk/python with one line changed, and the check that must
//! turn red. The defects are common mistakes of authors, and leaks of instances.
//!
//! `tests/broken` does the same for a driver that speaks the stream. What the adapter makes of a status without a detail
//! is in its own tests (`sdk/adapter`).

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;

use ostler_tests::process::binaries;

/// A defect: its description, the check that finds it, and the changes of the driver's files.
struct Defect {
    what: &'static str,
    check: &'static str,
    changes: &'static [Change],
}

/// File, text, and replacement.
type Change = (&'static str, &'static str, &'static str);

const NOT_FOUND: &str = r#"raise Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")"#;
const STATUS: &str = "def get_machine_status(x):\n    log_in(x)\n";
const STATUS_LIES: &str = "def get_machine_status(x):\n    try:\n        log_in(x), find(x)\n    \
    except Exception:\n        raise Failed(\"NOT_FOUND\", \"NO_INSTANCE\", \"there is none\")\n";
const DELETE: &str = "    log_in(x)\n    gone = cloud.delete(identity(x))\n";
const DELETE_LIES: &str = "    try:\n        log_in(x)\n        gone = cloud.delete(identity(x))\n    \
    except Exception:\n        return o.DeleteMachineResponse(outcome=\"DELETION_OUTCOME_WAS_ABSENT\")\n";
const LIST: &str = "def list_machines(x):\n    log_in(x)\n";
const LIST_LIES: &str = "def list_machines(x):\n    try:\n        log_in(x), cloud.find_all(identity(x))\n    \
    except Exception:\n        return o.ListMachinesResponse()\n";
const INITIALIZE: &str = "def initialize_machine(x):\n    log_in(x)\n";
const INITIALIZE_LIES: &str = "def initialize_machine(x):\n    try:\n        log_in(x), find(x)\n    \
    except Exception:\n        return o.InitializeMachineResponse(machine=o.MachineRecord(provider_id=x.request.provider_id))\n";
const UPDATE: &str = "def update_machine(x):\n    log_in(x)\n";
const UPDATE_LIES: &str = "def update_machine(x):\n    try:\n        log_in(x), find(x)\n    \
    except Exception:\n        return o.UpdateMachineResponse(applied_paths=[\"tags\"])\n";
const MAKE: &str = "        cloud.make(f\"python:///{uuid.uuid4().hex}\", x.op.cluster_id, x.op.target.uid, x.op.target.name,";
const MADE: &str = "time.time() + spec[\"bootSeconds\"], False)\n";
const DETAIL: &str = "return rpc.abort_with_status(error.status(call.left))";

const MAIN: &str = "if __name__ == \"__main__\":\n";
const HAS_EVENTS: &str = "import queue\n\nevents = queue.Queue()\n\nif __name__ == \"__main__\":\n";
/// Looks at its table now and then, and tells which instances are gone.
macro_rules! watching {
    ($gone:literal) => {
        concat!(
            "import queue, threading\nfrom ostler.driver.v1alpha1 import event_pb2 as e\n\n",
            "events = queue.Queue()\n\ndef watch():\n    known = set()\n    while True:\n",
            "        now = {row[\"id\"] for row in cloud.sql(\"SELECT id FROM instance\")}\n        for it in ",
            $gone,
            ":\n            events.put(e.DriverEvent(kind=\"INSTANCE_EVENT_GONE\", provider_id=it))\n",
            "        known = now\n        time.sleep(0.1)\n\n",
            "threading.Thread(target=watch, daemon=True).start()\n\nif __name__ == \"__main__\":\n"
        )
    };
}
const TELLS_WHAT_IS_GONE: &str = watching!("known - now");
/// Of all instances whenever one is gone.
const TELLS_OF_ALL: &str = watching!("known | now if known - now else ()");

const DEFECTS: &[Defect] = &[
    Defect {
        what: "errors without an OperationError: a bare NOT_FOUND is no absence",
        check: "status/absent",
        changes: &[(
            "ostler_driver.py",
            DETAIL,
            "return rpc.abort(next(it for it in grpc.StatusCode if it.value[0] == error.error.code), str(error))",
        )],
    },
    Defect {
        what: "RESOURCE_EXHAUSTED without a detail after the work, as gRPC says of an answer that is too large",
        check: "create/basic",
        changes: &[
            (
                "driver.py",
                "    return o.CreateMachineResponse(",
                "    x.rpc.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, \"too large\")\n    return o.CreateMachineResponse(",
            ),
            ("driver.py", "import cloud\n", "import cloud, grpc\n"),
            (
                "ostler_driver.py",
                "return self.work(name, kind, verb, call)",
                "call.rpc = rpc\n                return self.work(name, kind, verb, call)",
            ),
        ],
    },
    Defect {
        what: "NOT_FOUND when the cloud refuses the key",
        check: "status/error-not-absent",
        changes: &[("driver.py", STATUS, STATUS_LIES)],
    },
    Defect {
        what: "NOT_FOUND when the cloud is away",
        check: "status/cloud-away",
        changes: &[("driver.py", STATUS, STATUS_LIES)],
    },
    Defect {
        what: "gone when the cloud refuses the key",
        check: "delete/error-not-gone",
        changes: &[("driver.py", DELETE, DELETE_LIES)],
    },
    Defect {
        what: "gone when the cloud is away",
        check: "delete/cloud-away",
        changes: &[("driver.py", DELETE, DELETE_LIES)],
    },
    Defect {
        what: "an empty list when the cloud refuses the key",
        check: "list/error-not-empty",
        changes: &[("driver.py", LIST, LIST_LIES)],
    },
    Defect {
        what: "an empty list when the cloud is away",
        check: "list/cloud-away",
        changes: &[("driver.py", LIST, LIST_LIES)],
    },
    Defect {
        what: "initialized when the cloud refuses the key",
        check: "initialize/bad-secret",
        changes: &[("driver.py", INITIALIZE, INITIALIZE_LIES)],
    },
    Defect {
        what: "initialized when the cloud is away",
        check: "initialize/cloud-away",
        changes: &[("driver.py", INITIALIZE, INITIALIZE_LIES)],
    },
    Defect {
        what: "applied when the cloud refuses the key",
        check: "update/bad-secret",
        changes: &[("driver.py", UPDATE, UPDATE_LIES)],
    },
    Defect {
        what: "applied when the cloud is away",
        check: "update/cloud-away",
        changes: &[("driver.py", UPDATE, UPDATE_LIES)],
    },
    Defect {
        what: "creates, and tags in the next call, without a pause",
        check: "create/tags-atomic",
        changes: &[
            (
                "driver.py",
                MAKE,
                "        key = f\"python:///{uuid.uuid4().hex}\"\n        cloud.make(key, \"\", \"\", \"\",",
            ),
            (
                "driver.py",
                MADE,
                "time.time() + spec[\"bootSeconds\"], False)\n        cloud.change({\"id\": key}, cluster=x.op.cluster_id, uid=x.op.target.uid, name=x.op.target.name)\n",
            ),
        ],
    },
    Defect {
        what: "creates without looking first",
        check: "create/same-key-new-id",
        changes: &[
            ("driver.py", "spec, row = spec_of(x), find(x)", "spec, row = spec_of(x), None"),
            ("cloud.py", ", UNIQUE (cluster, uid)", ""),
        ],
    },
    Defect {
        what: "says that a cancelled create left nothing, though it made an instance",
        check: "create/cancel",
        changes: &[("driver.py", "    x.left = \"PARTIAL\"", "    x.left = \"NOT_APPLIED\"")],
    },
    Defect {
        what: "gives a create up when its adapter ends, before it made anything",
        check: "unary/adapter-killed",
        changes: &[
            (
                "ostler_driver.py",
                "return self.work(name, kind, verb, call)",
                "rpc.add_callback(call.cancelled.set)\n                return self.work(name, kind, verb, call)",
            ),
            (
                "driver.py",
                MAKE,
                "        x.sleep(2)\n        cloud.make(f\"python:///{uuid.uuid4().hex}\", x.op.cluster_id, x.op.target.uid, x.op.target.name,",
            ),
        ],
    },
    Defect {
        what: "does not tell what runs",
        check: "unary/adapter-killed",
        changes: &[(
            "ostler_driver.py",
            "running = [running for _, running, mutates in self.calls.values() if mutates]",
            "running = []",
        )],
    },
    Defect {
        what: "has events and tells none",
        check: "events/gone",
        changes: &[("driver.py", MAIN, HAS_EVENTS)],
    },
    Defect {
        what: "calls what is there gone",
        check: "events/named",
        changes: &[("driver.py", MAIN, TELLS_OF_ALL)],
    },
    Defect {
        what: "keeps a class by its name for ever",
        check: "update/hot",
        changes: &[
            (
                "driver.py",
                "    spec, wrong = parse(x.op.machine_class.provider_spec_json)\n",
                "    key = x.op.machine_class.ref.name\n    spec, wrong = parse(KEPT.setdefault(key, x.op.machine_class.provider_spec_json))\n",
            ),
            ("driver.py", "FIXED = (", "KEPT, FIXED = {}, ("),
        ],
    },
    Defect {
        what: "keeps a secret by the name of its class for ever",
        check: "secret/refresh",
        changes: &[
            (
                "driver.py",
                "    if x.op.secret and x.op.secret.get(\"apiKey\", b\"invalid\")",
                "    kept = KEPT.setdefault(x.op.machine_class.ref.name, dict(x.op.secret))\n    if kept and kept.get(\"apiKey\", b\"invalid\")",
            ),
            ("driver.py", "FIXED = (", "KEPT, FIXED = {}, ("),
        ],
    },
    Defect {
        what: "tells an instance by another id after a restart",
        check: "resilience/crash-mid-create",
        changes: &[
            (
                "driver.py",
                "        provider_id=row[\"id\"], machine_name",
                "        provider_id=f\"{row['id']}/{START}\", machine_name",
            ),
            ("driver.py", "FIXED = (", "START, FIXED = uuid.uuid4().hex, ("),
        ],
    },
    Defect {
        what: "calls an outage a want of quota",
        check: "status/cloud-away",
        changes: &[(
            "ostler_driver.py",
            "Failed(\"UNAVAILABLE\", \"NO_ANSWER\"",
            "Failed(\"RESOURCE_EXHAUSTED\", \"NO_ANSWER\"",
        )],
    },
    Defect {
        what: "calls an outage a defect of its own",
        check: "status/cloud-away",
        changes: &[(
            "ostler_driver.py",
            "Failed(\"UNAVAILABLE\", \"NO_ANSWER\"",
            "Failed(\"INTERNAL\", \"NO_ANSWER\"",
        )],
    },
    Defect {
        what: "wants to be asked again a day after an outage",
        check: "status/cloud-away",
        changes: &[
            (
                "ostler_driver.py",
                "does not answer\", \"UNKNOWN\")",
                "does not answer\", \"UNKNOWN\", retry_after=datetime.timedelta(days=1))",
            ),
            ("ostler_driver.py", "import contextlib, os", "import contextlib, datetime, os"),
        ],
    },
    Defect {
        what: "finds by the beginning of the name",
        check: "create/prefix-name",
        changes: &[(
            "driver.py",
            "    rows = cloud.find(identity(x))\n",
            "    rows = cloud.find(identity(x)) or cloud.sql(\"SELECT * FROM instance WHERE name LIKE :name || '%' LIMIT 1\", identity(x))\n",
        )],
    },
    Defect {
        what: "loses what is not ASCII in a tag",
        check: "create/request-tags",
        changes: &[(
            "driver.py",
            "{**spec[\"tags\"], **x.request.tags}",
            "{key: tag.encode(\"ascii\", \"ignore\").decode() for key, tag in {**spec[\"tags\"], **x.request.tags}.items()}",
        )],
    },
    Defect {
        what: "keeps user data in a tag",
        check: "secret/not-in-tags",
        changes: &[(
            "driver.py",
            "{**spec[\"tags\"], **x.request.tags}",
            "{**spec[\"tags\"], **x.request.tags, \"user-data\": x.request.bootstrap.user_data.decode()}",
        )],
    },
    Defect {
        what: "says when it was",
        check: "status/same-message",
        changes: &[(
            "driver.py",
            "\"there is no such instance\")",
            "f\"there is no such instance at {time.time()}\")",
        )],
    },
    Defect {
        what: "does not tell that it updates",
        check: "unary/kinds-told",
        changes: &[(
            "ostler_driver.py",
            "                self.info.operation_kinds.append(o.OperationKind.Value(kind))\n",
            "                word == \"UPDATE_MACHINE\" or self.info.operation_kinds.append(o.OperationKind.Value(kind))\n",
        )],
    },
    Defect {
        what: "an unknown instance is INTERNAL",
        check: "status/absent",
        changes: &[("driver.py", NOT_FOUND, "raise ValueError()")],
    },
    Defect {
        what: "prints the secret",
        check: "secret/not-in-output",
        changes: &[(
            "driver.py",
            "def get_machine_status(x):\n",
            "def get_machine_status(x):\n    print(dict(x.op.secret), file=sys.stderr, flush=True)\n",
        )],
    },
];

/// The driver in a folder of its own, with its packages and stubs from the clone.
fn copy(clone: &Path, to: &Path) {
    let from = clone.join("sdk/python");
    for file in [
        "cloud.py",
        "driver.py",
        "ostler_driver.py",
        "ostler_trace.py",
        "probe.py",
        "python-driver",
    ] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    for folder in [".venv", "stubs"] {
        symlink(from.join(folder), to.join(folder)).unwrap();
    }
}

/// One check of the suite, with a driver that was changed so.
fn sanity(clone: &Path, check: &str, changes: &[Change]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    copy(clone, dir.path());
    for (file, old, new) in changes {
        let path = dir.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{file} has no {old:?}");
        fs::write(path, text.replace(old, new)).unwrap();
    }
    let python = clone.join("sdk/python");
    let manifest = |name: &str| python.join(name).display().to_string();
    let here = dir.path().display();
    Command::new(binaries().join("ostler"))
        .args(["sanity", "--unary", "--timeout-scale", "0.5"])
        .args(["--driver-cmd", &format!("{here}/python-driver")])
        .args(["--probe-cmd", &format!("python3 {here}/probe.py")])
        .args(["--focus", &format!("^{check}$")])
        .args(["--class", &manifest("example/class.yaml")])
        .args(["--secret", &manifest("example/secret.yaml")])
        .args(["--hot-class", &manifest("sanity/hot-class.yaml")])
        .args(["--slow-class", &manifest("sanity/slow-class.yaml")])
        .args(["--bad-secret", &manifest("sanity/bad-secret.yaml")])
        .output()
        .unwrap()
}

/// What is wrong with the suite, if it does not see the defect.
fn unseen(clone: &Path, defect: &Defect) -> Option<String> {
    let output = sanity(clone, defect.check, defect.changes);
    let said = String::from_utf8_lossy(&output.stdout);
    let red = said.lines().any(|line| line.starts_with(&format!("✗ {}", defect.check)));
    let errors = String::from_utf8_lossy(&output.stderr);
    // A SHOULD that does not hold is a warning.
    let fine = red && output.status.code().is_some_and(|code| code < 2);
    (!fine).then(|| format!("{} is not seen by {}:\n{said}\n{errors}", defect.what, defect.check))
}

#[test]
fn what_a_driver_in_python_puts_into_its_queue_reaches_the_core() {
    let Some(clone) = super::sdks::python() else { return };
    for check in ["events/gone", "events/named"] {
        let output = sanity(clone, check, &[("driver.py", MAIN, TELLS_WHAT_IS_GONE)]);
        let said = String::from_utf8_lossy(&output.stdout);
        let passed = said.lines().any(|line| line.starts_with(&format!("✓ {check}")));
        assert!(passed && output.status.success(), "{said}");
    }
}

#[test]
fn a_driver_without_get_machine_status_is_red_for_nothing_and_lacks_no_check() {
    let Some(clone) = super::sdks::python() else { return };
    let without = [("driver.py", "def get_machine_status(x):\n", "def read_one(x):\n")];
    let output = sanity(clone, "status/.*", &without);
    let said = String::from_utf8_lossy(&output.stdout);
    let green = output.status.success() && !said.contains('✗');
    assert!(green, "{said}");
    let not_checked = said.lines().find(|line| line.starts_with("not checked: "));
    assert!(not_checked.is_some_and(|line| !line.contains(" status/")), "{said}");
}

#[test]
fn a_driver_that_ends_at_each_start_ends_the_suite_with_its_status_and_its_words() {
    let example = ostler_tests::tools::root().join("sdk/python/example/class.yaml");
    let output = Command::new(binaries().join("ostler"))
        .args(["sanity", "--unary", "--driver-cmd", "/bin/sh -c 'echo no such thing; exit 127'"])
        .args(["--class", &example.display().to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in
        ["no such thing", "right after each of 3 starts", "a library is missing", "answers GetInfo"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn every_defect_of_a_unary_driver_turns_its_check_red() {
    const AT_ONCE: usize = 4;
    let Some(clone) = super::sdks::python() else { return };
    let left = Mutex::new(DEFECTS.iter());
    let missed: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().next();
                    let Some(defect) = next else { return };
                    missed.lock().unwrap().extend(unseen(clone, defect));
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}
