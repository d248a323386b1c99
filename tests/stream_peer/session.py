"""A driver's side of the stream, without an SDK: a second implementation, which tests the first. PYTHONPATH has the stubs."""

import asyncio, contextlib, itertools, logging, os, random, signal, socket, sys, time, traceback, uuid
from pathlib import Path

import grpc

from ostler.driver.v1alpha1 import driver_pb2 as d, driver_pb2_grpc, operation_pb2 as o, session_pb2 as s

RESULTS, QUEUE, HELD_IN_HELLO, PAGE, CLASSES = 1000, 2000, 1000, 150, 100  # limits
DRAIN = int(os.environ.get("OSTLER_DRAIN_TIMEOUT", "25s").removesuffix("s"))
TIMEOUTS = {"create_machine": 1200, "initialize_machine": 300, "update_machine": 600, "delete_machine": 1200,
            "get_machine_status": 60, "list_machines": 300, "get_volume_ids": 60, "validate_class": 15}
MUTATIONS = "create_machine", "initialize_machine", "update_machine", "delete_machine"
log = logging.getLogger("driver")


def seconds(duration):
    return duration.ToTimedelta().total_seconds()


class Failed(Exception):
    """Why an operation failed and what it left behind. The message is for people and never holds a secret."""

    def __init__(self, code, reason, message, left="NOT_APPLIED", paths=(), provider_id="", cluster_id=""):
        self.error = o.OperationError(
            code="MACHINE_ERROR_CODE_" + code, reason=reason, message=message[:500],
            certainty="OUTCOME_CERTAINTY_" + left, provider_id=provider_id, cluster_id=cluster_id,
            violations=[o.FieldViolation(path=path[:60], description=text) for path, text in paths[:20]])


class InHand:
    """An operation in hand. Its code sets `left` to PARTIAL once it made something."""

    def __init__(self, driver, op):
        self.driver, self.op, self.left, self.task, self.frames = driver, op, "NOT_APPLIED", None, None
        self.verb = op.WhichOneof("request")
        self.request = getattr(op, self.verb) if self.verb else None
        self.mutates = self.verb in MUTATIONS

    async def machine_class(self):
        ref, cache = self.op.machine_class, self.driver.classes
        key = (ref.namespace, ref.name, ref.revision)
        if key not in cache:
            answer = await self.driver.ask("GetMachineClass", lambda: d.GetMachineClassRequest(ref=ref))
            if len(cache) >= CLASSES:
                cache.clear()
            cache[key] = answer
        return cache[key]

    async def secret(self):
        """The newest secret of the class, as a mapping of bytes; None if the class has none. It is not cached."""
        ref = (await self.machine_class()).secret
        if ref.name:
            newest = o.ObjectRevision(namespace=ref.namespace, name=ref.name)
            return (await self.driver.ask("GetSecret", lambda: d.GetSecretRequest(
                ref=newest, session_id=self.driver.session_id, operation_id=self.op.operation_id))).data

    def progress(self, stage):
        self.driver.send_live(progress=s.OperationProgress(operation_id=self.op.operation_id, stage=stage))

    async def work(self):
        limit = seconds(self.op.timeout) or TIMEOUTS[self.verb]
        return await asyncio.wait_for(self.driver.verbs[self.verb](self), limit - min(1, limit / 5))

    def outcome(self):
        """What became of the task."""
        error = None if self.task.cancelled() else self.task.exception()
        if self.task.cancelled():
            error = Failed("CANCELED", "CANCELED", "stopped because the core asked for it", self.left)
        elif error is None:
            return {"result": o.OperationResult(**{self.verb: self.task.result()})}
        elif isinstance(error, asyncio.TimeoutError):
            error = Failed("DEADLINE_EXCEEDED", "TIMEOUT", "the infrastructure took too long", self.left)
        elif not isinstance(error, Failed):
            name, where = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            log.error("%s failed: %s\n%s", self.verb, name, where)  # not its text: who knows what is in there
            error = Failed("INTERNAL", "DEFECT", f"a defect of the driver: {name}", "UNKNOWN")
        return {"error": error.error}


