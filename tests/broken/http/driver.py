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


if __name__ == "__main__":
    serve(sys.modules[__name__], "small.ostler.dev", "0.1.0")
