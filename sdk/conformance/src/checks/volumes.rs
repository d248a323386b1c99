//! GetVolumeIds.

use ostler_proto::v1alpha1 as proto;
use proto::OperationKind;
use proto::operation::Request;
use proto::operation_result::Response;

use super::unanswered::{self, AWAY, DENIED, same_or_error};
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::machine::on_class;
use crate::outcome::{Outcome, ensure, failed};

checks! {
    "volumes/ids" => ids, Capability, Session, [Gate::Kind(OperationKind::GetVolumeIds)], "operation.proto, GetVolumeIdsRequest";
        does: "answers with one id for each volume, in order, and an empty one for volumes of others",
        why: "a drain waits for these volumes to be detached: with a wrong id it waits for ever or not at all";
    "volumes/cloud-away" => when_unanswered::<AWAY>, Capability, Cloud, [Gate::Kind(OperationKind::GetVolumeIds), Gate::Probe], unanswered::MANUAL;
        does: "says the same while the infrastructure does not answer, or answers with an error",
        why: "an empty id means that the volume is not of this infrastructure: the drain does not wait for it";
    "volumes/bad-secret" => when_unanswered::<DENIED>, Capability, Session, [Gate::Kind(OperationKind::GetVolumeIds), Gate::BadSecret], unanswered::MANUAL;
        does: "says the same when the credentials are refused, or answers with an error",
        why: "an empty id means that the volume is not of this infrastructure: the drain does not wait for it";
}

async fn ids(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let provider = &driver.session.hello.provider;
    let specs = [
        serde_json::json!({"nfs": {"server": "nfs.example.com", "path": "/"}}),
        serde_json::json!({"csi": {"driver": provider, "volumeHandle": "vol-1"}}),
        serde_json::json!({"hostPath": {"path": "/data"}}),
        serde_json::json!({"csi": {"driver": provider, "volumeHandle": "vol-2"}}),
    ];
    let request = proto::GetVolumeIdsRequest {
        pv_specs_json: specs.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    let request = Request::GetVolumeIds(request);
    let answer = driver.ask(on_class(&bench.class(), bench.cluster_id(), request)).await?;
    let Response::GetVolumeIds(response) = answer.result()? else {
        return Err(failed("GetVolumeIdsResponse", "another result"));
    };
    let ids = response.volume_ids;
    let shown = format!("{ids:?}");
    ensure(ids.len() == specs.len(), format_args!("{} ids", specs.len()), &shown)?;
    if let [nfs, one, host, two] = ids.as_slice() {
        ensure(
            nfs.is_empty() && host.is_empty(),
            "empty ids for volumes of NFS and of the host",
            &shown,
        )?;
        ensure(
            one.is_empty() == two.is_empty() && (one.is_empty() || one != two),
            "two ids for two volumes of one CSI driver, or none",
            &shown,
        )?;
        // Whose CSI driver has another name than the provider knows neither volume.
        let in_order = one.is_empty() || (!one.contains("vol-2") && !two.contains("vol-1"));
        ensure(in_order, "ids in the order of the volumes", &shown)?;
    }
    Ok(())
}

async fn when_unanswered<const DENIED: bool>(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let csi = serde_json::json!({"driver": driver.session.hello.provider, "volumeHandle": "v"});
    let request = proto::GetVolumeIdsRequest {
        pv_specs_json: vec![serde_json::json!({ "csi": csi }).to_string()],
        ..Default::default()
    };
    same_or_error(&driver, Request::GetVolumeIds(request), DENIED).await
}
