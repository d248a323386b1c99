"""A driver for EC2 Auto Scaling groups: a MachinePool is a group with a launch template, of which each model is a version.
Single machines are EC2 instances of the same spec. ../README.md says how to try it, and what moto does not simulate.

Nothing is kept here: size, versions and instances are read from AWS each time."""

import base64, functools, hashlib, json, os, queue, sys, threading
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError as NoConnection, HTTPClientError

sys.path.insert(0, str(Path(__file__).parent.parent))
from ostler_driver import Failed, o, serve
from ostler.driver.v1alpha1 import event_pb2

PROVIDER = "autoscaling.ostler.dev"
CLUSTER, UID, NAME = "ostler.dev/cluster-id", "ostler.dev/pool-uid", "ostler.dev/pool-name"
MACHINE_UID, MACHINE, MODEL, OWN = "ostler.dev/machine-uid", "ostler.dev/machine-name", "ostler.dev/model", "ostler.dev/own-tags"
FIXED = ("image", "instanceType", "subnets", "spot")
MOST = 10_000  # MaxSize: the core says how many there are, no group limits that
# Nothing but the core takes an instance: AWS may neither rebalance zones, nor follow alarms and schedules, nor refresh instances.
SUSPENDED = ["AZRebalance", "AlarmNotification", "ScheduledActions", "InstanceRefresh"]
HOOK = "ostler-drain"  # an instance that AWS ends by itself waits so long for its Node to be drained
DRAIN_SECONDS = 300
REFUSED = {"AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "SignatureDoesNotMatch", "AccessDenied", "ExpiredToken"}
FULL = {"InsufficientInstanceCapacity", "InstanceLimitExceeded", "VcpuLimitExceeded", "LimitExceeded", "MaxSpotInstanceCountExceeded"}
SLOWER = {"Throttling", "ThrottlingException", "RequestLimitExceeded", "ResourceContention"}
events = queue.Queue(1000)


def aws(x, service):
    """A client with the credentials of the class."""
    secret = x.op.secret
    return client(service, spec_of(x)["region"], secret.get("accessKeyId", b"").decode(), secret.get("secretAccessKey", b"").decode())


@functools.lru_cache(64)
def client(service, region, key, secret):
    """It repeats no change by itself: the core reads before it does. Another thread may use it, too."""
    return boto3.Session().client(
        service, region_name=region, endpoint_url=os.environ.get("AWS_ENDPOINT_URL"), aws_access_key_id=key, aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30))


def answered(call):
    """What AWS refuses, in terms of the contract."""
    def verb(x):
        try:
            return call(x)
        except ClientError as error:
            code, left = error.response["Error"].get("Code", ""), x.left
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            more = {"provider_code": code}
            if code in REFUSED or status == 401:
                raise Failed("UNAUTHENTICATED", "REFUSED", "AWS refuses the credentials of the secret", left, **more) from None
            if code in FULL:
                raise Failed("RESOURCE_EXHAUSTED", "CAPACITY_EXHAUSTED", f"AWS has no capacity: {code}", left, **more) from None
            if code in SLOWER:
                raise Failed("RESOURCE_EXHAUSTED", "THROTTLED", "AWS limits the rate of calls", left, **more) from None
            if status >= 500:
                raise Failed("UNAVAILABLE", "AWS_ERROR", f"AWS answers {status}", "UNKNOWN", **more) from None
            raise Failed("FAILED_PRECONDITION", "AWS_ERROR", f"AWS refuses: {code}", "UNKNOWN", **more) from None
        except (NoConnection, HTTPClientError):
            raise Failed("UNAVAILABLE", "NO_ANSWER", "AWS does not answer", "UNKNOWN") from None
    verb.__name__ = call.__name__
    return verb


# Provider specs.

def parse(text):
    try:
        spec = {"tags": {}, "spot": False, **json.loads(text)}
    except (ValueError, TypeError):
        return None, [("", "must be a JSON object")]
    subnets, tags = spec.get("subnets"), spec["tags"]
    rules = {
        "region": (isinstance(spec.get("region"), str) and spec["region"], "must name a region"),
        "image": (str(spec.get("image", "")).startswith("ami-"), "must be the id of an AMI"),
        "instanceType": ("." in str(spec.get("instanceType", "")), "must be an instance type, e.g. t3.small"),
        "subnets": (isinstance(subnets, list) and subnets and all(isinstance(it, str) for it in subnets), "must name subnets"),
        "spot": (isinstance(spec["spot"], bool), "must be true or false"),
        "tags": (isinstance(tags, dict) and all(isinstance(v, str) and not k.startswith(("ostler.dev/", "aws:")) for k, v in tags.items()),
                 "must map text to text, and none of ostler.dev/ or aws:")}
    wrong = [(path, text) for path, (good, text) in rules.items() if not good]
    return spec, wrong + [(path, "is not known") for path in sorted(spec.keys() - rules.keys())]


