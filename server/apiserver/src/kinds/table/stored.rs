//! The rows of kinds that nothing here acts on: jobs, classes, quotas, devices.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, cluster, or, workload};
use crate::kinds::{
    BuiltIn,
    access::{entries, flag, items, number, text},
};

/// The cells between name and age.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds have none of these")]
pub(super) fn cells(kind: BuiltIn, object: &Value, now: Timestamp) -> Vec<Value> {
    let of = |pointer: &str| json!(text(object, pointer));
    let count = |pointer: &str| json!(number(object, pointer).unwrap_or(0));
    let is = |pointer: &str| json!(flag(object, pointer));
    match kind {
        BuiltIn::ReplicationController => {
            ["/spec/replicas", "/status/replicas", "/status/readyReplicas"].map(count).to_vec()
        }
        BuiltIn::ResourceQuota => ["requests", "limits"].map(|part| used(object, part)).to_vec(),
        BuiltIn::NetworkPolicy => {
            let selected = cluster::labels(object, "/spec/podSelector/matchLabels");
            vec![json!(selected)]
        }
        BuiltIn::Job => {
            vec![json!(state(object)), json!(completions(object)), duration(object, now)]
        }
        BuiltIn::CronJob => {
            let active = items(object, "/status/active").len();
            let last = text(object, "/status/lastScheduleTime");
            let last = if last.is_empty() { json!("<none>") } else { age::since(last, now) };
            let zone = or(text(object, "/spec/timeZone"), "<none>");
            vec![of("/spec/schedule"), zone, is("/spec/suspend"), json!(active), last]
        }
        BuiltIn::HorizontalPodAutoscaler => {
            let (kind, name) = (
                text(object, "/spec/scaleTargetRef/kind"),
                text(object, "/spec/scaleTargetRef/name"),
            );
            let counts = ["/spec/minReplicas", "/spec/maxReplicas", "/status/currentReplicas"];
            [vec![json!(format!("{kind}/{name}"))], counts.map(count).to_vec()].concat()
        }
        BuiltIn::PriorityClass => vec![count("/value"), is("/globalDefault")],
        BuiltIn::StorageClass => {
            let texts = ["/provisioner", "/reclaimPolicy", "/volumeBindingMode"].map(of);
            [texts.to_vec(), vec![is("/allowVolumeExpansion")]].concat()
        }
        BuiltIn::CsiDriver => {
            let flags =
                ["attachRequired", "podInfoOnMount", "storageCapacity", "requiresRepublish"];
            let mut cells = flags.map(|name| is(&format!("/spec/{name}"))).to_vec();
            let modes =
                items(object, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str);
            cells.push(json!(modes.collect::<Vec<_>>().join(",")));
            cells
        }
        BuiltIn::CsiStorageCapacity => vec![of("/storageClassName"), of("/capacity")],
        BuiltIn::ResourceSlice => {
            ["/spec/nodeName", "/spec/driver", "/spec/pool/name"].map(of).to_vec()
        }
        BuiltIn::ResourceClaim => {
            let allocated = object.pointer("/status/allocation").is_some();
            let reserved = !items(object, "/status/reservedFor").is_empty();
            let state = match (allocated, reserved) {
                (true, true) => "allocated,reserved",
                (true, false) => "allocated",
                (false, _) => "pending",
            };
            vec![json!(state)]
        }
        _ => Vec::new(),
    }
}

/// Whether wide tables show the pods that a kind would make.
pub(super) fn has_template(kind: BuiltIn) -> bool {
    matches!(kind, BuiltIn::ReplicationController | BuiltIn::Job | BuiltIn::CronJob)
}

/// The containers of these pods, their images, and what is selected.
pub(super) fn template(kind: BuiltIn, object: &Value) -> [Value; 3] {
    let job = object.pointer("/spec/jobTemplate").filter(|_| kind == BuiltIn::CronJob);
    let [containers, images, selector] = workload::template(job.unwrap_or(object));
    let selector = if kind == BuiltIn::ReplicationController {
        json!(cluster::labels(object, "/spec/selector"))
    } else {
        or(selector.as_str().unwrap_or_default(), "<none>")
    };
    [containers, images, selector]
}

/// `pods: 1/3, requests.cpu: 0/2`: what is used of a quota, and what there is.
fn used(quota: &Value, part: &str) -> Value {
    let limits = |name: &str| name.starts_with("limits.");
    let hard = entries(quota, "/status/hard").chain(entries(quota, "/spec/hard"));
    let mut shown: Vec<String> = Vec::new();
    for (name, hard) in hard.filter(|(name, _)| limits(name) == (part == "limits")) {
        let used = quota.pointer("/status/used").and_then(|used| used.get(name));
        let (used, hard) =
            (used.and_then(Value::as_str).unwrap_or("0"), hard.as_str().unwrap_or_default());
        let head = format!("{name}: ");
        if !shown.iter().any(|one| one.starts_with(&head)) {
            shown.push(format!("{head}{used}/{hard}"));
        }
    }
    json!(shown.join(", "))
}

fn state(job: &Value) -> &'static str {
    let is = |kind: &str| {
        items(job, "/status/conditions")
            .iter()
            .any(|it| text(it, "/type") == kind && text(it, "/status") == "True")
    };
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if !text(job, "/metadata/deletionTimestamp").is_empty() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Value) -> String {
    let done = number(job, "/status/succeeded").unwrap_or(0);
    match (number(job, "/spec/completions"), number(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(many)) if many > 1 => format!("{done}/1 of {many}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> Value {
    let time = |field: &str| text(job, &format!("/status/{field}")).parse::<Timestamp>().ok();
    let Some(start) = time("startTime") else { return json!("") };
    let end = time("completionTime").unwrap_or(now);
    json!(age::words(end.as_second() - start.as_second()))
}
