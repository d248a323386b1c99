package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// flush is how long the last spans may take.
const flush = 2 * time.Second

// spanned begins a span of the operation, a part of its caller's, if the caller records one. What the driver does with the
// context is a part of it, in turn.
func spanned(ctx context.Context, verb string, op *pb.OperationContext) (context.Context, func(error)) {
	caller := propagation.MapCarrier{"traceparent": op.GetTraceparent()}
	ctx = propagation.TraceContext{}.Extract(ctx, caller)
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, func(error) {}
	}
	ctx, span := otel.Tracer("ostler.dev/sdk/go/driver").Start(ctx, camel(verb), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("ostler.operation.id", op.GetOperationId())))
	return ctx, func(err error) {
		var failed *Error
		if errors.As(err, &failed) {
			// Its text may hold what the infrastructure said.
			span.SetStatus(codes.Error, failed.Detail.GetCode().String()[len("MACHINE_ERROR_CODE_"):])
			span.SetAttributes(attribute.String("ostler.error.reason", failed.Detail.GetReason()))
		}
		span.End()
	}
}

// camel is CREATE_MACHINE as CreateMachine.
func camel(verb string) string {
	var name strings.Builder
	for word := range strings.SplitSeq(verb, "_") {
		name.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return name.String()
}

// exportSpans sends spans to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, if it does. What it returns sends the last
// ones.
func exportSpans(info Info) (func(), error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return func() {}, nil
	}
	ctx := context.Background()
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	who, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", info.Provider), attribute.String("service.version", info.Version),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(who))
	otel.SetTracerProvider(spans)
	return func() {
		ctx, cancel := context.WithTimeout(ctx, flush)
		defer cancel()
		_ = spans.Shutdown(ctx) // what a collector does not take is lost
	}, nil
}
