"""Runs an unmodified cluster-autoscaler against `ostler up` with the fake driver. See README.md."""

import argparse, json, signal, sys, tempfile, time
from datetime import datetime

from cluster import MACHINES, PODS, POOLS, Cluster, until

KEY = "machine.sapcloud.io/cluster-api-autoscaler-node-group-"
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def class_(name, cpu="4", secret="fake", **spec):
    shape = {"capacity": {"cpu": cpu, "gpu": "0", "memory": "16Gi"}, "instanceType": name, "region": name, "zone": name,
             "architecture": "amd64"}
    given = {"region": name, "image": "linux-1", "nodeCapacity": {"cpu": cpu}, **spec}
    return {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": name, "namespace": "default"}, "provider": "fake.ostler.dev", "nodeTemplate": shape,
            "secretRef": {"name": secret, "namespace": "default"}, "providerSpec": given}


def secret(name, userData, namespace="default", kind="Opaque", **data):
    data = {"userData": f"{userData} --register-with-taints=node.machine.sapcloud.io/instance-not-ready=:NoSchedule", **data}
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name, "namespace": namespace},
            "stringData": data}


SECRETS = [
    secret("fake", "--hostname-override=<<MACHINE_NAME>> --token=<<BOOTSTRAP_TOKEN>>"),
    secret("pool", "--token=p00lex.0123456789abcdef"),
    secret("bootstrap-token-p00lex", "", "kube-system", "bootstrap.kubernetes.io/token", **{
        "token-id": "p00lex", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}),
]


def group(name, class_name, most, least=0, labels=None, taints=(), kind="MachineDeployment", replicas=0):
    pool = kind == "MachinePool"
    node = {"metadata": {"labels": {"group": name, **(labels or {})}}, "spec": {"taints": list(taints)}}
    template = {"metadata": {"labels": {"name": name}},
                "spec": {"class": {"kind": "MachineClass", "name": class_name}, "nodeTemplate": node}}
    spec = {"replicas": replicas, "template": template}
    if not pool:
        spec["selector"] = {"matchLabels": {"name": name}}
    if kind == "MachineDeployment":
        spec["strategy"] = ROLLING
    limits = {KEY + "min-size": str(least), KEY + "max-size": str(most)}
    return {"apiVersion": "ostler.dev/v1alpha1" if pool else "machine.sapcloud.io/v1alpha1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": "default", "annotations": limits}}