def spec_of(x):
    spec, wrong = parse(x.op.machine_class.provider_spec_json)
    if wrong:
        raise Failed("INVALID_ARGUMENT", "BAD_SPEC", "the provider spec is wrong", paths=wrong)
    return spec


def fixed(old, new):
    return [(path, "is fixed when the instance is made") for path in FIXED if old[path] != new[path]]


def validate_class(x):
    (new, wrong), (old, unreadable) = parse(x.request.provider_spec_json), parse(x.request.old_provider_spec_json)
    paths = [] if wrong or unreadable else [path for path, _ in fixed(old, new)]
    part = "" if wrong else json.dumps({path: new[path] for path in FIXED}, sort_keys=True, separators=(",", ":"))
    return o.ValidateClassResponse(
        violations=[o.FieldViolation(path=path, description=text) for path, text in wrong],
        change_is_hot_updatable=not wrong and not paths, not_hot_updatable_paths=paths,
        fixed_spec_sha256=part and hashlib.sha256(part.encode()).hexdigest())


# Finding.

def tags(of):
    return {it["Key"]: it["Value"] for it in of.get("Tags", [])}


def as_list(of):
    return [{"Key": key, "Value": value} for key, value in of.items()]


def ours(x, found):
    return found.get(CLUSTER) in (x.op.cluster_id, *x.op.previous_cluster_ids)


def cluster_of(x, found):
    return found[CLUSTER] if found.get(CLUSTER, x.op.cluster_id) != x.op.cluster_id else ""


def groups(x, **which):
    pages = aws(x, "autoscaling").get_paginator("describe_auto_scaling_groups").paginate(**which)
    return [it for page in pages for it in page["AutoScalingGroups"]]


def instances(x, *filters, ids=()):
    """Those that are not gone, with these tags."""
    which = [{"Name": name, "Values": values} for name, values in filters]
    which.append({"Name": "instance-state-name", "Values": ["pending", "running", "shutting-down", "stopping", "stopped"]})
    if ids:
        which.append({"Name": "instance-id", "Values": list(ids)})
    pages = aws(x, "ec2").get_paginator("describe_instances").paginate(Filters=which)
    return [it for page in pages for one in page["Reservations"] for it in one["Instances"]]


def clusters(x):
    return [x.op.cluster_id, *x.op.previous_cluster_ids]


def not_ours(id, found):
    return Failed("FAILED_PRECONDITION", "NOT_OURS", "it has other tags", provider_id=id, cluster_id=found.get(CLUSTER, ""))


def find(x):
    """The group by the id that the core knows if the name fits, else by UID; an error if it is that of others."""
    id, uid, name = x.request.provider_id if hasattr(x.request, "provider_id") else "", x.op.target.uid, x.op.target.name
    found = groups(x, AutoScalingGroupNames=[id]) if id else []
    if found and ours(x, tags(found[0])) and tags(found[0]).get(NAME) == name:
        return found[0]
    mine = [it for it in groups(x, Filters=[{"Name": f"tag:{UID}", "Values": [uid]}]) if ours(x, tags(it))]
    if len(mine) > 1:
        raise Failed("OUT_OF_RANGE", "SEVERAL_GROUPS", "two groups claim to be this pool: delete one")
    if not mine and found:
        raise not_ours(id, tags(found[0]))
    if not mine and not id:
        for it in groups(x, Filters=[{"Name": f"tag:{NAME}", "Values": [name]}]):
            if ours(x, tags(it)) and tags(it)[CLUSTER] != x.op.cluster_id:
                raise not_ours(it["AutoScalingGroupName"], tags(it))
    return mine[0] if mine else None


def need(x):
    if group := find(x):
        return group
    raise Failed("NOT_FOUND", "NO_GROUP", "there is no such group")


