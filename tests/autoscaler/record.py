"""Writes down what an autoscaler asks and is answered, and makes the files of `recorded/` from it."""

import json, re, sys, tempfile, threading, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SERVICE = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"
PROTO = Path(__file__).parents[2] / "server/autoscaler/proto"
GROUP = "/apis/machine.sapcloud.io/v1alpha1"
# A MachineDeployment's Machine: `group-set-machine`. `uid`s, versions and times are others in each run.
MACHINE = re.compile(r"\b(?:[a-z]+)-[0-9a-z]{5,10}-[0-9a-z]{5}\b")
CHANGES = {"NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize", "PUT", "PATCH"}
# What `clusterapi` and Gardener's read of an object; the rest is not compared.
READ = {"spec": {"replicas": 0, "selector": 0}, "status": {"phase": 0, "failureMessage": 0},
        "kind": 0, "apiVersion": 0, "groupVersion": 0, "resources": [{"name": 0, "kind": 0, "verbs": 0}]}


def grpc_proxy(target, keep):
    """The address of a service that passes on each call, and keeps it."""
    import grpc
    from google.protobuf import json_format
    import grpc_tools
    from grpc_tools import protoc

    out, known = tempfile.mkdtemp(), Path(grpc_tools.__file__).parent / "_proto"
    protoc.main(["protoc", f"-I{PROTO}", f"-I{known}", f"--python_out={out}", *map(str, PROTO.glob("*.proto"))])
    sys.path.insert(0, out)
    import externalgrpc_pb2 as wire

    methods = {it.name: it for it in wire.DESCRIPTOR.services_by_name["CloudProvider"].methods}
    channel = grpc.insecure_channel(target)

    def read(kind, data):
        message = getattr(wire, kind.name).FromString(data)
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    class All(grpc.GenericRpcHandler):
        def service(self, call):
            name = call.method.rsplit("/", 1)[1]

            def passes(request, context):
                step = {"call": name, "request": read(methods[name].input_type, request)}
                try:
                    answer = channel.unary_unary(call.method)(request, timeout=10)
                    keep({**step, "answer": read(methods[name].output_type, answer)})
                    return answer
                except grpc.RpcError as error:
                    keep({**step, "error": error.code().name})
                    context.abort(error.code(), error.details())

            return grpc.unary_unary_rpc_method_handler(passes)

    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([All()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    grpc_proxy.server = server
    return f"127.0.0.1:{port}"


def http_proxy(target, keep):
    """The URL of a server that passes on each request, and keeps those about machines."""

    class Passes(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key: value for key, value in self.headers.items() if key in ("Accept", "Content-Type")}
            asked = urllib.request.Request(target + self.path, body or None, headers, method=self.command)
            try:
                answer = urllib.request.urlopen(asked, timeout=600)
            except urllib.error.HTTPError as error:
                answer = error
            watches, kept = "watch=" in self.path, b""
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type") or "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if watches and self.path.startswith(GROUP):
                keep({"method": "GET", "path": self.path, "status": answer.status})
            while data := answer.read1(65536):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                kept += b"" if watches else data
            self.wfile.write(b"0\r\n\r\n")
            if self.path.startswith(GROUP) and not watches:
                step = {"method": self.command, "path": self.path, "status": answer.status, "answer": json.loads(kept or b"null")}
                keep({**step, "body": json.loads(body)} if body else step)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passes)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def only(value, fields):
    if isinstance(fields, list):
        return [only(it, fields[0]) for it in value]
    if isinstance(fields, dict):
        return {key: only(value[key], it) for key, it in fields.items() if key in value}
    return value


def changed(old, new):
    """The merge patch from one object to another."""
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(old.get(key), dict)
        if old.get(key) != value:
            patch[key] = changed(old[key], value) if both else value
    return patch


def read_grpc(step, groups):
    """One step as the file has it; none if it is about another group."""
    of = lambda id_: id_.rsplit("/", 1)[1] in groups
    node = step["request"].get("node")
    for it in [node] if node else step["request"].get("nodes", []):
        it.pop("labels", None)
        it["annotations"] = {key: text for key, text in it.get("annotations", {}).items() if "fake" in key}
    answer = step.get("answer", {})
    if "nodeGroups" in answer:
        answer["nodeGroups"] = [it for it in answer["nodeGroups"] if of(it["id"])]
    states = [it["status"] for it in answer.get("instances", []) if "errorInfo" not in it["status"]]
    passing = {it["instanceState"] for it in states} & {"instanceCreating", "instanceDeleting"}
    answer.pop("nodeInfo", None)
    if "nodeBytes" in answer:
        answer["nodeBytes"] = "AAAA"  # Its maps are in any order.
    other = node and not re.search(rf"/({'|'.join(groups)})-|^fake:|{MACHINE.pattern}", node["name"])
    named = step["request"].get("id")
    return None if passing or other or named and not of(named) else step


def read_http(step, got, groups):
    path = step["path"].split("?")[0]
    if step["method"] == "GET" and "answer" in step:
        got[path] = step["answer"]
    if step["method"] == "PUT":
        step["change"] = changed(got[path], step.pop("body"))
        step["change"].get("metadata", {}).pop("resourceVersion", None)
    if "answer" in step:
        step["answer"] = only(step["answer"], READ)
        if step["answer"]["kind"] == "Scale":
            step["answer"]["spec"].setdefault("replicas", None)  # That of 0 is left out.
    about = re.search(r"/machine(?:deployments|sets)/([^/]+)", path)
    return None if about and about[1] not in groups else step


def short(steps, groups):
    """What is about some groups. Machines numbered as they came, and of equal questions between two changes the last; a mark
    and the scale are one."""
    ids, born = {}, {}
    for made in (step.get("answer", {}).get("metadata", {}) for step in steps):
        born[made.get("name")] = made.get("creationTimestamp", "")
    asked = [step.get("request", {}) for step in steps]
    for node in [node for it in asked for node in [it.get("node"), *it.get("nodes", [])]]:
        if node and not node["providerID"].startswith("ostler://"):
            ids[node["name"]] = node["providerID"]
    got, all_, gone, marks = {}, [], set(), False
    steps = [kept for step in steps if (kept := read_grpc(step, groups) if "call" in step else read_http(step, got, groups))]
    names = sorted(dict.fromkeys(MACHINE.findall(json.dumps(steps))), key=lambda name: born.get(name, ""))
    for step in steps:
        text = json.dumps(step)
        for at, name in enumerate(names):
            text = text.replace(ids.get(name) or name, f"{{id{at}}}" if name in ids else f"{{machine{at}}}")
            text = text.replace(name, f"{{machine{at}}}")
        kind = step.get("call", step.get("method"))
        if kind in CHANGES:
            marks = kind == "PUT"
            gone |= set(re.findall(r"\{(?:id|machine)\d\}", text)) if kind == "NodeGroupDeleteNodes" else set()
        elif marks or any(it in text for it in gone):
            continue
        all_.append((kind, json.loads(text)))
    found, seen = [], set()
    for kind, step in reversed(all_):
        question = json.dumps({key: value for key, value in step.items() if key not in ("answer", "error", "status")})
        if kind in CHANGES:
            seen = set()
        elif question in seen:
            continue
        seen.add(question)
        found.insert(0, step)
    return found


if __name__ == "__main__":
    steps = [json.loads(line) for line in sys.stdin]
    print("[\n" + ",\n".join(json.dumps(step) for step in short(steps, sys.argv[1:])) + "\n]")
