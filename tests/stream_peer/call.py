"""What the operations of the peer are given, and what they raise. PYTHONPATH has the stubs."""

import asyncio, logging, os
from pathlib import Path

import grpc

from ostler.driver.v1alpha1 import driver_pb2 as d, operation_pb2 as o

MUTATIONS = "create_machine", "initialize_machine", "update_machine", "delete_machine"

CLASSES = {}


class Failed(Exception):
    """Why an operation failed and what it left behind. The message is for people and never holds a secret."""

    def __init__(self, code, reason, message, left="NOT_APPLIED", paths=(), provider_id="", cluster_id=""):
        self.error = o.OperationError(
            code="MACHINE_ERROR_CODE_" + code, reason=reason, message=message[:500],
            certainty="OUTCOME_CERTAINTY_" + left, provider_id=provider_id, cluster_id=cluster_id,
            violations=[o.FieldViolation(path=path[:60], description=text) for path, text in paths[:20]])


class Call:
    """An operation. Its code sets `left` to PARTIAL once it made something."""

    def __init__(self, session, op):
        self.session, self.op, self.verb, self.left = session, op, op.WhichOneof("request"), "NOT_APPLIED"
        self.request = getattr(op, self.verb) if self.verb else None
        self.mutates, self.answer = self.verb in MUTATIONS, None

    def meets(self, other):
        return other is not self and other.mutates and self.op.target.uid == other.op.target.uid

    async def outcome(self, verb):
        try:
            limit = 0.9 * self.op.timeout.ToTimedelta().total_seconds()
            return {"result": o.OperationResult(**{self.verb: await asyncio.wait_for(verb(self), limit)})}
        except Failed as failed:
            return {"error": failed.error}
        except asyncio.TimeoutError:
            return {"error": Failed("DEADLINE_EXCEEDED", "TIMEOUT", "the cloud took too long", self.left).error}
        except OSError:
            return {"error": Failed("UNAVAILABLE", "NO_ANSWER", "the cloud does not answer", "UNKNOWN").error}
        except Exception as error:  # not its text: who knows what is in there
            logging.error("%s failed: %s", self.verb, type(error).__name__)
            return {"error": Failed("INTERNAL", "DEFECT", "a defect of the driver", "UNKNOWN").error}

    async def machine_class(self):
        ref = self.op.machine_class  # at one revision it never changes
        key = ref.namespace, ref.name, ref.revision
        if key not in CLASSES:
            if len(CLASSES) > 100:
                CLASSES.clear()
            CLASSES[key] = await self.ask("GetMachineClass", d.GetMachineClassRequest(ref=ref))
        return CLASSES[key]

    async def secret(self):
        """The newest secret of the class, as a mapping of bytes; None if the class has none."""
        ref = (await self.machine_class()).secret
        if ref.name:
            newest = o.ObjectRevision(namespace=ref.namespace, name=ref.name)
            return (await self.ask("GetSecret", d.GetSecretRequest(
                ref=newest, session_id=self.session.session_id, operation_id=self.op.operation_id))).data

    async def ask(self, method, request):
        """A call beside the stream; once more if the link broke or the session was over."""
        for again in (True, False):
            try:
                return await getattr(self.session.stub, method)(request, metadata=token(), timeout=10)
            except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
                status = error.code().name if isinstance(error, grpc.RpcError) else "CANCELLED"
            if status in ("NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT"):
                break
            await asyncio.sleep(0.5 if again else 0)
        code, reason = {"NOT_FOUND": ("ABORTED", "STALE_REVISION"), "PERMISSION_DENIED": (status, "REFUSED_BY_CORE"),
                        "FAILED_PRECONDITION": (status, "CLASS_TOO_LARGE")}.get(status, ("UNAVAILABLE", "NO_ANSWER"))
        raise Failed(code, reason, f"{method}: {status}")


def dial():
    scheme, _, target = os.environ.get("OSTLER_ENDPOINT", "http://127.0.0.1:5000").partition(":")
    options = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000),
               ("grpc.http2.max_pings_without_data", 0), ("grpc.use_local_subchannel_pool", 1)]
    if scheme == "https":
        trusted = grpc.ssl_channel_credentials(Path(os.environ["OSTLER_CA_FILE"]).read_bytes())
        return grpc.aio.secure_channel(target.strip("/"), trusted, options)
    return grpc.aio.insecure_channel(f"unix:{target}" if scheme == "unix" else target.strip("/"), options)


def token():
    path = os.environ.get("OSTLER_TOKEN_FILE")  # read again each time: tokens are replaced
    return [("authorization", "Bearer " + Path(path).read_text().strip())] if path else []
