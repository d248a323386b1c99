"""`ostler up`, a cluster-autoscaler beside it, and a scheduler that is good enough for both."""

import datetime, json, re, subprocess, sys, threading, time, urllib.error, urllib.request
from pathlib import Path

import record

sys.path.append(str(Path(__file__).resolve().parent.parent))
from started import Started, free_address, until

PODS = "/api/v1/namespaces/default/pods"
MACHINES = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default"
POOLS = "/apis/ostler.dev/v1alpha1/namespaces/default"
FAST = [
    "--scan-interval=1s", "--scale-down-unneeded-time=6s", "--scale-down-delay-after-add=3s", "--max-node-provision-time=5m",
    "--unremovable-node-recheck-timeout=1s", "--expander=least-waste", "--leader-elect=false", "--address=127.0.0.1:0",
    "--namespace=default", "--v=4",
]


class Cluster(Started):
    """One folder, one API server, one core, one autoscaler."""

    def __init__(self, ostler, autoscaler, provider, folder):
        super().__init__(folder)
        self.autoscaler, self.provider, self.grpc = autoscaler, provider, free_address()
        self.start("up", [ostler, "up", "--no-live", "--namespace", "default,elsewhere", "--data-dir", str(self.folder / "up"),
                          "--autoscaler-listen", self.grpc, "--api-listen", free_address(), "--drivers-listen", free_address()])
        until("API server", self.serves)
        command = ["kubectl", "--kubeconfig", self.kubeconfig, "proxy", "--port=0"]
        self.running["proxy"] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = "http://" + self.running["proxy"].stdout.readline().split()[-1]

    def call(self, method, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def get(self, path):
        return self.call("GET", path)

    def items(self, path):
        return self.get(path)["items"]

    def record(self, keep):
        """What the autoscaler asks from now on is passed on, and kept."""
        if self.provider == "externalgrpc":
            self.grpc = record.grpc_proxy(self.grpc, keep)
        else:
            self.kubeconfig = str(self.folder / "recorded.kubeconfig")
            url = record.http_proxy(self.url, keep)
            Path(self.kubeconfig).write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}))

    def start_autoscaler(self, *more):
        """With short times; all else is as it is shipped."""
        config, env = self.kubeconfig, {"PATH": "/usr/bin", "CAPI_GROUP": "machine.sapcloud.io", "CAPI_VERSION": "v1alpha1",
                                        "CONTROL_NAMESPACE": "default", "CONTROL_KUBECONFIG": self.kubeconfig,
                                        "TARGET_KUBECONFIG": self.kubeconfig}
        if self.provider == "externalgrpc":
            config = str(self.folder / "externalgrpc.yaml")
            Path(config).write_text(f"address: {self.grpc}\n")
        elif self.provider == "mcm":
            more = ("--nodes=0:3:default.a", *more)
        else:
            # As in deploy/examples: it asks for the scale of each group a dozen times in a loop.
            discovers = "--node-group-auto-discovery=clusterapi:namespace=default"
            more = (discovers, "--kube-client-qps=50", "--kube-client-burst=100", *more)
        self.start("autoscaler", [self.autoscaler, f"--cloud-provider={self.provider}", f"--cloud-config={config}",
                                  f"--kubeconfig={self.kubeconfig}", *FAST, *more], env=env)
        threading.Thread(target=self.schedule, daemon=True).start()

    def log(self, pattern):
        """Lines of the autoscaler's log, each with its time."""
        text = (self.folder / "autoscaler.log").read_text(errors="replace")
        for line in text.splitlines():
            if re.search(pattern, line) and (stamp := re.match(r"[IWE](\d{4}) (\d\d:\d\d:\d\d\.\d{6})", line)):
                year = datetime.datetime.now(datetime.timezone.utc).year
                moment = datetime.datetime.strptime(f"{year}{stamp[1]} {stamp[2]}", "%Y%m%d %H:%M:%S.%f")
                yield moment.timestamp(), line

    # The scheduler: CPUs, selectors, taints.

    def schedule(self):
        while True:
            try:
                self.bind_all()
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.1)

    def bind_all(self):
        pods, nodes = self.items(PODS), self.items("/api/v1/nodes")
        for pod in pods:
            if "nodeName" in pod["spec"] or "deletionTimestamp" in pod["metadata"]:
                continue
            name = pod["metadata"]["name"]
            if node := next((node for node in nodes if fits(pod, node, pods)), None):
                target = {"kind": "Node", "name": node["metadata"]["name"]}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
                self.call("POST", f"{PODS}/{name}/binding", binding)
                pod["spec"]["nodeName"] = target["name"]
            elif not any(it["type"] == "PodScheduled" for it in pod.get("status", {}).get("conditions", [])):
                why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no Node has room"}
                patch = {"status": {"conditions": [why]}}
                self.call("PATCH", f"{PODS}/{name}/status", patch, "application/strategic-merge-patch+json")


def amount(cpu):
    return float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)


def cpus(pod):
    return sum(amount(it["resources"]["requests"]["cpu"]) for it in pod["spec"]["containers"])


def fits(pod, node, pods):
    name, labels, spec = node["metadata"]["name"], node["metadata"]["labels"], node["spec"]
    ready = any(it["type"] == "Ready" and it["status"] == "True" for it in node["status"].get("conditions", []))
    selected = all(labels.get(key) == value for key, value in pod["spec"].get("nodeSelector", {}).items())
    tolerated = {it.get("key") for it in pod["spec"].get("tolerations", [])}
    taints = {it["key"] for it in spec.get("taints", []) if it["effect"] != "PreferNoSchedule"}
    used = sum(cpus(one) for one in pods if one["spec"].get("nodeName") == name)
    room = amount(node["status"]["allocatable"]["cpu"]) - used >= cpus(pod)
    return ready and selected and taints <= tolerated and not spec.get("unschedulable") and room
