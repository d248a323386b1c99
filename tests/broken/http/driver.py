"""A driver for cloud.py that keeps the contract whatever the cloud does. The tests break it line by line."""

import datetime, http.client, json, os, sys, time, urllib.error, urllib.parse, urllib.request

from ostler_driver import Failed, o, serve

CLOUD = os.environ["CLOUD_URL"]


def call(x, method, path, body=None, token=None):
    """The answer of the cloud; None: it says that the thing of this id does not exist."""
    key = x.op.secret.get("apiKey", b"").decode()
    headers = {"Authorization": key, **({"Idempotency-Key": token} if token else {})}
    request = urllib.request.Request(CLOUD + path, json.dumps(body).encode() if body else None, headers, method=method)
    time_left = max(0.1, x.deadline - time.monotonic() - 0.2)
    before, x.left = x.left, x.left if method == "GET" else "UNKNOWN"
    try:
        with urllib.request.urlopen(request, timeout=time_left) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        if error.code < 500:  # refused: nothing was done
            x.left = before
        return refused(error)
    except (OSError, http.client.HTTPException, ValueError):
        raise Failed("UNAVAILABLE", "NO_ANSWER", "the cloud does not answer")
    if method != "GET":
        x.left = "PARTIAL"
    return answer


def refused(error):
    try:
        text = error.read().decode()
    except (OSError, http.client.HTTPException):
        text = ""
    if error.code == 404 and "no_such_thing" in text:
        return None
    if error.code in (401, 403):
        raise Failed("PERMISSION_DENIED", "REFUSED", "the cloud refuses")
    if error.code == 429:
        wait = datetime.timedelta(seconds=int(error.headers.get("Retry-After", 5)))
        raise Failed("RESOURCE_EXHAUSTED", "THROTTLED", "too many requests", retry_after=wait)
    if error.code in (404, 409):
        raise Failed("FAILED_PRECONDITION", "REFUSED", f"the cloud says {error.code}")
    raise Failed("UNAVAILABLE", "CLOUD_FAILED", f"the cloud says {error.code}")


def search(x, kind, **tags):
    found, page, more = [], 0, True
    while more:
        query = urllib.parse.urlencode({"cluster": x.op.cluster_id, **tags, "page": page})
        answer = call(x, "GET", f"/{kind}?{query}")
        found, page, more = found + answer["items"], page + 1, answer["more"]
    return found


def find(x):
    known = getattr(x.request, "provider_id", "").removeprefix("small:///")
    if known:
        server = call(x, "GET", f"/servers/{known}")
        return server if server and server["tags"]["uid"] == x.op.target.uid else None
    return next(iter(search(x, "servers", uid=x.op.target.uid)), None)


def need(x):
    if server := find(x):
        return server
    raise Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")


def record(server):
    return o.MachineRecord(
        provider_id=f"small:///{server['id']}", machine_name=server["tags"]["name"], machine_uid=server["tags"]["uid"],
        power_state="MACHINE_POWER_STATE_RUNNING", initialized=server["initialized"])


def create_machine(x):
    server = find(x)
    if server is None:
        spec = json.loads(x.op.machine_class.provider_spec_json)
        identity = {"cluster": x.op.cluster_id, "uid": x.op.target.uid, "name": x.op.target.name}
        body = {"tags": {**spec.get("tags", {}), **identity}}
        call(x, "POST", "/disks", body, f"{x.op.idempotency_key}:disk")
        server = call(x, "POST", "/servers", body, x.op.idempotency_key)
    return o.CreateMachineResponse(machine=record(server))


def initialize_machine(x):
    server = call(x, "PUT", f"/servers/{need(x)['id']}", {"initialized": True})
    return o.InitializeMachineResponse(machine=record(server))


def update_machine(x):
    server, want = need(x), json.loads(x.op.machine_class.provider_spec_json).get("tags", {})
    call(x, "PUT", f"/servers/{server['id']}", {"tags": {**server["tags"], **want}})
    return o.UpdateMachineResponse(applied_paths=["tags"])


def delete_machine(x):
    gone = False
    for kind in ("servers", "disks"):
        for it in search(x, kind, uid=x.op.target.uid):
            gone = call(x, "DELETE", f"/{kind}/{it['id']}") is not None or gone
    return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_" + ("DELETED" if gone else "WAS_ABSENT"))


