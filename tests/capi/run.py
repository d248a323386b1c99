"""Runs Cluster API, unmodified, on `ostler up`, with Machines of sdk/go/capi. See docs/cluster-api.md."""

import argparse, base64, json, os, signal, ssl, subprocess, sys, tempfile, time, urllib.request
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import started
from started import Started, free_address

VERSION = "v1.14.2"
MODULE = "sigs.k8s.io/cluster-api"
PROGRAMS = {"core": f"{MODULE}/core", "kubeadm": f"{MODULE}/bootstrap/kubeadm", "docker": f"{MODULE}/test/infrastructure/docker"}
KINDS = {"core": (MODULE, "core"), "kubeadm": (MODULE, "bootstrap/kubeadm"), "docker": (f"{MODULE}/test", "infrastructure/docker")}
OURS, THEIRS = "machines.machine.sapcloud.io", "machines.cluster.x-k8s.io"
DEPLOYMENT = "machinedeployments.machine.sapcloud.io"
MADE = [THEIRS, "devmachines", "kubeadmconfigs"]
HOT = "node.cluster.x-k8s.io/team"


def say(text):
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


def until(what, ask, seconds=120):
    """The first answer of `ask` that is true; says how long it took."""
    answer, took = started.until(what, ask, seconds, 0.1)
    say(f"{what}: {took:.1f} s")
    return answer


def template(kind, name, group="infrastructure", **more):
    return {"apiGroup": f"{group}.cluster.x-k8s.io", "kind": kind, "name": name, **more}


def class_(name, infrastructure=None, secret="capi", labels=None):
    spec = {"clusterName": "one", "infrastructureTemplateRef": infrastructure or template("DevMachineTemplate", name),
            "bootstrapTemplateRef": template("KubeadmConfigTemplate", "workers", "bootstrap"), "version": "v1.36.1"}
    return {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": name, "namespace": "default"},
            "provider": "capi.ostler.dev", "secretRef": {"name": secret, "namespace": "default"},
            "providerSpec": {**spec, **({"labels": labels} if labels else {})}}


def machine(name, class_name, **spec):
    return {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": name, "namespace": "default"},
            "spec": {"class": {"kind": "MachineClass", "name": class_name}, **spec}}


def deployment(class_name, replicas):
    return {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "five", "namespace": "default"}, "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"of": "five"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": {"of": "five"}}, "spec": machine("", class_name)["spec"]}}}