def pod(name, cpu, selector, owner=None):
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}}
    if owner:
        metadata["ownerReferences"] = [owner]
    requests = {"requests": {"cpu": str(cpu), "memory": "64Mi"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
        "nodeSelector": selector, "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "pause", "resources": requests}]}}


class Run:
    def __init__(self, cluster):
        self.cluster = cluster

    def say(self, text):
        print(f"{datetime.now():%H:%M:%S} {text}", flush=True)

    def machines(self, name):
        """The machines of a group, by the names of their Nodes."""
        all_ = self.cluster.items(f"{MACHINES}/machines")
        labels = lambda it: it["metadata"].get("labels", {})
        own = lambda it: labels(it).get("name") == name and not self.spare(it)
        return {labels(it).get("node", it["metadata"]["name"]) for it in all_ if own(it)}

    def spare(self, machine):
        return any(one["kind"] == "MachineReserve" for one in machine["metadata"].get("ownerReferences", []))

    def replicas(self, name, kind=f"{MACHINES}/machinedeployments"):
        return self.cluster.get(f"{kind}/{name}")["spec"]["replicas"]

    def node_of(self, name):
        return self.cluster.get(f"{PODS}/{name}")["spec"].get("nodeName")

    def running(self, *names):
        phases = {it["metadata"]["name"]: it["status"].get("phase") for it in self.cluster.items(PODS)}
        return all(phases.get(name) == "Running" for name in names)

    def delete(self, *names):
        self.cluster.kubectl("delete", "pod", *names, "--wait=true")

    def pods_run(self, what, *pods, seconds=120):
        self.cluster.apply(*pods)
        names = [it["metadata"]["name"] for it in pods]
        took = until(f"{names} run", lambda: self.running(*names), seconds)[1]
        self.say(f"{what}: pods run after {took:.1f} s")

    def from_zero(self):
        """Pods that do not fit make machines in a group of none, also behind a taint; the maximum holds."""
        self.pods_run("from 0 to 2", pod("a1", 3, {"group": "a"}), pod("a2", 3, {"group": "a"}))
        self.pods_run("from 2 to 3", pod("a3", 3, {"group": "a"}))
        self.cluster.apply(pod("a4", 3, {"group": "a"}))
        time.sleep(8)
        assert self.replicas("a") == 3 and not self.running("a4"), self.replicas("a")
        self.say("maximum: 3 stay 3, and the fourth pod waits")
        self.delete("a4")

    def idle(self):
        """Exactly the Nodes go that nobody needs: one is empty, the pod of the other moves."""
        self.delete("a2", "a3")
        keeps = self.node_of("a1")
        of = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "moves", "namespace": "default"}, "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "moves"}}, "template": {
                "metadata": {"labels": {"app": "moves"}}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}}}
        self.cluster.apply(of)
        uid = self.cluster.get("/apis/apps/v1/namespaces/default/replicasets/moves")["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "moves", "uid": uid, "controller": True}
        other = min(self.machines("a") - {keeps})
        moves = pod("moves", 0.5, {"group": "a"}, owner)
        self.cluster.apply({**moves, "spec": {**moves["spec"], "nodeName": other}})

        def again():
            names = {it["metadata"]["name"] for it in self.cluster.items(PODS)}
            if "moves" not in names:
                self.cluster.apply(moves)
            return self.machines("a") == {keeps}

        took = until("only the used machine is left", again, 180)[1]
        until("the pod moved", lambda: self.running("moves"))
        assert self.node_of("moves") == keeps and self.replicas("a") == 1 and self.running("a1")
        self.say(f"idle: two of three machines are gone after {took:.1f} s, the pod of one moved")
        self.cluster.kubectl("delete", "replicaset", "moves")
        self.delete("a1", "moves")
        took = until("the last one goes", lambda: not self.machines("a") and self.replicas("a") == 0, 180)[1]
        self.say(f"idle: to 0 after {took:.1f} s more")

    def quota(self):
        """A group whose quota is used up is left for another one, and loses what it could not have."""
        both = {"quota": "yes"}
        self.pods_run("quota, first", pod("q1", 1.5, both))
        assert self.replicas("scarce") == 1 and self.replicas("plenty") == 0
        self.cluster.apply(pod("q2", 1.5, both))
        until("the scarce group is asked", lambda: self.replicas("scarce") == 2)
        began = time.monotonic()
        until("another group takes over", lambda: self.replicas("plenty") == 1, 600)
        self.say(f"quota: another group after {time.monotonic() - began:.1f} s")
        until("the pod runs", lambda: self.running("q2"))
        took = until("its target is taken back", lambda: self.replicas("scarce") == 1, 600)[1]
        self.say(f"quota: the target of the first is taken back after {took:.1f} s more")
        self.delete("q1", "q2")
        until("both go", lambda: self.replicas("scarce") == 0 and self.replicas("plenty") == 0, 180)

    def pool(self):
        """A pool from 0, and back."""
        self.pods_run("pool, from 0 to 2", pod("p1", 3, {"group": "p"}), pod("p2", 3, {"group": "p"}))
        keeps = self.node_of("p1")
        self.delete("p2")
        until("only the used one is left", lambda: self.machines("p") == {keeps}, 180)
        assert self.replicas("p", f"{POOLS}/machinepools") == 1 and self.running("p1")
        self.delete("p1")
        until("none is left", lambda: not self.machines("p"), 180)
        self.say("pool: exactly the idle instance went, then the last")

    def set(self):
        """A MachineSet of no deployment, from 0 and back."""
        self.pods_run("set, from 0 to 1", pod("s1", 3, {"group": "s"}))
        self.delete("s1")
        until("none is left", lambda: not self.machines("s"), 180)
        self.say("set: back to 0")

    def beside(self):
        """A Machine of no set stops Gardener's autoscaler only in its own namespace, and as long as there is that Machine."""
        bare = {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": {"name": "bare", "namespace": "default"},
                "spec": {"class": {"kind": "MachineClass", "name": "plain"}}}
        elsewhere = json.dumps([SECRETS[0], class_("plain"), bare]).replace("default", "elsewhere").replace("bare", "other")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
        self.cluster.apply(group("a", "plain", 3, replicas=1), namespace, *json.loads(elsewhere))
        nodes = lambda: len(self.cluster.items("/api/v1/nodes"))
        until("both run", lambda: nodes() == 2)
        time.sleep(4)
        self.pods_run("beside a Machine of another namespace", *(pod(f"b{at}", 3, {"group": "a"}) for at in (1, 2)))
        self.cluster.apply(bare)
        until("it runs", lambda: nodes() == 4)
        time.sleep(4)
        self.cluster.apply(pod("b3", 3, {"group": "a"}))
        time.sleep(8)
        assert self.replicas("a") == 2, self.replicas("a")
        self.cluster.kubectl("delete", "machine", "bare")
        took = until("the pod runs", lambda: self.running("b3"))[1]
        self.say(f"beside: a Machine of no set stops all, and {took:.1f} s after it went the pod runs")

    def reserve(self):
        """With a driver that needs a minute, a pod runs within two seconds of the decision."""
        ready = lambda: self.cluster.get(f"{POOLS}/machinereserves/r").get("status", {}).get("readyReplicas") == 1
        until("the reserve is ready", ready, 240)
        time.sleep(4)
        self.cluster.apply(pod("r1", 3, {"group": "r"}))
        until("the pod runs", lambda: self.running("r1"))
        end = time.time()
        took = end - [at for at, _ in self.cluster.log(r"setting group .*r.* size to 1")][-1]
        self.say(f"reserve: the pod runs {took:.2f} s after the decision, on a machine that takes a minute to make")
        until("the reserve is filled again", ready, 240)
        most = self.replicas("r")
        self.delete("r1")
        until("the used one goes and the reserve stays", lambda: self.replicas("r") == 0 and ready(), 240)
        assert took < 2 and most == 1, f"{took:.2f} s, {most} machines"


    def taken(self):
        """One replica more, five times, with a reserve of five: the Node is open, on a machine that takes a minute to make."""
        target = group("t", "slow", 9)
        del target["metadata"]["annotations"]
        reserve = {"targetRef": {"kind": "MachineDeployment", "name": "t"}, "replicas": 5}
        self.cluster.apply(target, {"apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve", "spec": reserve,
                                    "metadata": {"name": "t", "namespace": "default"}})
        status = lambda: self.cluster.get(f"{POOLS}/machinereserves/t").get("status", {})
        until("the reserve is ready", lambda: status().get("readyReplicas") == 5, 240)

        def usable():
            nodes = self.cluster.items("/api/v1/nodes?labelSelector=group%3Dt")
            taints = lambda node: {it["key"] for it in node["spec"].get("taints", [])}
            return sum(not taints(node) for node in nodes)

        times = []
        for count in range(1, 6):
            scale = f"{MACHINES}/machinedeployments/t/scale"
            self.cluster.call("PATCH", scale, {"spec": {"replicas": count}}, "application/merge-patch+json")
            times.append(until("a Node is open", lambda: usable() == count, 30, 0.005)[1])
        until("each was counted", lambda: status()["given"] == 5)
        self.say("replicas + 1 until its Node is usable: " + ", ".join(f"{it * 1000:.0f} ms" for it in times))


def objects(provider):
    taint = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}
    yield from (*SECRETS, class_("plain"), class_("grouped", secret="pool"), class_("few", "2", capacity={"maxInstances": 1}))
    yield class_("slow", latency={"create": "60s"})
    # Any other machine in its namespace would stop Gardener's, and without a machine an old one knows no Node of a group.
    yield group("a", "plain", 3, taints=[taint], replicas=int(provider == "mcm"))
    if provider == "mcm":
        return
    yield group("scarce", "few", 5, labels={"quota": "yes"})
    yield group("plenty", "plain", 5, labels={"quota": "yes"})
    yield group("r", "slow", 3)
    yield {"apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve", "metadata": {"name": "r", "namespace": "default"},
           "spec": {"targetRef": {"kind": "MachineDeployment", "name": "r"}, "replicas": 1}}
    if provider == "externalgrpc":
        yield group("p", "grouped", 3, kind="MachinePool")
    else:
        yield group("s", "plain", 3, kind="MachineSet")