class Driver:
    """The sessions with the core, one after the other, and what outlives them."""

    def __init__(self, provider, version, max_in_flight, verbs, knows):
        self.provider, self.version, self.max_in_flight, self.knows = provider, version, max_in_flight, knows
        self.verbs = {verb.__name__: verb for verb in verbs}
        self.instance_id, self.session_id, self.last_session, self.standby = str(uuid.uuid4()), "", "", True
        self.draining = self.ending = False
        self.held = {}  # operation id -> InHand: what runs, and what ended and is not acknowledged
        self.classes, self.live, self.outbox = {}, asyncio.Event(), asyncio.Queue(QUEUE)
        self.order, self.term, self.orders_left = None, 0, []

    async def serve(self):
        limit = 0.2
        while True:
            begun, self.pause = time.monotonic(), None
            try:
                await self.session()
            except (OSError, KeyError) as error:  # no token, no certificate: they may come
                log.error("cannot dial: %s", error)
            if self.ending:
                return
            limit = 0.2 if time.monotonic() - begun > 60 else limit
            pause, limit = self.pause or random.uniform(0.1, limit), min(2 * limit, 30)
            log.info("dialing again in %.1f s", pause)
            await asyncio.sleep(pause)

    async def session(self):
        channel, self.outbox, self.heard, self.silence = dial(), asyncio.Queue(QUEUE), 0, 20
        self.stub = driver_pb2_grpc.DriverServiceStub(channel)
        self.call = self.stub.Register(metadata=token())  # no deadline: it lives for days
        writer = asyncio.create_task(self.write())
        self.send(hello=self.hello())
        try:
            while (frame := await asyncio.wait_for(self.call.read(), self.silence)) is not grpc.aio.EOF:
                self.heard, arm = frame.seq, frame.WhichOneof("frame")
                getattr(self, f"on_{arm}")(getattr(frame, arm) if arm else frame)  # never waits for an operation
            log.info("the core ended the session: %s", (await self.call.code()).name)
        except (grpc.aio.AioRpcError, asyncio.TimeoutError) as error:
            log.warning("no session: %s", error.details() if isinstance(error, grpc.RpcError) else "the core is silent")
        except asyncio.CancelledError:
            if self.ending:  # else send() or on_draining() hung up
                raise
        finally:
            self.live.clear()
            writer.cancel()
            await channel.close(grace=5)

    async def write(self):
        """The only writer: it numbers the frames."""
        for seq in itertools.count(1):
            frame = await self.outbox.get()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader hears of it
                await self.call.write(s.RegisterRequest(seq=seq, ack_seq=self.heard, **frame))
            self.outbox.task_done()

    def send(self, **frame):
        try:
            self.outbox.put_nowait(frame)
        except asyncio.QueueFull:  # the core does not read; results are kept in any case
            self.call.cancel()

    def send_live(self, **frame):
        if self.live.is_set():
            self.send(**frame)

    def hello(self):
        held = sorted(self.held.values(), key=lambda x: x.frames is not None)[:HELD_IN_HELLO]  # what runs comes first
        operations = [s.HeldOperation(
            operation_id=x.op.operation_id, idempotency_key=x.op.idempotency_key, target=x.op.target,
            machine_class=x.op.machine_class, kind="OPERATION_KIND_" + (x.verb or "unspecified").upper(),
            state="HELD_STATE_COMPLETED" if x.frames else "HELD_STATE_RUNNING") for x in held]
        return s.Hello(
            provider=self.provider, driver_name="python", driver_version=self.version, max_in_flight=self.max_in_flight,
            instance_id=self.instance_id, instance_name=socket.gethostname(), mode="SESSION_MODE_ACTIVE_STANDBY",
            operation_kinds=["OPERATION_KIND_" + verb.upper() for verb in self.verbs],
            capabilities=["DRIVER_CAPABILITY_" + name for name in
                          ("CANCEL", "PROGRESS", "PAGED_LISTS", "RESULT_RETENTION", "ADOPTS_BY_IDENTITY",
                           "READS_OUTSIDE_FENCING", *self.knows)],
            resume=s.Resume(session_id=self.last_session, operations=operations) if self.last_session else None)

    def on_welcome(self, welcome):
        if not self.is_current(welcome):  # of a core that leads no longer: obey nothing, look for another
            return self.call.cancel()
        self.session_id, self.standby = welcome.session_id, welcome.role == s.ROLE_KIND_STANDBY
        self.last_session = welcome.session_id if welcome.fencing_order else self.last_session
        self.silence = 4 * seconds(welcome.heartbeat_interval) or None
        self.classes.clear()  # while away, an invalidation may have been missed
        for held in welcome.verdicts:
            if held.verdict in (s.VERDICT_CANCEL, s.VERDICT_FORGET):
                self.on_cancel(held)
            if held.verdict == s.VERDICT_FORGET:
                self.held.pop(held.operation_id, None)
        self.live.set()
        for x in self.held.values():
            self.hand_over(x)
        self.send(state=self.state())

    def state(self):
        if self.draining:
            return s.DriverState(readiness="READINESS_DRAINING", drain_deadline={"seconds": DRAIN})
        return s.DriverState(readiness="READINESS_READY", max_in_flight=self.max_in_flight)

    def is_current(self, it):
        """Terms are compared within one order; an order that was left for another is over. A look has none."""
        if not it.fencing_order:
            return True
        if it.fencing_order != self.order and it.fencing_order not in self.orders_left:
            self.orders_left = [*self.orders_left[-9:], self.order]
            self.order, self.term = it.fencing_order, 0
        current = it.fencing_order == self.order and it.fencing_term >= self.term
        self.term = it.fencing_term if current else self.term
        return current

    def on_operation(self, op):
        x = self.held.setdefault(op.operation_id, InHand(self, op))
        if not x.task and not x.frames:
            if refusal := self.refusal(x):
                return self.finish(x, {"error": refusal.error})
            x.task = asyncio.create_task(x.work())
            x.task.add_done_callback(lambda _: self.finish(x, x.outcome()))
        if not x.frames:
            self.send(accepted=s.OperationAccepted(operation_id=op.operation_id))
        self.hand_over(x)

    def refusal(self, x):
        if x.verb not in self.verbs:
            return Failed("UNIMPLEMENTED", "UNKNOWN_OPERATION", "this driver does not have that operation")
        if not self.is_current(x.op):
            return Failed("FAILED_PRECONDITION", "STALE_TERM", "a core that leads no longer sent this")
        if x.mutates and not x.op.fencing_order:
            return Failed("FAILED_PRECONDITION", "OUTSIDE_FENCING", "a core that leads nothing changes nothing")
        if self.draining:
            return Failed("UNAVAILABLE", "DRIVER_DRAINING", "this process is about to end")
        if self.standby or sum(not y.frames for y in self.held.values()) > 2 * self.max_in_flight:
            return Failed("UNAVAILABLE", "NOT_SERVING", "this process stands by, or has too much to do")
        if x.mutates and any(y.mutates and y.task and not y.frames and y.op.target.uid == x.op.target.uid
                             for y in self.held.values()):
            return Failed("ABORTED", "TARGET_BUSY", "an earlier operation still works on this target")
        if len(ids := x.op.previous_cluster_ids) > 8 or any(not 0 < len(it.encode()) <= 256 for it in ids):
            return Failed("INVALID_ARGUMENT", "BAD_CLUSTER_IDS", "no cluster can have had these ids")

    def finish(self, x, outcome):
        """Keeps the frames of a result until they are acknowledged; a long list goes in pages."""
        key, pages = x.op.operation_id, []
        if self.held.get(key) is not x:
            return  # the core forgot it
        if "result" in outcome and len(records := outcome["result"].list_machines.machines) > PAGE:
            pages = [s.OperationPage(operation_id=key, index=i // PAGE, machines=records[i:i + PAGE])
                     for i in range(0, len(records), PAGE)]
            outcome = {"result": o.OperationResult(list_machines=o.ListMachinesResponse(pages=len(pages)))}
        completed = s.OperationCompleted(operation_id=key, **outcome)
        x.frames = [*({"page": page} for page in pages), {"completed": completed}]
        for oldest in [y for y in self.held.values() if y.frames][:-RESULTS]:
            del self.held[oldest.op.operation_id]
        self.hand_over(x)

    def hand_over(self, x):
        for frame in x.frames or []:
            self.send_live(**frame)

    def on_cancel(self, cancel):
        x = self.held.get(cancel.operation_id)
        if x and x.task:
            x.task.cancel()

    def on_result_ack(self, ack):
        self.held.pop(ack.operation_id, None)

    def on_role(self, role):
        if self.is_current(role):
            self.standby = role.role == s.ROLE_KIND_STANDBY

    def on_heartbeat(self, beat):
        running = [key for key, x in self.held.items() if not x.frames]
        self.send(heartbeat=s.Heartbeat(sent_at=beat.sent_at, running=running))

    def on_invalidate(self, _):
        self.classes.clear()  # more than was asked for, and cheap

    def on_draining(self, draining):
        self.pause = max(0.1, seconds(draining.reconnect_after))
        asyncio.get_running_loop().call_later(seconds(draining.close_after) or 5, self.call.cancel)

    def on_protocol_error(self, error):
        log.error("the core ends the session: %s %s", error.reason, error.message)
        self.pause = None if error.retry else 300

    def on_unsupported(self, frame):
        log.warning("the core does not know frame %d of this driver", frame.seq)

    def on_None(self, frame):  # these stubs do not know it
        self.send(unsupported=s.UnsupportedFrame(seq=frame.seq))

    async def ask(self, method, request):
        """A call beside the stream; once more if the link broke or the session was over."""
        for again in (True, False):
            await self.live.wait()
            call = asyncio.ensure_future(getattr(self.stub, method)(request(), metadata=token(), timeout=10))
            await asyncio.wait([call])  # not `await call`: the end of the channel cancels it, and nothing else
            error = asyncio.CancelledError() if call.cancelled() else call.exception()
            if error is None:
                return call.result()
            status = error.code().name if isinstance(error, grpc.RpcError) else "CANCELLED"
            if status in ("NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT"):
                break
            await asyncio.sleep(0.5 if again else 0)
        code, reason = {"NOT_FOUND": ("ABORTED", "STALE_REVISION"), "PERMISSION_DENIED": (status, "REFUSED_BY_CORE"),
                        "FAILED_PRECONDITION": (status, "CLASS_TOO_LARGE")}.get(status, ("UNAVAILABLE", "NO_ANSWER"))
        raise Failed(code, reason, f"{method}: {status}")

    async def drain(self):
        """Takes nothing new, finishes what runs, waits for the acknowledgements."""
        self.draining = True
        self.send_live(state=self.state())
        for patience in (DRAIN, 2):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.idle(), patience)
                break
            for x in self.held.values():
                self.on_cancel(x.op)  # each completes with what it left behind
        self.ending = True

    async def idle(self):
        while self.held:
            await asyncio.sleep(0.05)
        if self.live.is_set():
            await self.outbox.join()
            self.ending = True
            await self.call.done_writing()


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


async def main(driver):
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if os.environ.get("OSTLER_EXIT_ON_STDIN_EOF"):  # `ostler up` asks for it: end with the parent
        loop.add_reader(0, lambda: os.read(0, 1024) or (loop.remove_reader(0), stop.set()))
    serving = asyncio.create_task(driver.serve())
    await stop.wait()
    await driver.drain()
    await asyncio.wait([serving], timeout=0.5)  # for the core to end the stream


def run(provider, version, max_in_flight, verbs, knows=()):
    """`knows`: what the operations can do beside what the session can, e.g. PREVIOUS_CLUSTER_IDS."""
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "INFO"), format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(Driver(provider, version, max_in_flight, verbs, knows)))