class Place(Started):
    """One folder with an API server, the core, the driver, Cluster API's core and two of its providers."""

    def __init__(self, ostler, binaries, folder):
        super().__init__(folder)
        # It writes down its process, so that exactly that one is killed.
        driver = self.folder / "driver.sh"
        driver.write_text(f"#!/bin/sh\necho $$ > {folder}/driver.pid\nCAPI_KUBECONFIG={self.kubeconfig} exec {binaries}/capi\n")
        driver.chmod(0o755)
        self.api, self.drivers = free_address(), free_address()
        certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=webhooks", "-days", "2",
                       "-keyout", self.folder / "tls.key", "-out", self.folder / "tls.crt"]
        subprocess.run(certificate, check=True, capture_output=True)
        health, metrics, webhooks = ({name: free_address() for name in PROGRAMS} for _ in range(3))
        self.commands = {name: [f"{binaries}/{name}", "--kubeconfig", self.kubeconfig, "--leader-elect=false",
                                "--health-addr", health[name], "--diagnostics-address", metrics[name],
                                "--webhook-cert-dir", str(self.folder), "--webhook-port", webhooks[name].split(":")[1]]
                         for name in PROGRAMS}
        self.commands["up"] = [
            ostler, "up", "--no-live", "--data-dir", str(self.folder / "up"), "--target", "none", "--api-listen", self.api,
            "--drivers-listen", self.drivers, "--autoscaler-listen", free_address(), "--driver", f"capi.ostler.dev={driver}"]
        self.launch("up")
        until("API server", self.serves)

    def launch(self, *names):
        for name in names:
            env = {**os.environ, "POD_IP": "127.0.0.1", "POD_NAMESPACE": "default"}
            self.start(name, self.commands[name], env=env, start_new_session=True)

    def kill(self, *names):
        """SIGKILL, and another process in its place; `up` starts the driver again by itself."""
        for name in names:
            if name in self.running:
                self.running[name].kill()
                self.running[name].wait()
            else:
                until(f"a process of {name}", lambda: self.end_by_number(name))
        self.launch(*(name for name in names if name in self.running))
        say(f"SIGKILL of {', '.join(names)}")

    def end_by_number(self, name):
        """False: the process that wrote its number has gone, and the next one has not begun."""
        try:
            os.kill(int((self.folder / f"{name}.pid").read_text()), signal.SIGKILL)
        except (ProcessLookupError, ValueError):
            return False
        return True

    def instead(self, *flags):
        """`up` with other flags, in the place of the one that runs; without flags as at first."""
        self.running["up"].terminate()
        self.running["up"].wait()
        first = self.commands["up"]
        cut = first.index("--driver")
        self.commands["up"] = [*first[:cut], *flags] if flags else first
        self.launch("up")
        self.commands["up"] = first
        until("API server", self.serves)

    def check(self):
        """What `ostler migrate check` reports."""
        command = [self.commands["up"][0], "migrate", "check", "--kubeconfig", self.kubeconfig, "-n", "default",
                   "--driver", self.commands["up"][-1]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def get(self, kind, name):
        return json.loads(self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found") or "null")

    def all(self, kind):
        """Names and objects, but for the control plane."""
        items = json.loads(self.kubectl("get", kind, "-o", "json") or '{"items": []}')["items"]
        return {it["metadata"]["name"]: it for it in items if it["metadata"]["name"] != "control"}

    def patch(self, kind, name, body):
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(body))

    def ask(self, program, path, made):
        """The answer of a webhook to the creation of this object."""
        group, version = made["apiVersion"].split("/")
        request = {"uid": "1", "operation": "CREATE", "name": made["metadata"]["name"], "namespace": "default", "object": made,
                   "kind": {"group": group, "version": version, "kind": made["kind"]}, "userInfo": {"username": "driver"}}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        port = self.commands[program][self.commands[program].index("--webhook-port") + 1]
        call = urllib.request.Request(f"https://127.0.0.1:{port}{path}", json.dumps(review).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=30, context=ssl._create_unverified_context()) as answer:
            return json.load(answer)["response"]

    def kinds(self, name):
        """The definitions of a program, with the label by which Cluster API finds the version of its contract."""
        module, folder = KINDS[name]
        found = json.loads(subprocess.run(["go", "mod", "download", "-json", f"{module}@{VERSION}"], check=True,
                                          capture_output=True, text=True).stdout)["Dir"]
        files = f"{found}/{folder}/config/crd/bases"
        self.kubectl("apply", "--server-side", "-f", files)
        self.kubectl("label", "--overwrite", "-f", files, "cluster.x-k8s.io/v1beta2=v1beta2")


class Run:
    def __init__(self, place):
        self.place = place

    def said(self, name):
        """What the status of a Machine says. A failure is in its conditions also while the driver tries again."""
        status = (self.place.get(OURS, name) or {}).get("status", {})
        texts = [it.get("message", "") for it in status.get("conditions", [])]
        return " ".join([status.get("lastOperation", {}).get("description", ""), *texts])

    def says(self, name, *words, seconds=60):
        until(f"{name} says {' … '.join(words)!r}", lambda: all(word in self.said(name) for word in words), seconds)

    def available(self, count):
        status = (self.place.get(DEPLOYMENT, "five") or {}).get("status", {})
        return status.get("availableReplicas") == count and status.get("updatedReplicas") == count and status.get("replicas") == count

    def counts(self, count):
        """Nothing is doubled, and nothing is left: each Machine has one object of each kind, of its name."""
        names = set(self.place.all(OURS))
        return len(names) == count and all(set(self.place.all(kind)) == names for kind in MADE)

    def is_gone(self, name):
        self.place.kubectl("delete", OURS, name, "--wait=false")
        until(f"{name} is gone", lambda: not self.place.get(OURS, name) and not any(name in self.place.all(it) for it in MADE))

    def early(self):
        """A kind that is not served yet is named; the Machine runs when it is."""
        objects = (HERE / "objects.yaml").read_text()
        self.place.kubectl("apply", "-f", "-", given=objects.split("---")[0])
        self.place.apply(class_("workers"), machine("early", "workers"))
        self.says("early", "does not serve")
        self.place.kinds("docker")
        self.place.kubectl("apply", "-f", "-", given=objects)
        self.place.launch("docker")
        until("early runs", lambda: self.phase("early") == "Available", 180)
        self.is_gone("early")

    def phase(self, name):
        return (self.place.get(OURS, name) or {}).get("status", {}).get("currentStatus", {}).get("phase")

    def five(self):
        self.place.apply(class_("workers"), class_("others"), deployment("workers", 5))
        until("five Machines run", lambda: self.available(5) and self.counts(5))

    def webhooks(self):
        """The API server calls no webhooks. Those of Cluster API are asked here: they take what the driver made."""
        for program, kind, hooks in (("core", THEIRS, "mv"), ("docker", "devmachines", "mv"), ("kubeadm", "kubeadmconfigs", "v")):
            made = min(self.place.all(kind).items())[1]
            group, version = made["apiVersion"].split("/")
            path = f"{group.replace('.', '-')}-{version}-{made['kind'].lower()}"
            for hook in ({"m": "mutate", "v": "validate"}[it] for it in hooks):
                answer = self.place.ask(program, f"/{hook}-{path}", made)
                assert answer["allowed"], answer
                patch = base64.b64decode(answer.get("patch", "")).decode()
                say(f"webhook {hook} of {made['kind']}: allowed{', and adds ' + patch if patch else ''}")

    def lost(self):
        """The infrastructure object of one goes behind our back."""
        name = min(self.place.all(OURS))
        self.place.kubectl("delete", "devmachine", name, "--wait=false")
        until("the lost one is replaced", lambda: name not in self.place.all(OURS) and self.available(5) and self.counts(5))

    def hot(self):
        before = {name: it["metadata"]["uid"] for name, it in self.place.all(THEIRS).items()}
        self.place.apply(class_("workers", labels={HOT: "mews"}))
        labelled = lambda kind: all(it["metadata"]["labels"].get(HOT) == "mews" for it in self.place.all(kind).values())
        until("a hot label is on all Machines and clones", lambda: all(map(labelled, MADE)))
        assert before == {name: it["metadata"]["uid"] for name, it in self.place.all(THEIRS).items()}, "one was replaced"

    def rolled(self):
        """Another template, with SIGKILL of everything but the cloud; that is in the memory of its provider."""
        self.place.apply(deployment("others", 5))
        until("the rollout has begun", lambda: len(self.place.all("devmachines")) > 5)
        for name in ("up", "driver", "core", "kubeadm"):
            self.place.kill(name)
            time.sleep(2)
        until("the rollout is over", lambda: self.available(5) and self.counts(5), 300)
        of = {it["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"] for it in self.place.all("devmachines").values()}
        assert of == {"others"}, of

    def provider(self):
        """SIGKILL of the infrastructure provider, three times, amid five creations."""
        self.place.apply(deployment("others", 10))
        for count in (6, 8, 10):
            until(f"{count} clones", lambda: len(self.place.all("devmachines")) >= count)
            self.place.kill("docker")
        until("ten Machines run", lambda: self.available(10) and self.counts(10), 300)

    def deleted(self):
        self.place.kubectl("delete", DEPLOYMENT, "five", "--wait=false")
        until("nothing is left", lambda: self.counts(0), 300)
        left = [name for name in self.place.all("secrets") if name.startswith("five-")]
        assert not left, left

    def refused(self):
        """What can never be is refused; what may come is named, and goes on."""
        foreign = template("DevMachineTemplate", "workers", namespace="kube-system")
        self.place.apply(class_("foreign", foreign), machine("foreign", "foreign"))
        self.says("foreign", "namespace must be left out")
        self.place.apply(class_("absent"), machine("absent", "absent"))
        self.says("absent", "there is no DevMachineTemplate absent")
        for name in ("foreign", "absent"):
            self.is_gone(name)
            self.place.kubectl("delete", "machineclass", name)

    def paused(self):
        self.place.patch("clusters.cluster.x-k8s.io", "one", {"spec": {"paused": True}})
        self.place.apply(machine("paused", "workers"))
        self.says("paused", "Cluster one is paused")
        assert "paused" not in self.place.all(THEIRS)
        self.place.patch("clusters.cluster.x-k8s.io", "one", {"spec": {"paused": False}})
        until("paused runs", lambda: self.phase("paused") == "Available", 180)
        self.place.patch("clusters.cluster.x-k8s.io", "one", {"spec": {"paused": True}})
        self.place.kubectl("delete", OURS, "paused", "--wait=false")
        self.says("paused", "Cluster one is paused")
        self.place.patch("clusters.cluster.x-k8s.io", "one", {"spec": {"paused": False}})
        until("paused is gone", lambda: not self.place.get(OURS, "paused") and self.counts(0), 180)

    def never(self):
        """A provider that is never ready ends with the creation timeout; a foreign finalizer is named, and waited for."""
        self.place.apply(class_("never"), machine("never", "never", creationTimeout="50s"))
        until("never has its three objects", lambda: self.counts(1))
        self.says("never", "waits for Cluster API: phase Provisioning")
        until("the creation timeout", lambda: self.phase("never") == "Failed")
        held = self.place.get("devmachine", "never")["metadata"]["finalizers"] + ["example.com/backup"]
        self.place.patch("devmachine", "never", {"metadata": {"finalizers": held}})
        self.place.kubectl("delete", OURS, "never", "--wait=false")
        self.says("never", "DevMachine never", "example.com/backup")
        self.place.patch("devmachine", "never", {"metadata": {"finalizers": []}})
        until("never is gone", lambda: self.counts(0))

    def rights(self):
        """A missing right is named, and asked for seldom. The account has none: this API server knows no roles of users."""
        self.place.kubectl("create", "serviceaccount", "little")
        config = json.loads(self.place.kubectl("config", "view", "--raw", "-o", "json"))
        authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
        self.place.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "little", "namespace": "default"},
                          "data": {"ca.crt": authority},
                          "stringData": {"server": f"https://{self.place.api}", "namespace": "default",
                                         "token": self.place.kubectl("create", "token", "little").strip()}})
        self.place.apply(class_("little", template("DevMachineTemplate", "workers"), "little"), machine("little", "little"))
        self.says("little", "forbidden", 'cannot list resource "machines"')
        version = self.place.get(OURS, "little")["metadata"]["resourceVersion"]
        time.sleep(10)
        assert self.place.get(OURS, "little")["metadata"]["resourceVersion"] == version, "it was tried again within 10 s"
        self.place.patch("secret", "little", {"data": None}) # now the credentials of the driver count
        self.is_gone("little")


    def configs(self):
        """Copies of a bootstrap template that a MachineSet names itself: what is wrong is named, and the copies go with it."""
        def apply(kind, name, **more):
            it = deployment("workers", 2)
            it["spec"]["template"]["spec"]["bootstrap"] = {"configRef": {
                "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, **more}}
            self.place.apply({**it, "kind": "MachineSet", "metadata": {"name": "copies", "namespace": "default"},
                              "spec": {key: it["spec"][key] for key in ("replicas", "selector", "template")}})

        def says(*words):
            said = lambda: json.dumps(self.place.get("machinesets.machine.sapcloud.io", "copies").get("status"))
            until(f"the set says {' … '.join(words)!r}", lambda: all(word in said() for word in words))

        apply("KubeadmConfig", "control")
        says("Valid", "KubeadmConfigTemplate")
        apply("KubeadmConfigTemplate", "workers", namespace="kube-system")
        says("Valid", "namespace", "kube-system")
        apply("OtherConfigTemplate", "workers")
        says("OtherConfigTemplate", "does not serve")
        apply("KubeadmConfigTemplate", "absent")
        says("KubeadmConfigTemplate absent")
        apply("KubeadmConfigTemplate", "workers")
        copies = lambda: set(self.place.all("kubeadmconfigs"))
        until("two Machines with copies", lambda: len(copies()) == 2 and copies() == set(self.place.all(OURS)))
        name = min(copies())
        self.place.patch("kubeadmconfig", name, {"metadata": {"finalizers": ["example.com/backup"]}})
        self.place.kubectl("delete", "machinesets.machine.sapcloud.io", "copies", "--wait=false")
        until("the copy is held", lambda: copies() == {name})
        until("its Machine says by whom", lambda: "example.com/backup" in json.dumps(self.place.get(OURS, name)["status"]["waitingFor"]))
        self.place.patch("kubeadmconfig", name, {"metadata": {"finalizers": []}})
        until("copies are gone", lambda: self.counts(0))

    def adopted(self):
        """From a MachineDeployment of Cluster API without losing a VM, as the page says; `ostler migrate check` asks first."""
        place, selector = self.place, {"matchLabels": {"of": "theirs"}}
        spec = {"clusterName": "one", "version": "v1.36.1", "infrastructureRef": template("DevMachineTemplate", "workers"),
                "bootstrap": {"configRef": template("KubeadmConfigTemplate", "workers", "bootstrap")}}
        place.apply({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
                     "metadata": {"name": "theirs", "namespace": "default"}, "spec": {
                         "clusterName": "one", "replicas": 2, "selector": selector,
                         # A default that a webhook would write.
                         "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
                         "template": {"metadata": {"labels": selector["matchLabels"]}, "spec": spec}}})
        ids = lambda: {name: it["spec"].get("providerID") for name, it in place.all(THEIRS).items()}
        until("two Machines of a MachineDeployment run", lambda: len(ids()) == 2 and all(ids().values()), 180)
        before, vms = ids(), {name: it["metadata"]["uid"] for name, it in place.all("devmachines").items()}
        place.patch("clusters.cluster.x-k8s.io", "one", {"spec": {"paused": True}})
        for kind in ("machinedeployments", "machinesets"):
            for name in place.all(f"{kind}.cluster.x-k8s.io"):
                place.patch(f"{kind}.cluster.x-k8s.io", name, {"spec": {"replicas": 0}})
        taken = class_("taken", template("DevMachineTemplate", "workers"))
        taken["metadata"]["annotations"] = {"ostler.dev/adopt-by-name": "true"}
        ours = [machine(name, "taken", providerID=id) for name, id in before.items()]
        place.instead("--core", "none", "--driver", "none")
        place.apply(taken, *ours)
        code, text = place.check()
        assert code == 1 and text.count("not ours") == 2, text
        say("migrate check refuses Machines of a MachineSet")
        for name in before:
            labels = {"of": None, "machine-template-hash": None, "cluster.x-k8s.io/set-name": None, "cluster.x-k8s.io/deployment-name": None}
            place.patch(THEIRS, name, {"metadata": {"ownerReferences": None, "labels": labels}})
        code, text = place.check()
        assert code == 0 and text.count("adoptable") == 2, text
        say("migrate check takes them without it")
        place.instead()
        place.patch("clusters.cluster.x-k8s.io", "one", {"spec": {"paused": False}})
        until("both are ours", lambda: all(self.phase(name) == "Available" for name in before), 180)
        assert before == ids() and vms == {name: it["metadata"]["uid"] for name, it in place.all("devmachines").items()}
        place.kubectl("delete", "machinedeployments.cluster.x-k8s.io", "theirs")
        for name in before:
            self.is_gone(name)


def build(binaries):
    """The programs as Go modules have them, and the driver."""
    run = lambda *command, cwd=binaries: subprocess.run(command, cwd=cwd, check=True)
    binaries.mkdir(parents=True, exist_ok=True)
    if not (binaries / "go.mod").exists():
        run("go", "mod", "init", "real")
        run("go", "get", *(f"{it}@{VERSION}" for it in (MODULE, f"{MODULE}/api", f"{MODULE}/test")))
    run("go", "build", "-mod=mod", "-o", "./", *PROGRAMS.values())
    run("go", "build", "-o", binaries / "capi", ".", cwd=HERE.parent.parent / "sdk/go/capi")


def main():
    scenarios = "early five webhooks lost hot rolled provider deleted refused paused never rights configs adopted".split()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ostler", default="target/debug/ostler")
    parser.add_argument("--binaries", help="a folder for the programs of Cluster API, which are built in it; kept")
    parser.add_argument("scenario", nargs="*", help="all by default; `early` starts the provider")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    folder = Path(tempfile.mkdtemp(prefix="capi-"))
    binaries = Path(given.binaries or folder / "bin").resolve()
    build(binaries)
    place, failed = Place(str(Path(given.ostler).resolve()), binaries, folder), 0
    try:
        for name in ("core", "kubeadm"):
            place.kinds(name)
        place.launch("core", "kubeadm")
        place.kubectl("create", "secret", "generic", "capi")
        for name in given.scenario or scenarios:
            try:
                getattr(Run(place), name)()
                say(f"{name}: as it should be")
            except AssertionError as error:
                failed += 1
                say(f"{name}: FAILED: {error}")
    finally:
        place.end()
        print(f"logs: {folder}")
    sys.exit(1 if failed else 0)


main()