def get_machine_status(x):
    return o.GetMachineStatusResponse(machine=record(need(x)))


def list_machines(x):
    return o.ListMachinesResponse(machines=[record(it) for it in search(x, "servers")])


def find_group(x):
    known = getattr(x.request, "provider_id", "").removeprefix("small:///")
    if known:
        group = call(x, "GET", f"/groups/{known}")
        return group if group and group["tags"]["uid"] == x.op.target.uid else None
    return next(iter(search(x, "groups", uid=x.op.target.uid)), None)


def need_group(x):
    if group := find_group(x):
        return group
    raise Failed("NOT_FOUND", "NO_GROUP", "there is no such group")


def members(x, group):
    return {f"small:///{it['id']}": it for it in search(x, "members", group=group["id"])}


def shown(x, group):
    return o.PoolRecord(
        provider_id=f"small:///{group['id']}", pool_name=group["tags"]["name"], pool_uid=group["tags"]["uid"],
        desired=group["size"], current=len(members(x, group)), model_hash=group["model"])


def told(key, member):
    machine = o.MachineRecord(
        provider_id=key, node_name=member["id"], initialized=True, power_state="MACHINE_POWER_STATE_RUNNING")
    return o.PoolMachineRecord(
        machine=machine, instance_id=member["id"], state="POOL_MACHINE_STATE_SUCCEEDED", model_hash=member["model"])


def make_model(x):
    tags = {"cluster": x.op.cluster_id, "uid": x.op.target.uid, "name": x.op.target.name, **x.request.tags}
    call(x, "POST", "/models", {"tags": tags}, f"{x.op.idempotency_key}:model")
    return tags


def create_pool(x):
    group = find_group(x)
    if group is None:
        body = {"tags": make_model(x), "size": x.request.desired, "model": x.request.model.hash}
        group = call(x, "POST", "/groups", body, x.op.idempotency_key)
    return o.CreatePoolResponse(pool=shown(x, group))


def size_changed(group):
    return Failed("ABORTED", "SIZE_CHANGED", f"the size of the group is {group['size']}")


def update_pool(x):
    group, q = need_group(x), x.request
    size = q.desired if q.HasField("desired") else group["size"]
    if size != group["size"] and (q.expected_desired != group["size"] or size < group["size"]):
        raise size_changed(group)
    model = q.model.hash if q.HasField("model") else group["model"]
    if (size, model) != (group["size"], group["model"]):
        group = call(x, "PUT", f"/groups/{group['id']}", {"size": size, "model": model})
    return o.UpdatePoolResponse(pool=shown(x, group))


def delete_pool(x):
    gone = False
    for kind in ("groups", "models"):
        for it in search(x, kind, uid=x.op.target.uid):
            gone = call(x, "DELETE", f"/{kind}/{it['id']}") is not None or gone
    return o.DeletePoolResponse(outcome="DELETION_OUTCOME_" + ("DELETED" if gone else "WAS_ABSENT"))


def get_pool_status(x):
    group = need_group(x)
    machines = [told(*it) for it in members(x, group).items()]
    return o.GetPoolStatusResponse(pool=shown(x, group), machines=machines)


def list_pools(x):
    return o.ListPoolsResponse(pools=[shown(x, it) for it in search(x, "groups")])


def delete_pool_machines(x):
    group, q = need_group(x), x.request
    there = members(x, group)
    left = [key for key in q.machine_provider_ids if key in there]
    lower = "?lower" if q.new_desired < q.expected_desired else ""
    if left and lower and group["size"] - len(left) != q.new_desired:
        raise size_changed(group)
    for key in left:
        call(x, "DELETE", f"/members/{there[key]['id']}{lower}")
    return o.DeletePoolMachinesResponse(pool=shown(x, need_group(x)))


def update_pool_machine(x):
    group, q = need_group(x), x.request
    member = members(x, group).get(q.machine_provider_id)
    if member is None:
        raise Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")
    if group["model"] != q.model_hash:
        raise Failed("ABORTED", "MODEL_CHANGED", f"the group has model {group['model']}")
    member = call(x, "PUT", f"/members/{member['id']}", {"model": group["model"]})
    return o.UpdatePoolMachineResponse(machine=told(q.machine_provider_id, member))


if __name__ == "__main__":
    serve(sys.modules[__name__], "small.ostler.dev", "0.1.0")