def main():
    scenarios = {"externalgrpc": "from_zero idle quota pool reserve", "clusterapi": "from_zero idle quota set reserve",
                 "mcm": "from_zero idle beside"}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("autoscaler", help="executable of cluster-autoscaler; - for none")
    parser.add_argument("--provider", choices=scenarios, default="externalgrpc")
    parser.add_argument("--ostler", default="target/debug/ostler")
    parser.add_argument("--folder", default=None, help="where logs are kept; a new one by default")
    parser.add_argument("--flag", action="append", default=[], help="one more of the autoscaler; repeatable")
    parser.add_argument("--record", help="keep what it asks and is answered in this file, one a line")
    parser.add_argument("scenario", nargs="*", help="all by default")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    folder = given.folder or tempfile.mkdtemp(prefix="autoscaler-")
    cluster, failed = Cluster(given.ostler, given.autoscaler, given.provider, folder), 0
    try:
        cluster.apply(*objects(given.provider))
        if given.record:
            file = open(given.record, "w")
            cluster.record(lambda step: print(json.dumps(step), file=file, flush=True))
        if given.autoscaler != "-":
            cluster.start_autoscaler(*given.flag)
        for name in given.scenario or scenarios[given.provider].split():
            try:
                getattr(Run(cluster), name)()
                print(f"{name}: as it should be", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
    finally:
        cluster.end()
        print(f"logs: {folder}")
    sys.exit(1 if failed else 0)


main()
