package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// Code decides what the core does next: the table of MachineErrorCode in operation.proto says what.
type Code = pb.MachineErrorCode

// What the cloud or the class may answer.
const (
	Canceled           Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_CANCELED
	Unknown            Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_UNKNOWN
	InvalidArgument    Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_INVALID_ARGUMENT
	DeadlineExceeded   Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_DEADLINE_EXCEEDED
	NotFound           Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_NOT_FOUND
	AlreadyExists      Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_ALREADY_EXISTS
	PermissionDenied   Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_PERMISSION_DENIED
	ResourceExhausted  Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_RESOURCE_EXHAUSTED
	FailedPrecondition Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_FAILED_PRECONDITION
	Aborted            Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_ABORTED
	OutOfRange         Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_OUT_OF_RANGE
	Unimplemented      Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_UNIMPLEMENTED
	Internal           Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_INTERNAL
	Unavailable        Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_UNAVAILABLE
	DataLoss           Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_DATA_LOSS
	Unauthenticated    Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_UNAUTHENTICATED
	Uninitialized      Code = pb.MachineErrorCode_MACHINE_ERROR_CODE_UNINITIALIZED
)

// Certainty says what a failed mutation left behind.
type Certainty = pb.OutcomeCertainty

const (
	// NotApplied: nothing changed, the core may send the same request again.
	NotApplied Certainty = pb.OutcomeCertainty_OUTCOME_CERTAINTY_NOT_APPLIED
	// Partial: something changed, the same request again finishes it.
	Partial Certainty = pb.OutcomeCertainty_OUTCOME_CERTAINTY_PARTIAL
	// NotKnown: the driver cannot tell, the core reads before it goes on. If in doubt, this.
	NotKnown Certainty = pb.OutcomeCertainty_OUTCOME_CERTAINTY_UNKNOWN
)

// maxMessage is the limit of the contract for the message of an error, in bytes.
const maxMessage = 2 << 10

// notOurs is the reason on which the core keeps a machine.
const notOurs = "NOT_OURS"

// Error ends a call without a result. It carries the OperationError of the contract.
type Error struct{ Detail *pb.OperationError }

// Fail makes an Error that left nothing behind. The reason is a stable UPPER_SNAKE word, or the name of a
// MachineErrorReason, such as THROTTLED, on which the core acts. The message is for people,
// and the same for the same failure: it has no secrets, no times and no ids of requests.
func Fail(code Code, reason, format string, arguments ...any) *Error {
	message := fmt.Sprintf(format, arguments...)
	message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
	return &Error{&pb.OperationError{Code: code, Reason: reason, TypedReason: typed(reason), Message: message, Certainty: NotApplied}}
}

// typed is the reason of this name that the core acts on, or none.
func typed(reason string) pb.MachineErrorReason {
	return pb.MachineErrorReason(pb.MachineErrorReason_value["MACHINE_ERROR_REASON_"+reason])
}

// NotOurs says that the instance is there and belongs to something else. The core keeps the machine then.
// clusterID is what its tags say, or empty.
func NotOurs(providerID, clusterID string) *Error {
	e := Fail(FailedPrecondition, notOurs, "%s has other tags than this machine", providerID)
	e.Detail.ProviderId, e.Detail.ClusterId = providerID, clusterID
	return e
}

// ReasonOf is the reason of an Error, and of any other error empty.
func ReasonOf(err error) string {
	var known *Error
	errors.As(err, &known)
	if known == nil {
		return ""
	}
	return known.Detail.Reason
}

// Leaving is the same error, with what the failed mutation left behind.
func (e *Error) Leaving(left Certainty) *Error {
	detail := proto.CloneOf(e.Detail)
	detail.Certainty = left
	return &Error{detail}
}

// After is the same error, which asks the core not to try again before d.
func (e *Error) After(d time.Duration) *Error {
	detail := proto.CloneOf(e.Detail)
	detail.RetryAfter = durationpb.New(d)
	return &Error{detail}
}

func (e *Error) Error() string { return e.Detail.Reason + ": " + e.Detail.Message }

// GRPCStatus is what gRPC sends: the error in the details of a status with the same code.
func (e *Error) GRPCStatus() *status.Status {
	code := codes.Code(e.Detail.Code)
	if code > codes.Unauthenticated || code == codes.OK { // gRPC has no UNINITIALIZED
		code = codes.Unknown
	}
	// One string of a cloud that is no UTF-8 would keep the whole error from being sent.
	detail := proto.CloneOf(e.Detail)
	clean(detail.ProtoReflect())
	plain := status.New(code, detail.Message)
	if whole, err := plain.WithDetails(detail); err == nil {
		return whole
	}
	return plain
}

// clean makes the strings of a message valid UTF-8, and those of the messages in its lists.
func clean(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList() && field.Message() != nil:
			for at := range value.List().Len() {
				clean(value.List().Get(at).Message())
			}
		case !field.IsList() && field.Kind() == protoreflect.StringKind:
			message.Set(field, protoreflect.ValueOfString(strings.ToValidUTF8(value.String(), "")))
		}
		return true
	})
}

// asError makes any error one of the contract. One that is not an *Error may come from a library of a cloud, where
// the same codes mean other things: its code is UNKNOWN, and so is what it left behind. An error of ctx itself, which has
// ended, says why the operation ended, and not what it left behind: the core reads first.
func asError(ctx context.Context, verb string, err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return ended(ctx).Leaving(NotKnown)
	}
	return Fail(Unknown, "UNEXPECTED_ERROR", "%s failed: %s", verb, err).Leaving(NotKnown)
}

// ended says why ctx has ended.
func ended(ctx context.Context) *Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Fail(DeadlineExceeded, "DEADLINE_EXCEEDED", "the time of the operation is over")
	}
	return Fail(Canceled, "CANCELED", "the core cancelled the operation")
}

// Sleep waits for d. It fails if the core cancels the operation before that, or the time of the operation is over; left
// is what the operation has left behind then.
func Sleep(ctx context.Context, d time.Duration, left Certainty) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx).Leaving(left)
	}
}
