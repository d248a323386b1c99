package driver

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

func TestSpansOfAnOperationArePartsOfItsCallersAndNoneBeginsWithout(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	defer otel.SetTracerProvider(before)
	var inside trace.SpanContext
	it := newServer(fake{create: func(ctx context.Context) error {
		inside = trace.SpanContextFromContext(ctx)
		return Fail(ResourceExhausted, "QUOTA", "the secret is hunter2")
	}}, Info{Provider: "go.ostler.dev"})
	for _, op := range []*pb.OperationContext{
		{OperationId: "1", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{OperationId: "2", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"},
		{OperationId: "3"},
		{OperationId: "4", Traceparent: "nonsense"},
	} {
		if _, err := it.CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: op}); err == nil {
			t.Fatal("the driver failed")
		}
		if op.OperationId == "1" && !inside.IsSampled() {
			t.Error("the driver does not see the span")
		}
	}
	all := spans.GetSpans()
	if len(all) != 1 {
		t.Fatalf("one caller has a span: %v", all)
	}
	span := all[0]
	if span.Name != "CreateMachine" || span.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" ||
		span.Parent.SpanID().String() != "b7ad6b7169203331" || span.Status.Description != "RESOURCE_EXHAUSTED" || len(span.Events) > 0 {
		t.Errorf("%+v", span)
	}
}
