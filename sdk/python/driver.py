"""An Ostler driver for the cloud in cloud.py: one method for each call. README.md explains."""

import hashlib, json, sys, time, uuid

import cloud
from ostler_driver import Failed, o, serve

PROVIDER, MAX_IN_FLIGHT = "python.ostler.dev", 64
FIXED = ("size", "image")  # what cannot be changed on a running instance


def identity(x):
    ours = json.dumps([x.op.cluster_id, *x.op.previous_cluster_ids])
    return {"now": x.op.cluster_id, "ours": ours, "uid": x.op.target.uid, "name": x.op.target.name,
            "id": getattr(x.request, "provider_id", "")}


def find(x):
    rows = cloud.find(identity(x))
    if len(rows) > 1:
        raise Failed("OUT_OF_RANGE", "SEVERAL_INSTANCES", "two instances claim to be this machine: delete one")
    return rows[0] if rows else None


def not_ours(x):
    rows = cloud.find_others(identity(x))
    return {"provider_id": rows[0]["id"], "cluster_id": rows[0]["cluster"]} if rows else {}


def refuse_others(x):
    if other := not_ours(x):
        raise Failed("FAILED_PRECONDITION", "NOT_OURS", "that instance has other tags", **other)


def need(x):
    if row := find(x):
        return row
    refuse_others(x)
    raise Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")


def record(x, row):
    state = "PENDING" if row["ready"] > time.time() else "RUNNING"
    return o.MachineRecord(
        provider_id=row["id"], machine_name=row["name"], machine_uid=row["uid"],
        cluster_id=row["cluster"] if row["cluster"] != x.op.cluster_id else "",
        power_state="MACHINE_POWER_STATE_" + state, initialized=bool(row["initialized"]))


# Provider specs, as class.yaml has one.

def parse(text):
    """A spec, and what is wrong with it as pairs of path and description."""
    try:
        spec = {"tags": {}, "bootSeconds": 0, **json.loads(text)}
    except (ValueError, TypeError):
        return None, [("", "must be a JSON object")]
    tags, boot = spec["tags"], spec["bootSeconds"]
    rules = {
        "size": (spec.get("size") in ("small", "large"), "must be small or large"),
        "image": (isinstance(spec.get("image"), str) and spec["image"], "must name an image"),
        "tags": (isinstance(tags, dict) and all(isinstance(v, str) and not k.startswith("ostler.dev/") for k, v in tags.items()),
                 "must map text to text, and none of ostler.dev/, which are the identity"),
        "bootSeconds": (type(boot) in (int, float) and 0 <= boot <= 600, "must be a number from 0 to 600")}
    wrong = [(path, text) for path, (good, text) in rules.items() if not good]
    return spec, wrong + [(path, "is not known") for path in sorted(spec.keys() - rules.keys())]


def fixed(old, new):
    """What stands in the way of a hot update."""
    return [(path, "is fixed when the instance is made") for path in FIXED if old[path] != new[path]]


def in_the_way(x, row, spec):
    """Without what an update in place changed: that is in the last applied spec as here, whatever the instance shows."""
    last, unreadable = parse(x.request.last_applied_spec_json)
    return [it for it in fixed(row, spec) if unreadable or last[it[0]] != spec[it[0]]]


def spec_of(x):
    spec, wrong = parse(x.op.machine_class.provider_spec_json)
    if wrong:
        raise Failed("INVALID_ARGUMENT", "BAD_SPEC", "the provider spec is wrong", paths=wrong)
    return spec


def log_in(x):
    """This cloud lets everybody in whose key does not begin with `invalid`."""
    if x.op.secret and x.op.secret.get("apiKey", b"invalid").startswith(b"invalid"):
        raise Failed("UNAUTHENTICATED", "BAD_KEY", "the cloud refuses the apiKey of the secret")


# The calls. Each gets what it needs in `x`, may be repeated, and may be stopped at `x.sleep`.

