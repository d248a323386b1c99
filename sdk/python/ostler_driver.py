"""What every Ostler driver in Python needs around its calls: a server, errors, and what runs. README.md explains."""

import contextlib, os, queue, signal, sys, threading, time, traceback, uuid
from concurrent import futures
from pathlib import Path

import grpc, ostler_trace
from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

sys.path.insert(0, str(Path(__file__).parent / "stubs"))  # made from proto/
if not (Path(__file__).parent / "stubs" / "ostler").exists():
    sys.exit("there are no stubs: README.md, step 1, makes them")
from ostler.driver.v1alpha1 import machine_driver_pb2 as m, machine_driver_pb2_grpc as services, operation_pb2 as o

PAGE = 500  # records in one message of a list
READS = ("Get", "List", "Validate")  # so begin the names of calls that change nothing
ABANDONED = 25  # seconds for calls of an adapter that has gone, once the driver is to end


class Failed(Exception):
    """Ends a call without a result. `left`: what it left behind, if not what `x.left` says; UNKNOWN makes the core look first.

    `reason`: any stable word, or the name of a MachineErrorReason, such as THROTTLED, on which the core acts. `more`: other
    fields of OperationError, such as retry_after, a datetime.timedelta."""

    def __init__(self, code, reason, message, left=None, paths=(), **more):
        super().__init__(message)
        self.error = o.OperationError(
            code=f"MACHINE_ERROR_CODE_{code}", reason=reason, message=message,
            certainty=f"OUTCOME_CERTAINTY_{left}" if left else None,
            typed_reason=dict(o.MachineErrorReason.items()).get(f"MACHINE_ERROR_REASON_{reason}"),
            violations=[o.FieldViolation(path=path, description=text) for path, text in paths], **more)

    def status(self, left):
        """As a gRPC status, which carries the error in its details. `left` holds if the error says nothing else."""
        error = o.OperationError(certainty=f"OUTCOME_CERTAINTY_{left}")
        error.MergeFrom(self.error)  # which stays as it is: it may be raised again
        detail = any_pb2.Any()
        detail.Pack(error)
        code = self.error.code if self.error.code <= 16 else 2  # gRPC has no UNINITIALIZED
        return rpc_status.to_status(status_pb2.Status(code=code, message=self.error.message, details=[detail]))


