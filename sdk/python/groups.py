"""The driver of driver.py with scaling groups: a method for each call on a group. This cloud has none of its own, so a group
is a row that says how many instances there are to be, and `fill` makes what lacks, as a real one does by itself."""

import json, sys, threading, time, uuid

import cloud
from driver import MAX_IN_FLIGHT, PROVIDER, Failed, fixed, identity, log_in, o, serve, spec_of
from driver import create_machine, delete_machine, get_machine_status, get_volume_ids, initialize_machine  # noqa: F401
from driver import list_machines, update_machine, validate_class  # noqa: F401: what `serve` finds here is offered

cloud.sql("CREATE TABLE IF NOT EXISTS pool (id PRIMARY KEY, cluster, uid, name, tags, desired, hash, spec, user_data,"
          " UNIQUE (cluster, uid))")
cloud.sql("CREATE TABLE IF NOT EXISTS member (id PRIMARY KEY, pool, number, hash)")  # an instance that a group made
filling = threading.Lock()


def members(pool):
    return cloud.sql("SELECT instance.*, number, hash FROM member JOIN instance USING (id) WHERE pool = ? ORDER BY number",
                     [pool["id"]])


def fill(pool):
    spec = json.loads(pool["spec"])
    tags = json.dumps({**json.loads(pool["tags"]), **spec["tags"]})
    for _ in range(pool["desired"] - len(members(pool))):
        key, ready = f"python:///{uuid.uuid4().hex}", time.time() + spec["bootSeconds"]
        cloud.sql("INSERT INTO member SELECT ?1, ?2, 1 + ifnull(max(number), 0), ?3 FROM member WHERE pool = ?2",
                  (key, pool["id"], pool["hash"]))
        # Of no machine: without UID and name, none finds it.
        cloud.make(key, pool["cluster"], None, "", spec["size"], spec["image"], tags, json.dumps([*spec["tags"]]),
                   pool["user_data"], ready, True)


def find(x):
    """The group, by the id that the core knows if the name fits, else by UID; an error if it is that of others."""
    who = identity(x)
    rows = cloud.sql(f"SELECT * FROM pool WHERE {cloud.OURS} AND (uid = :uid OR (id = :id AND name = :name))", who)
    if not rows and (other := not_ours(who)):
        raise Failed("FAILED_PRECONDITION", "NOT_OURS", "that group has other tags", **other)
    return rows[0] if rows else None


def not_ours(who):
    before = f":id = '' AND name = :name AND uid <> :uid AND {cloud.OURS} AND cluster <> :now"
    rows = cloud.sql(f"SELECT id, cluster FROM pool WHERE id = :id OR {before}", who)
    return {"provider_id": rows[0]["id"], "cluster_id": rows[0]["cluster"]} if rows else {}


def need(x):
    if pool := find(x):
        return pool
    raise Failed("NOT_FOUND", "NO_GROUP", "there is no such group")


def change(pool, **columns):
    names = ", ".join(f"{name} = :{name}" for name in columns)
    return cloud.sql(f"UPDATE pool SET {names} WHERE id = :id RETURNING *", {"id": pool["id"], **columns})[0]


def of(x, row):
    return row["cluster"] if row["cluster"] != x.op.cluster_id else ""


def shown(x, pool):
    return o.PoolRecord(provider_id=pool["id"], pool_name=pool["name"], pool_uid=pool["uid"], cluster_id=of(x, pool),
                        desired=pool["desired"], current=len(members(pool)), model_hash=pool["hash"])


def told(x, pool, row):
    boots = row["ready"] > time.time()
    machine = o.MachineRecord(
        provider_id=row["id"], node_name=f"{pool['name']}-{row['number']}", cluster_id=of(x, row), initialized=True,
        power_state="MACHINE_POWER_STATE_" + ("PENDING" if boots else "RUNNING"))
    state = "POOL_MACHINE_STATE_" + ("CREATING" if boots else "SUCCEEDED")
    return o.PoolMachineRecord(machine=machine, instance_id=str(row["number"]), state=state, model_hash=row["hash"])


def model(x):
    if x.request.model.zones:
        raise Failed("INVALID_ARGUMENT", "NO_ZONES", "this cloud has no zones", paths=[("failureDomains", "is not known")])
    return {"hash": x.request.model.hash, "spec": json.dumps(spec_of(x)), "user_data": x.request.model.bootstrap.user_data}


def create_pool(x):
    log_in(x)
    new, pool, op = model(x), find(x), x.op  # look first: this may be the second try
    if pool is None:
        cloud.sql("INSERT INTO pool VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  (f"python:///group-{uuid.uuid4().hex}", op.cluster_id, op.target.uid, op.target.name,
                   json.dumps(dict(x.request.tags)), x.request.desired, *new.values()))
        return o.CreatePoolResponse(pool=shown(x, need(x)))
    if (pool["cluster"], pool["uid"]) != (op.cluster_id, op.target.uid):  # a restored or moved cluster: adopt it
        for row in members(pool):
            cloud.change(row, cluster=op.cluster_id, tags=json.dumps({**cloud.tags(row), **x.request.tags}))
    tags = json.dumps(dict(x.request.tags))
    pool = change(pool, cluster=op.cluster_id, uid=op.target.uid, tags=tags, **new)
    return o.CreatePoolResponse(pool=shown(x, pool))