def create_machine(x):
    log_in(x)
    spec, row = spec_of(x), find(x)  # look first: this may be the second try
    if row is None:
        refuse_others(x)
        cloud.make(f"python:///{uuid.uuid4().hex}", x.op.cluster_id, x.op.target.uid, x.op.target.name, spec["size"],
                   spec["image"], json.dumps({**spec["tags"], **x.request.tags}), json.dumps([*spec["tags"]]),
                   x.request.bootstrap.user_data, time.time() + spec["bootSeconds"], False)
    elif (row["cluster"], row["uid"]) != (x.op.cluster_id, x.op.target.uid):  # a restored or moved cluster: adopt it
        tags = json.dumps({**cloud.tags(row), **x.request.tags})
        cloud.change(row, cluster=x.op.cluster_id, uid=x.op.target.uid, tags=tags)
    elif fixed(row, spec):
        raise Failed("ALREADY_EXISTS", "DOES_NOT_FIT", "an instance of this machine exists and was made differently")
    x.left = "PARTIAL"  # from here on something exists, however this ends
    while (wait := need(x)["ready"] - time.time()) > 0:
        x.sleep(wait)
    return o.CreateMachineResponse(machine=record(x, need(x)))


def initialize_machine(x):
    log_in(x)
    (row := need(x))["initialized"] or cloud.change(row, initialized=True)
    return o.InitializeMachineResponse(machine=record(x, need(x)))


def update_machine(x):
    log_in(x)
    spec, row = spec_of(x), need(x)
    if paths := in_the_way(x, row, spec):
        raise Failed("FAILED_PRECONDITION", "NOT_HOT_UPDATABLE", "this cannot change while it runs", paths=paths)
    have, own = cloud.tags(row), cloud.tags(row, "own_tags")  # what is there, and what is there by us
    want = {key: tag for key, tag in have.items() if key not in own} | spec["tags"]  # tags of others stay
    if want != have:
        cloud.change(row, tags=json.dumps(want), own_tags=json.dumps([*spec["tags"]]))
    return o.UpdateMachineResponse(applied_paths=["tags"] if want != have else [])


def delete_machine(x):
    log_in(x)
    gone = cloud.delete(identity(x))
    if other := not_ours(x):  # it is there, and not touched
        return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_NOT_OURS", **other)
    return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_" + ("DELETED" if gone else "WAS_ABSENT"))


def get_machine_status(x):
    log_in(x)
    return o.GetMachineStatusResponse(machine=record(x, need(x)))


def list_machines(x):
    log_in(x)
    return o.ListMachinesResponse(machines=[record(x, row) for row in cloud.find_all(identity(x))])


def get_volume_ids(x):
    csi = [json.loads(volume).get("csi") or {} for volume in x.request.pv_specs_json]
    return o.GetVolumeIdsResponse(volume_ids=[v["volumeHandle"] if v.get("driver") == PROVIDER else "" for v in csi])


def validate_class(x):
    (new, wrong), (old, unreadable) = parse(x.request.provider_spec_json), parse(x.request.old_provider_spec_json)
    paths = [] if wrong or unreadable else [path for path, _ in fixed(old, new)]
    # Tools name classes by the digest, so it must never change for the same fixed part.
    part = "" if wrong else json.dumps({path: new[path] for path in FIXED}, sort_keys=True, separators=(",", ":"))
    return o.ValidateClassResponse(
        violations=[o.FieldViolation(path=path, description=text) for path, text in wrong],
        change_is_hot_updatable=not wrong and not paths, not_hot_updatable_paths=paths,
        fixed_spec_sha256=part and hashlib.sha256(part.encode()).hexdigest())


if __name__ == "__main__":
    serve(sys.modules[__name__], PROVIDER, "0.1.0", MAX_IN_FLIGHT, ["PREVIOUS_CLUSTER_IDS"])
