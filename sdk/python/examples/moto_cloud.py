"""EC2 and Auto Scaling as moto simulates them, and what the suite asks of a cloud: README.md of this folder's parent explains.

    moto_cloud.py serve PORT    prints the class and the secret for it to the directory of MOTO_CLOUD
    moto_cloud.py WORD …        see "Reading the cloud" in ../../conformance/README.md
"""

import io, json, os, re, sys, threading
from pathlib import Path
from urllib.parse import parse_qs

import boto3

DIR = Path(os.environ.get("MOTO_CLOUD", "."))
OUTAGE, JOURNAL = DIR / "outage", DIR / "journal"
REGION = "us-east-1"
READS = re.compile("^(Describe|Get|List|Receive)")


def client(service, key="probe"):
    return boto3.client(service, region_name=REGION, endpoint_url=os.environ["AWS_ENDPOINT_URL"], aws_access_key_id=key, aws_secret_access_key="x")


class Front:
    """Before moto: counts changes, answers 503 after as many as `break` allows, and refuses keys that begin with `invalid`."""

    def __init__(self, app):
        self.app, self.lock = app, threading.Lock()

    def __call__(self, environ, start):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        who = environ.get("HTTP_AUTHORIZATION", "")
        action = parse_qs(body.decode(errors="replace")).get("Action", [environ.get("HTTP_X_AMZ_TARGET", "")])[0]
        driver = "Credential=probe" not in who
        with self.lock:
            left = int(OUTAGE.read_text()) if OUTAGE.exists() else None
            if driver and left == 0:
                return self.refuse(start, "503 Service Unavailable", "ServiceUnavailable")
            if "Credential=invalid" in who:
                return self.refuse(start, "401 Unauthorized", "AuthFailure")
            if not READS.match(action):
                JOURNAL.write_text(str(int(JOURNAL.read_text()) + 1 if JOURNAL.exists() else 1))
                if driver and left:
                    OUTAGE.write_text(str(left - 1))
            # One at a time: moto's state is not made for threads.
            return [b"".join(self.app(environ, start))]

    def refuse(self, start, status, code):
        start(status, [("Content-Type", "text/xml")])
        return [f"<Response><Errors><Error><Code>{code}</Code><Message>no</Message></Error></Errors><RequestID>1</RequestID></Response>".encode()]


def serve(port):
    from moto.server import DomainDispatcherApplication, create_backend_app
    from moto.ec2.models.launch_templates import LaunchTemplateVersion
    from moto.ec2.utils import parse_user_data
    from werkzeug.serving import make_server

    # moto 5.2.5 makes no instance of a second version that has user data: it keeps those as plain text there.
    encoded = lambda value: value if value is None or not isinstance(value, str) else parse_user_data(value)
    LaunchTemplateVersion.user_data = property(lambda self: encoded(self.data.get("UserData")))

    server = make_server("127.0.0.1", int(port), Front(DomainDispatcherApplication(create_backend_app)), threaded=True)
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ec2 = client("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"]
    subnets = [it["SubnetId"] for it in ec2.describe_subnets()["Subnets"]][:2]
    for name, spec in {
        "class": {}, "alt-class": {"image": image[1]["ImageId"]}, "hot-class": {"tags": {"team": "mews"}}, "bad-class": {"instanceType": 5},
    }.items():
        spec = {"region": REGION, "image": image[0]["ImageId"], "instanceType": "t3.small", "subnets": subnets, "tags": {"team": "stables"}, **spec}
        (DIR / f"{name}.json").write_text(json.dumps({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": name, "namespace": "default"},
            "provider": "autoscaling.ostler.dev", "secretRef": {"name": "aws", "namespace": "default"}, "providerSpec": spec}))
    for name, key in {"secret": "driver", "bad-secret": "invalid"}.items():
        (DIR / f"{name}.json").write_text(json.dumps({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "aws", "namespace": "default"},
            "stringData": {"accessKeyId": key, "secretAccessKey": "x", "userData": "#!/bin/sh\ntrue"}}))
    print(os.environ["AWS_ENDPOINT_URL"], flush=True)
    threading.Event().wait()


def tags(of):
    return {it["Key"]: it["Value"] for it in of.get("Tags", [])}


def alive():
    states = ["pending", "running", "stopping", "stopped"]
    pages = client("ec2").get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-state-name", "Values": states}])
    return [it for page in pages for one in page["Reservations"] for it in one["Instances"]]


def instances():
    all = []
    for it in alive():
        found = tags(it)
        told = client("ec2").describe_instance_attribute(InstanceId=it["InstanceId"], Attribute="userData")
        all.append({"providerId": f"aws:///{it['Placement']['AvailabilityZone']}/{it['InstanceId']}", "name": found.get("ostler.dev/machine-name", ""),
                    "uid": found.get("ostler.dev/machine-uid", ""), "clusterId": found.get("ostler.dev/cluster-id", ""),
                    "tags": {key: value for key, value in found.items() if not key.startswith("aws:")},
                    "userData": told.get("UserData", {}).get("Value", "")})
    return all


def resources():
    found = [{"id": it["providerId"], "kind": "instance", "uid": it["uid"] or it["tags"].get("ostler.dev/pool-uid", ""), "clusterId": it["clusterId"]}
             for it in instances()]
    for kind, all, id in (("group", client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"], "AutoScalingGroupName"),
                          ("template", client("ec2").describe_launch_templates()["LaunchTemplates"], "LaunchTemplateName")):
        found += [{"id": it[id], "kind": kind, "uid": tags(it).get("ostler.dev/pool-uid", ""), "clusterId": tags(it).get("ostler.dev/cluster-id", "")}
                  for it in all]
    return found


def journal_length():
    return int(JOURNAL.read_text()) if JOURNAL.exists() else 0


def add_foreign_tag(id, tag):
    key, value = tag.split("=", 1)
    client("ec2").create_tags(Resources=[id.rsplit("/", 1)[-1]], Tags=[{"Key": key, "Value": value}])


def remove_instance(id):
    client("ec2").terminate_instances(InstanceIds=[id.rsplit("/", 1)[-1]])


def break_cloud(how, changes="0"):
    OUTAGE.unlink(missing_ok=True) if how == "off" else OUTAGE.write_text(changes)


words = {"serve": serve, "instances": instances, "resources": resources, "journal-length": journal_length,
         "add-foreign-tag": add_foreign_tag, "remove-instance": remove_instance, "break": break_cloud}
if len(sys.argv) < 2 or sys.argv[1] not in words:
    sys.exit(f"moto_cloud.py knows {', '.join(words)}")
print(json.dumps(words[sys.argv[1]](*sys.argv[2:])))
