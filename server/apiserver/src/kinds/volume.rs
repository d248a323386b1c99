//! PersistentVolumes and PersistentVolumeClaims: stored, and not bound.

use serde_json::{Value, json};

use super::{
    BuiltIn,
    access::{object_in, preset, set},
};

pub(super) fn default(kind: BuiltIn, object: &mut Value) {
    let Some(spec) = object_in(object, "spec") else { return };
    preset(spec, "volumeMode", "Filesystem");
    if kind == BuiltIn::PersistentVolume {
        preset(spec, "persistentVolumeReclaimPolicy", "Retain");
    }
}

pub(super) fn prepare_create(object: &mut Value) {
    set(object, "status", json!({ "phase": "Pending" }));
}
