"""The smallest correct session of a driver: without a capability, it resumes nothing and sends no pages or progress."""

import asyncio, contextlib, logging, random, time, uuid

import grpc
from call import Call, Failed, dial, token
from ostler.driver.v1alpha1 import driver_pb2_grpc, session_pb2 as s


class Session:
    def __init__(self, provider, verbs, knows=()):
        self.verbs = {verb.__name__: verb for verb in verbs}
        kinds, knows = ["OPERATION_KIND_" + verb.upper() for verb in self.verbs], ["DRIVER_CAPABILITY_" + it for it in knows]
        self.hello = s.Hello(provider=provider, instance_id=str(uuid.uuid4()), max_in_flight=64, operation_kinds=kinds, capabilities=knows)
        self.calls, self.term, self.active, self.draining = {}, 0, False, False

    async def serve(self):
        limit = 0.2
        while not self.draining or self.running():
            began, self.pause, self.silence, self.out = time.monotonic(), 0, 20, asyncio.Queue(1000)
            async with dial() as channel:
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError, asyncio.TimeoutError, OSError):
                    self.stub = driver_pb2_grpc.DriverServiceStub(channel)
                    self.stream = self.stub.Register(self.frames(self.out), metadata=token())  # no deadline
                    while (frame := await asyncio.wait_for(self.stream.read(), self.silence)) is not grpc.aio.EOF:
                        if handle := getattr(self, f"on_{frame.WhichOneof('frame')}", None):  # else it is not needed
                            handle(getattr(frame, frame.WhichOneof("frame")))  # never waits for an operation
            self.active, self.calls = False, {call.op.operation_id: call for call in self.running()}
            limit = 0.2 if time.monotonic() - began > 60 else min(2 * limit, 30)
            await asyncio.sleep(self.pause or random.uniform(0.1, limit))

    async def frames(self, out):
        yield s.RegisterRequest(hello=self.hello)
        while frame := await out.get():
            yield s.RegisterRequest(**frame)

    def running(self):
        return [call for call in self.calls.values() if not call.answer]

    def on_welcome(self, welcome):
        if self.is_stale(welcome):  # a core that leads no longer
            return self.stream.cancel()
        self.session_id, self.silence = welcome.session_id, 4 * welcome.heartbeat_interval.ToTimedelta().total_seconds()
        self.hello.resume.session_id = welcome.session_id if welcome.fencing_term else self.hello.resume.session_id
        self.on_role(welcome)
        self.say_state()

    def say_state(self):
        end = s.DriverState(readiness="READINESS_DRAINING", drain_deadline={"seconds": 25})
        self.out.put_nowait({"state": end if self.draining else s.DriverState(readiness="READINESS_READY", max_in_flight=64)})

    def is_stale(self, it):
        self.term = max(self.term, it.fencing_term)
        return 0 < it.fencing_term < self.term

    def on_role(self, role):
        self.active = self.active if self.is_stale(role) else role.role == s.ROLE_KIND_ACTIVE

    def on_operation(self, op):
        stale, call = self.is_stale(op), self.calls.setdefault(op.operation_id, Call(self, op))
        if call.answer:
            self.out.put_nowait(call.answer)
        elif call.op is op:
            call.task = asyncio.create_task(self.perform(call, self.refusal(call, stale)))

    def refusal(self, call, stale):
        rules = [(call.verb not in self.verbs, "UNIMPLEMENTED", "UNKNOWN_OPERATION"),
                 (stale, "FAILED_PRECONDITION", "STALE_TERM"),  # of a core that leads no longer
                 (call.mutates and not call.op.fencing_term, "FAILED_PRECONDITION", "OUTSIDE_FENCING"),
                 (self.draining, "UNAVAILABLE", "DRIVER_DRAINING"), (not self.active, "UNAVAILABLE", "STANDBY"),
                 (call.mutates and any(call.meets(it) for it in self.running()), "ABORTED", "TARGET_BUSY")]
        return next((Failed(code, reason, "this process does not do that now") for no, code, reason in rules if no), None)

    async def perform(self, call, refusal):
        outcome = {"error": refusal.error} if refusal else await call.outcome(self.verbs[call.verb])
        call.answer = {"completed": s.OperationCompleted(operation_id=call.op.operation_id, **outcome)}
        self.out.put_nowait(call.answer)

    def on_result_ack(self, ack):
        self.calls = {key: call for key, call in self.calls.items() if key not in ack.operation_ids}

    def on_heartbeat(self, beat):
        beat.running.extend(call.op.operation_id for call in self.running())
        self.out.put_nowait({"heartbeat": beat})

    def on_draining(self, draining):
        self.pause = max(0.1, draining.reconnect_after.ToTimedelta().total_seconds())
        asyncio.get_running_loop().call_later(draining.close_after.ToTimedelta().total_seconds() or 5, self.stream.cancel)

    def on_protocol_error(self, error):
        logging.error("the core ends the session: %s %s", error.reason, error.message)
        self.pause = self.pause if error.retry else 300

    async def drain(self):
        self.draining = True
        self.say_state()
        for _ in filter(lambda _: self.calls, range(500)):
            await asyncio.sleep(0.05)
        self.out.put_nowait(None)  # ends the stream in order
