"""An Ostler driver for a cloud that is one SQLite table. session.py speaks the stream."""

import asyncio, hashlib, json, logging, os, signal, sqlite3, time, uuid
from pathlib import Path

from call import Failed, o
from session import Session

PROVIDER = "python.ostler.dev"
FIXED = ("size", "image")  # what cannot be changed on a running instance

# The cloud. The statement that makes an instance also tags it with cluster and machine: no instance is ever without.
path = os.environ.get("CLOUD_FILE", Path(__file__).parent / "cloud.sqlite3")
OUTAGE = Path(f"{path}.outage")


class Cloud(sqlite3.Connection):
    """Answers until it has taken as many changes as `probe.py break` allows."""

    def execute(self, *statement):
        left = int(OUTAGE.read_text()) if OUTAGE.exists() else None
        if left == 0:
            raise ConnectionError("the cloud does not answer")
        before = self.total_changes
        rows = super().execute(*statement)
        if left and self.total_changes > before:
            OUTAGE.write_text(str(left - 1))
        return rows


cloud = sqlite3.connect(path, isolation_level=None, factory=Cloud)
cloud.row_factory = sqlite3.Row
cloud.execute("CREATE TABLE IF NOT EXISTS instance (id PRIMARY KEY, cluster, uid, name, size, image, tags, own_tags,"
              " user_data, ready, initialized, UNIQUE (cluster, uid))")
OURS = "cluster IN (SELECT value FROM json_each(:ours))"  # under its id of today, or one that it had before
THIS = f"FROM instance WHERE {OURS} AND (uid = :uid OR (id = :id AND name = :name))"


def identity(x):
    """By the id that the core knows if the names fit, else by UID; and never in another cluster."""
    ours = json.dumps([x.op.cluster_id, *x.op.previous_cluster_ids])
    return {"now": x.op.cluster_id, "ours": ours, "uid": x.op.target.uid, "name": x.op.target.name,
            "id": getattr(x.request, "provider_id", "")}


def find(x):
    rows = cloud.execute("SELECT * " + THIS, identity(x)).fetchall()
    if len(rows) > 1:
        raise Failed("OUT_OF_RANGE", "SEVERAL_INSTANCES", "two instances claim to be this machine: delete one")
    return rows[0] if rows else None


def not_ours(x):
    """An instance that was asked for, is there, and is another machine's; or one of the machine's name, from before
    the cluster got the id of today, and with another UID: it may be that of this machine, or not."""
    named = f"id = :id AND NOT ({OURS} AND name = :name)"
    before = f":id = '' AND name = :name AND uid <> :uid AND {OURS} AND cluster <> :now"
    row = cloud.execute(f"SELECT id, cluster FROM instance WHERE {named} OR {before}", identity(x)).fetchone()
    return {"provider_id": row["id"], "cluster_id": row["cluster"]} if row else {}


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
        "tags": (isinstance(tags, dict) and all(isinstance(v, str) for v in tags.values()), "must map text to text"),
        "bootSeconds": (type(boot) in (int, float) and 0 <= boot <= 600, "must be a number from 0 to 600")}
    wrong = [(path, text) for path, (good, text) in rules.items() if not good]
    wrong += [(path, "is not known") for path in sorted(spec.keys() - rules.keys())]
    return spec, wrong[:20]  # a frame has 64 KiB, a message 2 KiB


def fixed(old, new):
    """What stands in the way of a hot update."""
    return [(path, "is fixed when the instance is made") for path in FIXED if old[path] != new[path]]