# Groups: what the core hears of them.

def live(group):
    return [it for it in group["Instances"] if not it["LifecycleState"].startswith("Termina")]


def shown(x, group):
    found, version = tags(group), group["LaunchTemplate"]
    record = o.PoolRecord(
        provider_id=group["AutoScalingGroupName"], pool_name=found.get(NAME, ""), pool_uid=found.get(UID, ""), cluster_id=cluster_of(x, found),
        desired=group["DesiredCapacity"], current=len(group["Instances"]), model_hash=found.get(MODEL, ""), busy=group.get("Status") is not None)
    record.created_at.FromDatetime(group["CreatedTime"])
    last = aws(x, "autoscaling").describe_scaling_activities(AutoScalingGroupName=group["AutoScalingGroupName"], MaxRecords=1)["Activities"]
    if last and last[0]["StatusCode"] == "Failed" and len(live(group)) < group["DesiredCapacity"]:
        record.fault.CopyFrom(Failed("RESOURCE_EXHAUSTED", "CAPACITY_EXHAUSTED", f"version {version.get('Version')}: the group cannot make an instance").error)
    return record


STATES = {"Pending": "CREATING", "InService": "SUCCEEDED", "Standby": "UPDATING", "Terminat": "DELETING", "Quarantined": "FAILED"}


def told(x, member, instance):
    found = tags(instance)
    state = next((it for begin, it in STATES.items() if member["LifecycleState"].startswith(begin)), "UNSPECIFIED")
    if state == "SUCCEEDED" and member["HealthStatus"].lower() != "healthy":
        state = "FAILED"
    power = {"pending": "PENDING", "running": "RUNNING", "stopped": "STOPPED", "stopping": "STOPPED"}.get(instance["State"]["Name"], "DELETING")
    machine = o.MachineRecord(
        provider_id=f"aws:///{member['AvailabilityZone']}/{member['InstanceId']}", node_name=instance.get("PrivateDnsName", ""), initialized=True,
        cluster_id=cluster_of(x, found), power_state=f"MACHINE_POWER_STATE_{power}")
    if state == "FAILED":
        machine.fault.CopyFrom(Failed("UNKNOWN", "UNHEALTHY", "the group calls the instance unhealthy").error)
    return o.PoolMachineRecord(machine=machine, instance_id=member["InstanceId"], state=f"POOL_MACHINE_STATE_{state}",
                               model_hash=found.get(MODEL, ""), zone=member["AvailabilityZone"])


def told_all(x, group, members):
    by_id = {it["InstanceId"]: it for it in instances(x, ("tag:aws:autoscaling:groupName", [group["AutoScalingGroupName"]]))}
    # One that only the group shows is on its way in or out; it is told when EC2 shows it too.
    gone = {"State": {"Name": "terminated"}}
    return [told(x, it, by_id.get(it["InstanceId"], gone)) for it in members]


# Models: versions of the launch template.

def instance_tags(x, spec):
    """All that a group makes has the identity from its first moment: the launch template tags instances and volumes."""
    return {**spec["tags"], OWN: json.dumps([*spec["tags"]])}


