"""Spans of operations, for a collector that OTEL_EXPORTER_OTLP_ENDPOINT names. README.md says what they need."""

import atexit, os, sys

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk import resources, trace as sdk
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    trace = None


def traced(driver, provider, version):
    """The driver; each of its calls is a span if spans are wanted."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return driver
    if not trace:
        print("OTEL_EXPORTER_OTLP_ENDPOINT is set, but there is no package opentelemetry-exporter-otlp-proto-grpc: no spans",
              file=sys.stderr, flush=True)
        return driver
    who = {"service.version": version}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        who["service.name"] = provider
    spans = sdk.TracerProvider(resource=resources.Resource.create(who), shutdown_on_exit=False)
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=2), schedule_delay_millis=1000))
    trace.set_tracer_provider(spans)
    atexit.register(spans.shutdown)
    return Traced(driver)


class Traced:
    """A driver whose calls are spans, parts of their callers': the spans that it makes itself are parts of these."""

    def __init__(self, driver):
        self.driver = driver

    def __getattr__(self, name):
        it = getattr(self.driver, name)
        if not callable(it):
            return it
        verb = "".join(word.capitalize() for word in name.split("_"))
        return lambda call: spanned(verb, call.op, lambda: it(call))


def spanned(verb, op, work):
    caller = TraceContextTextMapPropagator().extract({"traceparent": op.traceparent})
    if not trace.get_current_span(caller).get_span_context().trace_flags.sampled:
        return work()
    # The text of an error may hold what the infrastructure said.
    with trace.get_tracer("ostler").start_as_current_span(
            verb, caller, trace.SpanKind.SERVER, {"ostler.operation.id": op.operation_id},
            record_exception=False, set_status_on_exception=False) as span:
        try:
            return work()
        except BaseException as error:
            span.set_status(trace.StatusCode.ERROR, word(error))
            raise


def word(error):
    """The code of an error of a driver, else the name of its class."""
    told = getattr(error, "error", None)
    if not hasattr(told, "code"):
        return type(error).__name__
    codes = told.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number
    return codes[told.code].name.removeprefix("MACHINE_ERROR_CODE_") if told.code in codes else str(told.code)
