"""Runs kube-scheduler, kube-controller-manager and a kubelet, unmodified, beside `ostler up`. See README.md."""

import argparse, json, os, signal, sys, tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from started import Started, free_address, until

FAKE = Path(__file__).resolve().parent.parent.parent / "deploy/examples/fake"
TOKEN = ("abcdef", "0123456789abcdef")
SELECTOR = {"app": "agent"}


def say(what, ask, seconds=120):
    answer, took = until(what, ask, seconds)
    print(f"{what}: {took:.1f} s", flush=True)
    return answer


def workload(kind, **spec):
    template = {"metadata": {"labels": SELECTOR}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": kind.lower()},
            "spec": {"selector": {"matchLabels": SELECTOR}, "template": template, **spec}}


class Place(Started):
    def __init__(self, ostler, parts, folder, theirs):
        super().__init__(folder)
        self.parts = parts
        lifecycle = ["--node-grace", "0"] if theirs else []
        self.start("up", [ostler, "up", "--no-live", "--data-dir", str(self.folder / "up"), "--apply", str(FAKE), *lifecycle,
                          *(word for flag in ("--api-listen", "--drivers-listen", "--autoscaler-listen") for word in (flag, free_address()))])
        say("API server", self.serves)
        say("three Nodes", lambda: len(self.names("nodes")) == 3)
        self.part("kube-scheduler")
        self.part("kube-controller-manager", "--controllers=*" if theirs else "--controllers=*,-node-lifecycle-controller")

    def part(self, name, *flags):
        port = free_address().split(":")[1]
        self.start(name, [self.parts, name, f"--kubeconfig={self.kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}",
                          "--authentication-skip-lookup", *flags])

    def items(self, kind, *more):
        return json.loads(self.kubectl("get", kind, "-o", "json", *more))["items"]

    def names(self, kind):
        return [it["metadata"]["name"] for it in self.items(kind)]

    def status(self, kind, name):
        return json.loads(self.kubectl("get", kind, name, "-o", "json")).get("status", {})

    def ready(self, name):
        conditions = {it["type"]: it["status"] for it in self.status("node", name).get("conditions", [])}
        return conditions.get("Ready")

    def web(self):
        """Thirty pods run, on each of our Nodes; a rollout, a budget and a drain go together."""
        self.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=30")
        say("30 pods run", lambda: self.status("deployment", "web").get("availableReplicas") == 30)
        nodes = {it["spec"]["nodeName"] for it in self.items("pods", "--selector=app=web")}
        assert nodes == set(self.names("nodes")), nodes
        self.kubectl("expose", "deployment", "web", "--port=80")
        say("30 endpoints", lambda: sum(len(it["endpoints"] or []) for it in self.items("endpointslices")) == 30)
        self.kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=15")
        say("a budget", lambda: self.status("pdb", "web").get("disruptionsAllowed") == 15)
        self.kubectl("drain", min(nodes), "--ignore-daemonsets", "--timeout=120s")
        say("30 pods run elsewhere", lambda: self.status("deployment", "web").get("availableReplicas") == 30)
        assert not [it for it in self.items("pods", "--selector=app=web") if it["spec"]["nodeName"] == min(nodes)]
        self.kubectl("uncordon", min(nodes))
        self.kubectl("rollout", "restart", "deployment/web")
        self.kubectl("rollout", "status", "deployment/web", "--timeout=180s")

    def others(self):
        """The other workloads have their pods, and revisions to go back to."""
        self.apply(workload("DaemonSet"), workload("StatefulSet", replicas=2, serviceName="db"))
        say("a pod on each Node", lambda: self.status("daemonset", "daemonset").get("numberReady") == 3)
        say("two in order", lambda: self.status("statefulset", "statefulset").get("readyReplicas") == 2)
        self.kubectl("create", "job", "hello", "--image=busybox", "--", "echo")
        say("a job's pod", lambda: self.status("job", "hello").get("active") == 1)
        assert "daemonset.apps/daemonset" in self.kubectl("get", "controllerrevisions")

    def silent(self):
        """Kubelets of which nothing is heard: their Nodes are unreachable, and come back."""
        text = (self.folder / "up.log").read_text()
        driver = int(text.split("driver fake started, process ")[1].split()[0])
        os.kill(driver, signal.SIGSTOP)
        try:
            say("Nodes are unreachable", lambda: all(self.ready(it) == "Unknown" for it in self.names("nodes")), 180)
        finally:
            os.kill(driver, signal.SIGCONT)
        say("Nodes are ready", lambda: all(self.ready(it) == "True" for it in self.names("nodes")))

    def kubelet(self, socket):
        """A stock kubelet joins with a token, and runs what it is given: host network, an image that is there."""
        identity, secret = TOKEN
        data = {"token-id": identity, "token-secret": secret, "usage-bootstrap-authentication": "true"}
        self.apply({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token", "stringData": data,
                    "metadata": {"name": f"bootstrap-token-{identity}", "namespace": "kube-system"}})
        config = json.loads(self.kubectl("config", "view", "--raw", "-o", "json"))
        config["users"][0]["user"] = {"token": f"{identity}.{secret}"}
        boot, settings = self.folder / "boot", self.folder / "kubelet.yaml"
        boot.write_text(json.dumps(config))
        port, health = (int(free_address().split(":")[1]) for _ in range(2))
        settings.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": "127.0.0.1", "port": port,
            "healthzPort": health, "cgroupDriver": "cgroupfs", "failSwapOn": False, "failCgroupV1": False, "cgroupsPerQOS": False,
            "makeIPTablesUtilChains": False, "localStorageCapacityIsolation": False, "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": f"unix://{socket}", "authentication": {"webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}}))
        root = self.folder / "kubelet"
        self.start("kubelet", [self.parts, "kubelet", f"--config={settings}", f"--bootstrap-kubeconfig={boot}", f"--root-dir={root}",
                               f"--kubeconfig={root}/kubeconfig", f"--cert-dir={root}/pki", "--hostname-override=stock"])
        say("a stock kubelet's Node is ready", lambda: "stock" in self.names("nodes") and self.ready("stock") == "True")
        spec = {"hostNetwork": True, "restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": "stock"},
                "containers": [{"name": "c", "image": "pause:1", "imagePullPolicy": "Never", "command": ["/bin/busybox", "true"]}]}
        self.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "real"}, "spec": {"template": {"spec": spec}}})
        say("a job ends on it", lambda: self.status("job", "real").get("succeeded") == 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", help="the program of this folder")
    parser.add_argument("--ostler", default="target/debug/ostler")
    parser.add_argument("--their-node-lifecycle", action="store_true", help="kube-controller-manager looks after silent Nodes")
    parser.add_argument("--cri", help="a socket of containerd with an image pause:1 that has /bin/busybox: a kubelet, too")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="beside-")
    place = None
    try:
        place = Place(str(Path(given.ostler).resolve()), given.parts, folder, given.their_node_lifecycle)
        place.web()
        place.others()
        place.silent()
        if given.cri:
            place.kubelet(given.cri)
    finally:
        if place:
            place.end()
        print(f"logs: {folder}")


main()