class Call:
    """What a call of the driver gets: `request`, and `op`, its OperationContext."""

    def __init__(self, request):
        self.request, self.op, self.left = request, request.context, "NOT_APPLIED"
        seconds = request.context.timeout.ToNanoseconds() / 1e9 or 60
        self.cancelled, self.deadline = threading.Event(), time.monotonic() + seconds

    def sleep(self, seconds):
        """Waits, unless the core cancels or the time is over: then the call ends, with what `left` says."""
        if self.cancelled.wait(max(0, min(seconds, self.deadline - time.monotonic()))):
            raise Failed("CANCELED", "CANCELED", "the core cancelled the operation")
        if time.monotonic() >= self.deadline:
            raise Failed("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "the time of the operation is over")


class Server(services.MachineDriverServiceServicer):
    """Serves the methods of `driver`: create_machine(call) for CreateMachine, and so on; those it has.

    `driver.events`, if there is one, is a queue.Queue of DriverEvents: what happens to instances (event.proto)."""

    # `info`: other fields of GetInfoResponse, such as provider_id_comparison="PROVIDER_ID_COMPARISON_CASE_INSENSITIVE"
    def __init__(self, driver, provider, version, max_in_flight=16, capabilities=(), list_lag_seconds=None, **info):
        self.info = m.GetInfoResponse(
            provider=provider, driver_name=provider.split(".")[0], driver_version=version, boot_id=str(uuid.uuid4()),
            capabilities=[f"DRIVER_CAPABILITY_{it}" for it in capabilities], max_in_flight=max_in_flight, **info)
        if list_lag_seconds is not None:  # how late the infrastructure may show what was made; see Hello.list_lag
            self.info.list_lag.FromMilliseconds(round(list_lag_seconds * 1000))
        self.lock, self.calls = threading.Lock(), {}
        self.events, self.ended = getattr(driver, "events", None), threading.Event()
        if self.events is not None:
            self.info.capabilities.append("DRIVER_CAPABILITY_EVENTS")
        for kind in o.OperationKind.keys()[1:]:
            word = kind.removeprefix("OPERATION_KIND_")
            if verb := getattr(driver, word.lower(), None):
                self.info.operation_kinds.append(o.OperationKind.Value(kind))
                self.offer("".join(it.capitalize() for it in word.split("_")), o.OperationKind.Value(kind), verb)

    def offer(self, name, kind, verb):
        def serve(request, rpc):  # in a thread of its own; a mutation goes on when the client has gone
            call = Call(request)
            if name.startswith(READS) and not rpc.add_callback(call.cancelled.set):
                call.cancelled.set()  # the client has gone already
            try:
                return self.work(name, kind, verb, call)
            except Failed as failed:
                error = failed
            except (ConnectionError, TimeoutError):
                error = Failed("UNAVAILABLE", "NO_ANSWER", "the infrastructure does not answer", "UNKNOWN")
            except BaseException as defect:  # SystemExit too: gRPC would never answer; the text may hold secrets
                at = "; ".join(f"{it.filename}:{it.lineno}" for it in traceback.extract_tb(defect.__traceback__)[1:])
                print(f"{name}: {type(defect).__name__} at {at}", file=sys.stderr, flush=True)
                error = Failed("INTERNAL", "DRIVER_DEFECT", f"{name} failed: {type(defect).__name__}", "UNKNOWN")
            return rpc.abort_with_status(error.status(call.left))

        def stream(request, rpc):  # a long list as one message is longer than gRPC takes
            answer, field = serve(request, rpc), "pools" if name == "ListPools" else "machines"
            records = [*getattr(answer, field)]
            answer.ClearField(field)
            yield answer
            for at in range(0, len(records), PAGE):
                yield type(answer)(**{field: records[at:at + PAGE]})

        setattr(self, name, stream if name in ("ListMachines", "ListPools", "GetPoolStatus") else serve)

    def work(self, name, kind, verb, call):
        op, mutates, key = call.op, not name.startswith(READS), object()  # a call by hand may have the id of another
        with self.lock:
            if mutates and any(it.target.uid == op.target.uid and writes for _, it, writes in self.calls.values()):
                raise Failed("ABORTED", "TARGET_BUSY", "another operation of this machine runs")
            running = m.RunningOperation(
                operation_id=op.operation_id, idempotency_key=op.idempotency_key, target=op.target, kind=kind)
            self.calls[key] = call, running, mutates
        try:
            if (answer := verb(call)) is None:
                raise TypeError(f"{name} returned nothing")
            return answer
        finally:
            with self.lock:
                del self.calls[key]

    def GetInfo(self, request, rpc):
        with self.lock:
            running = [running for _, running, mutates in self.calls.values() if mutates]
        info = m.GetInfoResponse(running=running)
        info.MergeFrom(self.info)
        return info

    def WatchEvents(self, request, rpc):
        while self.events is not None and rpc.is_active() and not self.ended.is_set():
            with contextlib.suppress(queue.Empty):
                yield m.WatchEventsResponse(event=self.events.get(timeout=1))

    def Probe(self, request, rpc):
        return m.ProbeResponse()

    def CancelOperation(self, request, rpc):
        with self.lock:
            for call, running, _ in self.calls.values():
                if running.operation_id == request.operation_id:
                    call.cancelled.set()
        return m.CancelOperationResponse()


def serve(driver, provider, version, max_in_flight=16, capabilities=(), **options):
    """Serves until SIGTERM, and then until the calls that run are done."""
    path = os.environ.get("OSTLER_DRIVER_SOCKET") or sys.exit("OSTLER_DRIVER_SOCKET must name a unix socket")
    os.makedirs(os.path.dirname(path) or ".", mode=0o750, exist_ok=True)
    Path(path).unlink(missing_ok=True)
    umask = os.umask(0o117)  # for the socket alone
    server = grpc.server(futures.ThreadPoolExecutor(max_in_flight * 2 + 8))
    servicer = Server(ostler_trace.traced(driver, provider, version), provider, version, max_in_flight, capabilities, **options)
    services.add_MachineDriverServiceServicer_to_server(servicer, server)
    reflection.enable_server_reflection([m.DESCRIPTOR.services_by_name["MachineDriverService"].full_name,
                                         reflection.SERVICE_NAME], server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    os.umask(umask)
    end = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: end.set())
    # Without its file no adapter finds the driver: who started it starts it again.
    while not end.wait(2) and os.path.exists(path): pass
    servicer.ended.set()
    # However long they take: one that is cut off works on, and nobody hears what it did.
    server.stop(threading.TIMEOUT_MAX).wait()
    deadline = time.monotonic() + ABANDONED
    while servicer.calls and time.monotonic() < deadline:  # their adapter has gone, and the core has others do the same soon
        time.sleep(0.1)
    if servicer.calls:
        print("calls of an adapter that has gone did not end in time", file=sys.stderr, flush=True)
        os._exit(1)  # Python would wait for their threads
    end.is_set() or sys.exit(f"{path} was removed")