def version(x, group, pool_tags, model):
    """The version of the group's launch template that has this model. A renewed token makes another one of the same model."""
    spec, ec2 = spec_of(x), aws(x, "ec2")
    if model.zones and not set(model.zones) <= set(zones(x, spec)):
        raise Failed("INVALID_ARGUMENT", "NO_SUCH_ZONE", "no subnet of the class is there", paths=[("subnets", "none in a wanted zone")])
    user_data = base64.b64encode(model.bootstrap.user_data).decode()
    marked = as_list({**instance_tags(x, spec), **pool_tags, MODEL: model.hash})
    data = {"ImageId": spec["image"], "InstanceType": spec["instanceType"], **({"UserData": user_data} if user_data else {}),
            "TagSpecifications": [{"ResourceType": it, "Tags": marked} for it in ("instance", "volume")]}
    if spec["spot"]:
        data["InstanceMarketOptions"] = {"MarketType": "spot"}
    try:
        known = ec2.describe_launch_template_versions(LaunchTemplateName=group, Versions=["$Latest"])["LaunchTemplateVersions"]
    except ClientError as error:
        if "NotFound" not in error.response["Error"]["Code"]:
            raise
        made = ec2.create_launch_template(
            LaunchTemplateName=group, LaunchTemplateData=data, VersionDescription=model.hash,
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": as_list(pool_tags)}])["LaunchTemplate"]
        return str(made["LatestVersionNumber"])
    last = known[0]
    same = {key: last["LaunchTemplateData"].get(key) for key in data} == data
    if last.get("VersionDescription") == model.hash and same:
        return str(last["VersionNumber"])
    x.left = "PARTIAL"
    made = ec2.create_launch_template_version(LaunchTemplateName=group, LaunchTemplateData=data, VersionDescription=model.hash)
    return str(made["LaunchTemplateVersion"]["VersionNumber"])


def zones(x, spec):
    return {it["AvailabilityZone"]: it["SubnetId"] for it in aws(x, "ec2").describe_subnets(SubnetIds=spec["subnets"])["Subnets"]}


def subnets(x, model):
    spec = spec_of(x)
    return ",".join([it for zone, it in zones(x, spec).items() if zone in model.zones] if model.zones else spec["subnets"])


def tag_group(x, name, new):
    aws(x, "autoscaling").create_or_update_tags(Tags=[
        {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": key, "Value": value, "PropagateAtLaunch": False}
        for key, value in new.items()])


def remodel(x, group, model, pool_tags, size=None):
    """The version and the size in one call; the hash is written when the group has the model, and not before."""
    name = group["AutoScalingGroupName"]
    change = {} if size is None or size == group["DesiredCapacity"] else {"DesiredCapacity": size}
    if model is not None:
        change |= {"LaunchTemplate": {"LaunchTemplateName": name, "Version": version(x, name, pool_tags, model)},
                   "VPCZoneIdentifier": subnets(x, model)}
    if change:
        aws(x, "autoscaling").update_auto_scaling_group(AutoScalingGroupName=name, **change)
        x.left = "PARTIAL"
    guard(x, name)
    if model is not None:
        tag_group(x, name, {**pool_tags, MODEL: model.hash})


def guard(x, name):
    """Only the core takes instances. Each is a call that sets a value, so it is repeated until it was heard."""
    scaling = aws(x, "autoscaling")
    scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=SUSPENDED)
    scaling.put_lifecycle_hook(
        LifecycleHookName=HOOK, AutoScalingGroupName=name, LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=DRAIN_SECONDS, DefaultResult="CONTINUE")


# The calls for groups.

@answered
def create_pool(x):
    group, q, op = find(x), x.request, x.op
    pool_tags = dict(q.tags)
    if group is None:
        name = "ostler-" + hashlib.sha256(f"{op.cluster_id} {op.target.uid}".encode()).hexdigest()[:24]
        if taken := groups(x, AutoScalingGroupNames=[name]):
            raise Failed("ABORTED", "DELETING", "the group of this pool is being deleted") if taken[0].get("Status") else not_ours(name, tags(taken[0]))
        number = version(x, name, pool_tags, q.model)
        x.left = "PARTIAL"
        aws(x, "autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=name, MinSize=0, MaxSize=MOST, DesiredCapacity=q.desired, VPCZoneIdentifier=subnets(x, q.model),
            LaunchTemplate={"LaunchTemplateName": name, "Version": number}, NewInstancesProtectedFromScaleIn=True,
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": False} for key, value in {**pool_tags, MODEL: q.model.hash}.items()])
        guard(x, name)
        return o.CreatePoolResponse(pool=shown(x, need(x)))
    if group.get("Status"):
        raise Failed("ABORTED", "DELETING", "the group of this pool is being deleted")
    found = tags(group)
    if (found.get(CLUSTER), found.get(UID)) != (op.cluster_id, op.target.uid):  # a restored or moved cluster: adopt it
        ids = [it["InstanceId"] for it in group["Instances"]]
        x.left = "PARTIAL"
        if ids:
            aws(x, "ec2").create_tags(Resources=ids, Tags=as_list(pool_tags))
    remodel(x, group, q.model, pool_tags)
    return o.CreatePoolResponse(pool=shown(x, need(x)))


def size_changed(group):
    return Failed("ABORTED", "SIZE_CHANGED", f"the size of the group is {group['DesiredCapacity']}")


@answered
def update_pool(x):
    group, q = need(x), x.request
    now = group["DesiredCapacity"]
    size = q.desired if q.HasField("desired") else now
    if size != now and (q.expected_desired != now or size < min(now, len(live(group)))):
        raise size_changed(group)
    found = {key: value for key, value in tags(group).items() if key.startswith("ostler.dev/") and key != MODEL}
    remodel(x, group, q.model if q.HasField("model") else None, found, size)
    return o.UpdatePoolResponse(pool=shown(x, need(x)))


@answered
def delete_pool(x):
    try:
        group = find(x)
    except Failed as failed:
        if failed.error.reason != "NOT_OURS":
            raise
        return o.DeletePoolResponse(outcome="DELETION_OUTCOME_NOT_OURS", provider_id=failed.error.provider_id, cluster_id=failed.error.cluster_id)
    ec2 = aws(x, "ec2")
    left = [it for it in ec2.describe_launch_templates(Filters=[{"Name": f"tag:{UID}", "Values": [x.op.target.uid]}])["LaunchTemplates"]
            if ours(x, tags(it))]
    of_pool = lambda: [it for it in instances(x, (f"tag:{UID}", [x.op.target.uid])) if ours(x, tags(it))]
    if group is None and not left and not of_pool():
        return o.DeletePoolResponse(outcome="DELETION_OUTCOME_WAS_ABSENT")
    x.left = "PARTIAL"
    if group is not None:
        name, scaling = group["AutoScalingGroupName"], aws(x, "autoscaling")
        if not group.get("Status"):
            ids = [it["InstanceId"] for it in live(group)]
            for at in range(0, len(ids), 50):
                scaling.set_instance_protection(AutoScalingGroupName=name, InstanceIds=ids[at:at + 50], ProtectedFromScaleIn=False)
            scaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
        while groups(x, AutoScalingGroupNames=[name]):
            x.sleep(1)
        left = [{"LaunchTemplateName": name}]
    if ids := [it["InstanceId"] for it in of_pool()]:  # what the group left
        ec2.terminate_instances(InstanceIds=ids)
    while of_pool():
        x.sleep(1)
    for one in left:
        try:
            ec2.delete_launch_template(LaunchTemplateName=one["LaunchTemplateName"])
        except ClientError as error:
            if "NotFound" not in error.response["Error"]["Code"]:
                raise
    return o.DeletePoolResponse(outcome="DELETION_OUTCOME_DELETED")


@answered
def get_pool_status(x):
    group = need(x)
    machines = told_all(x, group, group["Instances"]) if x.request.include_machines else []
    return o.GetPoolStatusResponse(pool=shown(x, group), machines=machines)


@answered
def list_pools(x):
    which = [{"Name": f"tag:{CLUSTER}", "Values": clusters(x)}]
    return o.ListPoolsResponse(pools=[shown(x, it) for it in groups(x, Filters=which) if UID in tags(it)])


def instance_of(id):
    return id.rsplit("/", 1)[-1]


def strange(x, ids):
    """Why these instances, which are there, are none of the group."""
    return {it["InstanceId"]: Failed("FAILED_PRECONDITION", "NOT_OURS", "that instance is of no such group",
                                     provider_id=f"aws:///{it['Placement']['AvailabilityZone']}/{it['InstanceId']}",
                                     cluster_id=tags(it).get(CLUSTER, ""))
            for it in instances(x, ids=ids) if it["State"]["Name"] != "shutting-down"} if ids else {}


@answered
def delete_pool_machines(x):
    group, q = need(x), x.request
    name, size = group["AutoScalingGroupName"], group["DesiredCapacity"]
    there = {it["InstanceId"]: it for it in group["Instances"]}
    alive = {it["InstanceId"] for it in live(group)}
    wanted = [instance_of(id) for id in q.machine_provider_ids]
    left = [id for id in wanted if id in alive]
    lowers = bool(left) and size != q.new_desired
    if lowers and (size != q.expected_desired or size - len(left) < q.new_desired):
        raise size_changed(group)
    others = strange(x, [id for id in wanted if id not in there])
    scaling, failed = aws(x, "autoscaling"), dict(others)
    for id in left:
        try:  # the size falls in the call that takes the instance
            scaling.terminate_instance_in_auto_scaling_group(InstanceId=id, ShouldDecrementDesiredCapacity=lowers)
            x.left = "UNKNOWN"
        except ClientError as error:
            if error.response["Error"]["Code"] != "ScalingActivityInProgress":
                raise
            failed[id] = Failed("ABORTED", "OPERATION_PENDING", "the group is busy with the instance")
    for it in need(x)["Instances"]:
        # The Node is drained: those that the core takes do not wait for that.
        if it["InstanceId"] in wanted and it["LifecycleState"] == "Terminating:Wait":
            scaling.complete_lifecycle_action(LifecycleHookName=HOOK, AutoScalingGroupName=name, InstanceId=it["InstanceId"],
                                              LifecycleActionResult="CONTINUE")
    return o.DeletePoolMachinesResponse(pool=shown(x, need(x)), not_deleted=[
        o.PoolMachineFailure(machine_provider_id=id, error=failed[instance_of(id)].error)
        for id in q.machine_provider_ids if instance_of(id) in failed])


@answered
def update_pool_machine(x):
    """Tags reach an instance that runs. Image and type do not: EC2 changes the type of a stopped one, but no group would have it."""
    group, q, spec = need(x), x.request, spec_of(x)
    id = instance_of(q.machine_provider_id)
    member = next((it for it in live(group) if it["InstanceId"] == id), None)
    if member is None:
        raise strange(x, [id]).get(id) or Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")
    if tags(group).get(MODEL) != q.model_hash:
        raise Failed("ABORTED", "MODEL_CHANGED", f"the group has model {tags(group).get(MODEL)}")
    instance = instances(x, ids=[id])[0]
    paths = [(path, "is fixed when the instance is made") for path, key in (("image", "ImageId"), ("instanceType", "InstanceType"))
             if instance[key] != spec[path]]
    if paths:
        raise Failed("FAILED_PRECONDITION", "NOT_HOT_UPDATABLE", "only another instance can have that", paths=paths)
    retag(x, id, instance, spec, {MODEL: q.model_hash})
    return o.UpdatePoolMachineResponse(machine=told_all(x, group, [member])[0])


def retag(x, id, instance, spec, more):
    """Tags of others stay; those that an earlier spec had put there go. The mark that all is done comes last."""
    own = json.loads(tags(instance).get(OWN, "[]"))
    old, ec2 = [key for key in own if key not in spec["tags"] and key in tags(instance)], aws(x, "ec2")
    had = tags(instance)
    if spec["tags"]:
        ec2.create_tags(Resources=[id], Tags=as_list({**spec["tags"], OWN: json.dumps(sorted({*own, *spec["tags"]}))}))
        x.left = "PARTIAL"
    if old:
        ec2.delete_tags(Resources=[id], Tags=[{"Key": key} for key in old])
        x.left = "PARTIAL"
    ec2.create_tags(Resources=[id], Tags=as_list({**more, OWN: json.dumps([*spec["tags"]])}))
    return had != {**had, **spec["tags"]} or bool(old)


# Single machines: EC2 instances with the name and the UID of a Machine.

def find_instance(x):
    uid, name, id = x.op.target.uid, x.op.target.name, getattr(x.request, "provider_id", "")
    found = instances(x, ids=[instance_of(id)]) if id else []
    if found and ours(x, tags(found[0])) and tags(found[0]).get(MACHINE) == name:
        return found[0]
    mine = [it for it in instances(x, (f"tag:{MACHINE_UID}", [uid])) if ours(x, tags(it))]
    if len(mine) > 1:
        raise Failed("OUT_OF_RANGE", "SEVERAL_INSTANCES", "two instances claim to be this machine: delete one")
    if not mine and found:
        raise not_ours(id, tags(found[0]))
    return mine[0] if mine else None


def recorded(x, it):
    found = tags(it)
    power = {"pending": "PENDING", "running": "RUNNING", "stopped": "STOPPED", "stopping": "STOPPED"}.get(it["State"]["Name"], "DELETING")
    return o.MachineRecord(
        provider_id=f"aws:///{it['Placement']['AvailabilityZone']}/{it['InstanceId']}", machine_name=found.get(MACHINE, ""),
        machine_uid=found.get(MACHINE_UID, ""), cluster_id=cluster_of(x, found), power_state=f"MACHINE_POWER_STATE_{power}",
        node_name=it.get("PrivateDnsName", ""))


@answered
def create_machine(x):
    spec, found, op = spec_of(x), find_instance(x), x.op
    if found is None:
        x.left = "UNKNOWN"
        more = {"InstanceMarketOptions": {"MarketType": "spot"}} if spec["spot"] else {}
        marked = as_list({**instance_tags(x, spec), **x.request.tags})
        found = aws(x, "ec2").run_instances(
            ImageId=spec["image"], InstanceType=spec["instanceType"], SubnetId=spec["subnets"][0], MinCount=1, MaxCount=1,
            ClientToken=op.idempotency_key, UserData=x.request.bootstrap.user_data.decode(errors="replace"),
            TagSpecifications=[{"ResourceType": it, "Tags": marked} for it in ("instance", "volume")], **more)["Instances"][0]
    else:
        aws(x, "ec2").create_tags(Resources=[found["InstanceId"]], Tags=as_list(dict(x.request.tags)))
    x.left = "PARTIAL"
    return o.CreateMachineResponse(machine=recorded(x, instances(x, ids=[found["InstanceId"]])[0]))


@answered
def get_machine_status(x):
    if found := find_instance(x):
        return o.GetMachineStatusResponse(machine=recorded(x, found))
    raise Failed("NOT_FOUND", "NO_INSTANCE", "there is no such instance")


@answered
def delete_machine(x):
    try:
        found = find_instance(x)
    except Failed as failed:
        if failed.error.reason != "NOT_OURS":
            raise
        return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_NOT_OURS", provider_id=failed.error.provider_id, cluster_id=failed.error.cluster_id)
    if found is None:
        return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_WAS_ABSENT")
    x.left = "PARTIAL"
    aws(x, "ec2").terminate_instances(InstanceIds=[found["InstanceId"]])
    while instances(x, ids=[found["InstanceId"]]):
        x.sleep(1)
    return o.DeleteMachineResponse(outcome="DELETION_OUTCOME_DELETED")


@answered
def list_machines(x):
    found = instances(x, (f"tag:{CLUSTER}", clusters(x)))
    return o.ListMachinesResponse(machines=[recorded(x, it) for it in found if MACHINE_UID in tags(it)])


# What AWS announces: EventBridge sends the notices of spot instances to a queue, two minutes before their end.

NOTICES = {"EC2 Spot Instance Interruption Warning": ("TERMINATION_NOTICE", 120), "EC2 Instance Rebalance Recommendation": ("MAINTENANCE_NOTICE", 0),
           "EC2 Instance-terminate Lifecycle Action": ("CHANGED", 0), "EC2 Instance Terminate Successful": ("GONE", 0)}


def notice(text):
    """The event of the core for one of EventBridge, or None: a queue may have other messages, too."""
    try:
        said = json.loads(text)
        kind, seconds = NOTICES.get(said["detail-type"], (None, 0))
        detail = dict(said["detail"])
    except (ValueError, TypeError, KeyError):
        return None
    id = detail.get("instance-id") or detail.get("EC2InstanceId")
    if kind is None or not id:
        return None
    zone = next((it.split("/")[0] for it in [detail.get("Details", {}).get("Availability Zone", "")] if it), "")
    event = event_pb2.DriverEvent(kind=f"INSTANCE_EVENT_{kind}", provider_id=f"aws:///{zone}/{id}", message=said["detail-type"])
    if seconds:
        event.effective_in.FromSeconds(seconds)
    return event


def watch(url):
    """With the credentials of the environment, for events have no class."""
    sqs = boto3.client("sqs", region_name=os.environ.get("AWS_REGION", "us-east-1"), endpoint_url=os.environ.get("AWS_ENDPOINT_URL"))
    while True:
        try:
            for it in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, MaxNumberOfMessages=10).get("Messages", []):
                if event := notice(it["Body"]):
                    events.put(event)
                sqs.delete_message(QueueUrl=url, ReceiptHandle=it["ReceiptHandle"])
        except (ClientError, NoConnection, HTTPClientError) as error:
            print(f"the queue of notices: {type(error).__name__}", file=sys.stderr, flush=True)
            threading.Event().wait(5)


if __name__ == "__main__":
    if url := os.environ.get("SPOT_QUEUE_URL"):
        threading.Thread(target=watch, args=(url,), daemon=True).start()
    # By the last part: an event of EventBridge has no zone.
    serve(sys.modules[__name__], PROVIDER, "0.1.0", 32, ["PREVIOUS_CLUSTER_IDS"], list_lag_seconds=60,
          provider_id_comparison="PROVIDER_ID_COMPARISON_LAST_SEGMENT")