def size_changed(pool):
    return Failed("ABORTED", "SIZE_CHANGED", f"the size of the group is {pool['desired']}")


def update_pool(x):
    log_in(x)
    pool, q = need(x), x.request
    size = q.desired if q.HasField("desired") else pool["desired"]
    lowers_too_far = size < min(pool["desired"], len(members(pool)))  # that would take an instance
    if size != pool["desired"] and (q.expected_desired != pool["desired"] or lowers_too_far):
        raise size_changed(pool)
    return o.UpdatePoolResponse(pool=shown(x, change(pool, desired=size, **(model(x) if q.HasField("model") else {}))))


def delete_pool(x):
    log_in(x)
    try:
        pool = find(x)
    except Failed as failed:  # it is there, and not touched
        error = failed.error
        return o.DeletePoolResponse(
            outcome="DELETION_OUTCOME_NOT_OURS", provider_id=error.provider_id, cluster_id=error.cluster_id)
    if pool is None:
        return o.DeletePoolResponse(outcome="DELETION_OUTCOME_WAS_ABSENT")
    with filling:
        for table, column in (("instance", "id"), ("member", "id"), ("pool", "id")):
            which = "?" if table == "pool" else "SELECT id FROM member WHERE pool = ?"
            cloud.sql(f"DELETE FROM {table} WHERE {column} IN ({which})", [pool["id"]])
    return o.DeletePoolResponse(outcome="DELETION_OUTCOME_DELETED")


def get_pool_status(x):
    log_in(x)
    with filling:
        pool = need(x)
        fill(pool)
    machines = [told(x, pool, row) for row in members(pool)] if x.request.include_machines else []
    return o.GetPoolStatusResponse(pool=shown(x, pool), machines=machines)


def list_pools(x):
    log_in(x)
    return o.ListPoolsResponse(pools=[shown(x, it) for it in cloud.sql(
        f"SELECT * FROM pool WHERE {cloud.OURS} ORDER BY id", identity(x))])


def stranger(key):
    """Why an instance that is there is none of the group."""
    rows = cloud.sql("SELECT cluster FROM instance WHERE id = ?", [key])
    return rows and Failed("FAILED_PRECONDITION", "NOT_OURS", "that instance is of no such group", provider_id=key,
                           cluster_id=rows[0]["cluster"])


def delete_pool_machines(x):
    log_in(x)
    with filling:
        pool, q = need(x), x.request
        there = {row["id"] for row in members(pool)}
        left, size = [key for key in q.machine_provider_ids if key in there], pool["desired"]
        if left and size != q.new_desired:  # else it was lowered before
            if size != q.expected_desired or size - len(left) < q.new_desired:
                raise size_changed(pool)
            size -= len(left)
        strange = [(key, stranger(key)) for key in q.machine_provider_ids if key not in there]
        pool = change(pool, desired=size)
        for key in left:
            cloud.sql("DELETE FROM instance WHERE id = ?", [key])
    return o.DeletePoolMachinesResponse(pool=shown(x, pool), not_deleted=[
        o.PoolMachineFailure(machine_provider_id=key, error=failed.error) for key, failed in strange if failed])


def update_pool_machine(x):
    log_in(x)
    pool, q = need(x), x.request
    row = next((row for row in members(pool) if row["id"] == q.machine_provider_id), None)
    if row is None:
        raise stranger(q.machine_provider_id) or Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")
    if pool["hash"] != q.model_hash:
        raise Failed("ABORTED", "MODEL_CHANGED", f"the group has model {pool['hash']}")
    spec = json.loads(pool["spec"])
    paths = fixed(row, spec)
    if paths and not q.drained:
        raise Failed("FAILED_PRECONDITION", "NOT_HOT_UPDATABLE", "this cannot change while it runs", paths=paths)
    anew = {"size": spec["size"], "image": spec["image"], "user_data": pool["user_data"]} if paths else {}
    own = cloud.tags(row, "own_tags")
    tags = {key: tag for key, tag in cloud.tags(row).items() if key not in own} | spec["tags"]
    cloud.change(row, tags=json.dumps(tags), own_tags=json.dumps([*spec["tags"]]), **anew)
    cloud.sql("UPDATE member SET hash = ? WHERE id = ?", (pool["hash"], row["id"]))
    row = next(it for it in members(pool) if it["id"] == row["id"])
    return o.UpdatePoolMachineResponse(machine=told(x, pool, row))


if __name__ == "__main__":
    serve(sys.modules[__name__], PROVIDER, "0.1.0", MAX_IN_FLIGHT, ["PREVIOUS_CLUSTER_IDS"])