def digest(part):
    """Tools name classes by it, so it must never change for the same fixed part."""
    return hashlib.sha256(json.dumps(part, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def spec_of(x):
    spec, wrong = parse((await x.machine_class()).provider_spec_json)
    if wrong:
        raise Failed("INVALID_ARGUMENT", "BAD_SPEC", ", ".join(f"{path} {text}" for path, text in wrong), paths=wrong)
    return spec


async def log_in(x):
    """This cloud lets everybody in whose key does not begin with `invalid`. The secret is used and dropped."""
    secret = await x.secret()
    if secret is not None and secret.get("apiKey", b"invalid").startswith(b"invalid"):
        raise Failed("UNAUTHENTICATED", "BAD_KEY", "the cloud refuses the apiKey of the secret")


# The operations. Each gets what it needs in `x`, may be repeated, and may be stopped at every `await`.

async def create_machine(x):
    await log_in(x)
    spec, row = await spec_of(x), find(x)  # look first: this may be the second try
    if row is None:
        refuse_others(x)
        values = (f"python:///{uuid.uuid4().hex}", x.op.cluster_id, x.op.target.uid, x.op.target.name, spec["size"],
                  spec["image"], json.dumps({**x.request.tags, **spec["tags"]}), json.dumps([*spec["tags"]]),
                  x.request.bootstrap.user_data, time.time() + spec["bootSeconds"], False)
        cloud.execute("INSERT INTO instance VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    elif (row["cluster"], row["uid"]) != (x.op.cluster_id, x.op.target.uid):  # a restored or moved cluster: adopt it
        tags = json.dumps({**json.loads(row["tags"]), **x.request.tags})
        cloud.execute("UPDATE instance SET cluster = ?, uid = ?, tags = ? WHERE id = ?",
                      (x.op.cluster_id, x.op.target.uid, tags, row["id"]))
    elif fixed(row, spec):
        raise Failed("ALREADY_EXISTS", "DOES_NOT_FIT", "an instance of this machine exists and was made differently")
    x.left = "PARTIAL"  # from here on something exists, however this ends
    while (wait := need(x)["ready"] - time.time()) > 0:
        await asyncio.sleep(wait)
    return o.CreateMachineResponse(machine=record(x, need(x)))


async def initialize_machine(x):
    await log_in(x)
    cloud.execute("UPDATE instance SET initialized = 1 WHERE id = ? AND NOT initialized", (need(x)["id"],))
    return o.InitializeMachineResponse(machine=record(x, need(x)))


async def update_machine(x):
    await log_in(x)
    spec, row = await spec_of(x), need(x)
    last = json.loads(x.request.last_applied_spec_json or "{}")  # what an update in place brought there is no change
    if paths := [it for it in fixed(row, spec) if last.get(it[0]) != spec[it[0]]]:
        raise Failed("FAILED_PRECONDITION", "NOT_HOT_UPDATABLE", "this cannot change while it runs", paths=paths)
    have, own = json.loads(row["tags"]), json.loads(row["own_tags"])  # what is there, and what is there by us
    want = {key: tag for key, tag in have.items() if key not in own} | spec["tags"]  # tags of others stay
    if want != have:
        values = (json.dumps(want), json.dumps([*spec["tags"]]), row["id"])
        cloud.execute("UPDATE instance SET tags = ?, own_tags = ? WHERE id = ?", values)
    return o.UpdateMachineResponse(applied_paths=["tags"] if want != have else [])


async def delete_machine(x):
    await log_in(x)
    gone = cloud.execute("DELETE " + THIS, identity(x)).rowcount
    if other := not_ours(x):  # it is there, and not touched
        return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_NOT_OURS", **other)
    return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_" + ("DELETED" if gone else "WAS_ABSENT"))


async def get_machine_status(x):
    await log_in(x)
    return o.GetMachineStatusResponse(machine=record(x, need(x)))


async def list_machines(x):
    await log_in(x)
    rows = cloud.execute(f"SELECT * FROM instance WHERE {OURS} ORDER BY id", identity(x))
    return o.ListMachinesResponse(machines=[record(x, row) for row in rows])


async def get_volume_ids(x):
    csi = [json.loads(volume).get("csi") or {} for volume in x.request.pv_specs_json]
    return o.GetVolumeIdsResponse(volume_ids=[v["volumeHandle"] if v.get("driver") == PROVIDER else "" for v in csi])


async def validate_class(x):
    (new, wrong), (old, unreadable) = parse(x.request.provider_spec_json), parse(x.request.old_provider_spec_json)
    paths = [] if wrong or unreadable else [path for path, _ in fixed(old, new)]
    return o.ValidateClassResponse(
        violations=[o.FieldViolation(path=path, description=text) for path, text in wrong],
        change_is_hot_updatable=not wrong and not paths, not_hot_updatable_paths=paths,
        fixed_spec_sha256="" if wrong else digest({path: new[path] for path in FIXED}))


async def main():
    session = Session(PROVIDER, [create_machine, initialize_machine, update_machine, delete_machine, get_machine_status,
                                 list_machines, get_volume_ids, validate_class], knows=["PREVIOUS_CLUSTER_IDS"])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving = asyncio.create_task(session.serve())
    await stop.wait()
    await session.drain()
    await asyncio.wait([serving], timeout=1)  # for the core to end the stream


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main())
