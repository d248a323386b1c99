"""A small cloud over HTTP in memory: servers, and disks that a server does not take with it; groups with their members, and
models that a group does not take with it. Its lists have pages of two.

    cloud.py serve     listens, and prints its address
    cloud.py WORD …    what the suite asks of a cloud at CLOUD_URL: "Reading the cloud" in sdk/conformance/README.md
"""

import json, os, sys, threading, urllib.parse, urllib.request, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = 2
lock, tokens, things = threading.Lock(), {}, {kind: {} for kind in ("servers", "disks", "groups", "members", "models")}


def fill(group):
    """Makes the members that a group lacks."""
    own = [it for it in things["members"].values() if it["tags"]["group"] == group["id"]]
    for _ in range(group["size"] - len(own)):
        key = f"m-{uuid.uuid4().hex}"
        tags = {**group["tags"], "group": group["id"]}
        things["members"][key] = {"id": key, "tags": tags, "model": group["model"]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(self.path)
        words, query = url.path.strip("/").split("/"), dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        with lock:
            status, answer = self.answer(words, query, json.loads(body or b"{}"))
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = do

    def answer(self, words, query, body):
        kind, rest = things[words[0]], words[1:]
        if self.headers.get("Authorization", "").startswith("invalid"):
            return 401, {"error": "unauthorized"}
        if self.command == "POST" and not rest:
            token = self.headers["Idempotency-Key"]
            if token not in tokens or tokens[token] not in kind:
                tokens[token] = f"{words[0][0]}-{len(tokens) + 1}"
                kind[tokens[token]] = {"id": tokens[token], "initialized": False, **body}
                if words[0] == "groups":
                    fill(kind[tokens[token]])
            return 201, kind[tokens[token]]
        if not rest:
            page = int(query.pop("page", 0))
            found = [it for it in kind.values() if all(it["tags"].get(key) == value for key, value in query.items())]
            return 200, {"items": found[page * PAGE:][:PAGE], "more": len(found) > (page + 1) * PAGE}
        if rest[0] not in kind:
            return 404, {"error": "no_such_thing"}
        if self.command == "DELETE":
            if words[0] == "groups":
                for key in [it["id"] for it in things["members"].values() if it["tags"]["group"] == rest[0]]:
                    things["members"].pop(key)
            elif "lower" in query:  # a member, and the size of its group in the same moment
                things["groups"][kind[rest[0]]["tags"]["group"]]["size"] -= 1
            return 200, kind.pop(rest[0])
        if self.command == "PUT":
            kind[rest[0]].update(body)
            if words[0] == "groups":
                fill(kind[rest[0]])
        return 200, kind[rest[0]]

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):  # one whose client has gone
        pass


def serve():
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def everything(kind):
    page, more = 0, True
    while more:
        answer = json.load(urllib.request.urlopen(f"{os.environ['CLOUD_URL']}/{kind}?page={page}"))
        page, more = page + 1, answer["more"]
        yield from answer["items"]


def instances():
    return [{"providerId": f"small:///{it['id']}", "name": it["tags"]["name"], "uid": it["tags"]["uid"],
             "clusterId": it["tags"]["cluster"], "tags": it["tags"]} for kind in ("servers", "members") for it in everything(kind)]


def resources():
    return [{"id": it["id"], "kind": kind, "uid": it["tags"]["uid"], "clusterId": it["tags"]["cluster"]}
            for kind in things for it in everything(kind)]


if __name__ == "__main__":
    words = {"instances": instances, "resources": resources}
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] not in words:
        sys.exit(f"cloud.py knows serve, {', '.join(words)}")
    else:
        print(json.dumps(words[sys.argv[1]]()))
