package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// fake does what a test says.
type fake struct {
	create func(context.Context) error
	remove func() error
	look   func(context.Context) error
	list   int
}

func (f fake) CreateMachine(ctx context.Context, _ *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	return &pb.CreateMachineResponse{}, f.create(ctx)
}

func (f fake) DeleteMachine(context.Context, *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	return &pb.DeleteMachineResponse{}, f.remove()
}

func (f fake) ListMachines(ctx context.Context, _ *pb.ListMachinesRequest) ([]*pb.MachineRecord, error) {
	if f.look != nil {
		return nil, f.look(ctx)
	}
	return make([]*pb.MachineRecord, f.list), nil
}

// serve serves the driver on a unix socket for the time of the test.
func serve(t *testing.T, d Driver) pb.MachineDriverServiceClient {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	socket, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	calls := serving(newServer(d, Info{Provider: "go.ostler.dev"}))
	go func() { _ = calls.Serve(socket) }()
	t.Cleanup(calls.Stop)
	_, client := dial(t, path)
	return client
}

func dial(t *testing.T, path string) (*grpc.ClientConn, pb.MachineDriverServiceClient) {
	t.Helper()
	link, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link, pb.NewMachineDriverServiceClient(link)
}

func operation(id, uid string) *pb.OperationContext {
	return &pb.OperationContext{OperationId: id, Target: &pb.Target{Uid: uid}}
}

// detail is the OperationError in the status of a call, which must be there.
func detail(t *testing.T, err error) (codes.Code, *pb.OperationError) {
	t.Helper()
	said, _ := status.FromError(err)
	for _, it := range said.Details() {
		if it, ok := it.(*pb.OperationError); ok {
			return said.Code(), it
		}
	}
	t.Fatalf("%v has no OperationError", err)
	return 0, nil
}

func TestEveryFailureCarriesItsError(t *testing.T) {
	for name, row := range map[string]struct {
		fails     func(context.Context) error
		status    codes.Code
		code      Code
		reason    string
		certainty Certainty
	}{
		"an error of the contract":    {func(context.Context) error { return Fail(ResourceExhausted, "QUOTA", "no more") }, codes.ResourceExhausted, ResourceExhausted, "QUOTA", NotApplied},
		"what was left behind":        {func(context.Context) error { return Fail(Unavailable, "DOWN", "").Leaving(Partial) }, codes.Unavailable, Unavailable, "DOWN", Partial},
		"a code that gRPC has not":    {func(context.Context) error { return Fail(Uninitialized, "WAIT", "") }, codes.Unknown, Uninitialized, "WAIT", NotApplied},
		"any other error":             {func(context.Context) error { return errors.New("eof") }, codes.Unknown, Unknown, "UNEXPECTED_ERROR", NotKnown},
		"a status of a cloud library": {func(context.Context) error { return status.Error(codes.NotFound, "project") }, codes.Unknown, Unknown, "UNEXPECTED_ERROR", NotKnown},
		"a panic":                     {func(context.Context) error { panic("a secret") }, codes.Internal, Internal, "DRIVER_DEFECT", NotKnown},
		"the error of its context":    {func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("create: %w", ctx.Err()) }, codes.DeadlineExceeded, DeadlineExceeded, "DEADLINE_EXCEEDED", NotKnown},
		"a deadline of a library":     {func(context.Context) error { return context.DeadlineExceeded }, codes.Unknown, Unknown, "UNEXPECTED_ERROR", NotKnown},
		"the end of its time":         {func(ctx context.Context) error { return Sleep(ctx, time.Hour, Partial) }, codes.DeadlineExceeded, DeadlineExceeded, "DEADLINE_EXCEEDED", Partial},
	} {
		t.Run(name, func(t *testing.T) {
			op := operation("1", "u")
			op.Timeout = durationpb.New(50 * time.Millisecond)
			_, err := serve(t, fake{create: row.fails}).CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: op})
			code, said := detail(t, err)
			if code != row.status || said.Code != row.code || said.Reason != row.reason || said.Certainty != row.certainty {
				t.Errorf("%v %v", code, said)
			}
		})
	}
}

func TestATextThatIsNoUTF8LosesNoError(t *testing.T) {
	failed := asError(t.Context(), "CREATE_MACHINE", errors.New("caf\xe9")).Leaving(Partial)
	failed.Detail.ProviderCode = "\xff"
	failed.Detail.Violations = []*pb.FieldViolation{{Path: "tags", Description: "\xe9"}}
	_, err := serve(t, fake{create: func(context.Context) error { return failed }}).
		CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation("1", "u")})
	if _, said := detail(t, err); said.Certainty != Partial || !strings.HasSuffix(said.Message, "caf") || said.Violations[0].Path != "tags" {
		t.Error(said)
	}
}

func TestAnErrorThatManyCallsReturnStaysAsItIs(t *testing.T) {
	shared := Fail(Unavailable, "CLOUD_AWAY", "")
	var calls sync.WaitGroup
	for _, left := range []Certainty{Partial, NotKnown} {
		calls.Go(func() {
			if said := shared.Leaving(left).After(time.Minute).Detail; said.Certainty != left {
				t.Error(said)
			}
		})
	}
	calls.Wait()
	if shared.Detail.Certainty != NotApplied || shared.Detail.RetryAfter != nil {
		t.Error(shared.Detail)
	}
}

// defective panics wherever no operation runs.
type defective struct{ fake }

func (defective) Probe(context.Context) error { panic("a secret") }

func (defective) WatchEvents(context.Context, func(*pb.DriverEvent) error) error { panic("a secret") }

func (defective) ListScope(*pb.OperationContext) string { panic("a secret") }

func TestAPanicEndsItsCallAlone(t *testing.T) {
	client := serve(t, defective{})
	if said, err := client.Probe(t.Context(), &pb.ProbeRequest{}); err != nil || !strings.Contains(said.NotReadyReason, "Probe panicked") {
		t.Error(said, err)
	}
	events, _ := client.WatchEvents(t.Context(), &pb.WatchEventsRequest{})
	_, err := events.Recv()
	if code, said := detail(t, err); code != codes.Internal || said.Certainty != NotKnown {
		t.Error(code, said)
	}
	list, _ := client.ListMachines(t.Context(), &pb.ListMachinesRequest{Context: operation("1", "")})
	_, err = list.Recv()
	if code, said := detail(t, err); code != codes.Internal || strings.Contains(said.Message, "secret") {
		t.Error(code, said)
	}
}

func TestAnInstanceThatIsNotOursIsAnOutcomeOfADeletion(t *testing.T) {
	client := serve(t, fake{remove: func() error { return NotOurs("go:///1", "other") }})
	answer, err := client.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: operation("1", "u")})
	if err != nil || answer.Outcome != pb.DeletionOutcome_DELETION_OUTCOME_NOT_OURS || answer.ProviderId != "go:///1" || answer.ClusterId != "other" {
		t.Error(answer, err)
	}
}

func TestAnOperationGoesOnWithoutItsCallerAndKeepsItsMachine(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	client := serve(t, fake{create: func(ctx context.Context) error {
		close(began)
		err := Sleep(ctx, time.Hour, NotApplied)
		ended <- err
		return err
	}})
	caller, leave := context.WithCancel(t.Context())
	go func() {
		_, _ = client.CreateMachine(caller, &pb.CreateMachineRequest{Context: operation("first", "u")})
	}()
	<-began
	leave()

	_, err := client.CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation("second", "u")})
	if code, said := detail(t, err); code != codes.Aborted || said.Reason != "TARGET_BUSY" {
		t.Error(code, said)
	}
	info, err := client.GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil || len(info.Running) != 1 || info.Running[0].OperationId != "first" {
		t.Error(info, err)
	}
	if _, err := client.CancelOperation(t.Context(), &pb.CancelOperationRequest{OperationId: "first"}); err != nil {
		t.Error(err)
	}
	var failed *Error
	if err := <-ended; !errors.As(err, &failed) || failed.Detail.Code != Canceled {
		t.Error(err)
	}
}

func TestAReadEndsWithItsCaller(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	client := serve(t, fake{look: func(ctx context.Context) error {
		close(began)
		select {
		case <-ctx.Done():
			ended <- nil
		case <-time.After(10 * time.Second):
			ended <- errors.New("it went on")
		}
		return ctx.Err()
	}})
	caller, leave := context.WithCancel(t.Context())
	if _, err := client.ListMachines(caller, &pb.ListMachinesRequest{Context: operation("first", "")}); err != nil {
		t.Fatal(err)
	}
	<-began
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAnOperationThatEndsWellAfterItWasCancelledSaysSo(t *testing.T) {
	began, release, answer := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	client := serve(t, fake{create: func(context.Context) error {
		close(began)
		<-release
		return nil
	}})
	go func() {
		_, err := client.CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation("first", "u")})
		answer <- err
	}()
	<-began
	if _, err := client.CancelOperation(t.Context(), &pb.CancelOperationRequest{OperationId: "first"}); err != nil {
		t.Error(err)
	}
	_, err := client.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: operation("second", "u")})
	if _, said := detail(t, err); said.Reason != "TARGET_BUSY" {
		t.Error(said)
	}
	close(release)
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

func TestASignalEndsTheDriverAfterItsCallsOrAfterItsAdapter(t *testing.T) {
	for name, adapterStays := range map[string]bool{"the adapter waits": true, "the adapter has gone": false} {
		t.Run(name, func(t *testing.T) {
			began, release := make(chan struct{}), make(chan struct{})
			path := filepath.Join(t.TempDir(), "s")
			socket, err := listen(path)
			if err != nil {
				t.Fatal(err)
			}
			end, signal := context.WithCancel(t.Context())
			it := newServer(fake{create: func(context.Context) error {
				close(began)
				<-release
				return nil
			}}, Info{Provider: "go.ostler.dev"})
			ended := make(chan error, 1)
			limit := time.Duration(0)
			if adapterStays {
				limit = time.Hour
			}
			go func() { ended <- serveUntil(end, socket, it, limit) }()
			link, client := dial(t, path)
			answer := make(chan error, 1)
			go func() {
				_, err := client.CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation("1", "u")})
				answer <- err
			}()
			<-began
			signal()
			if adapterStays {
				close(release)
				if err := errors.Join(<-answer, <-ended); err != nil {
					t.Error(err)
				}
				return
			}
			link.Close()
			if err := <-ended; err == nil {
				t.Error("an operation runs, and nothing says so")
			}
			close(release)
		})
	}
}

func TestOnlyWhatADriverHasIsOffered(t *testing.T) {
	client := serve(t, fake{})
	info, err := client.GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil || len(info.OperationKinds) != 3 {
		t.Error(info, err)
	}
	_, err = client.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Context: operation("1", "u")})
	if code, said := detail(t, err); code != codes.Unimplemented || said.Certainty != NotApplied {
		t.Error(code, said)
	}
}

func TestALongListComesInPages(t *testing.T) {
	stream, err := serve(t, fake{list: 1001}).ListMachines(t.Context(), &pb.ListMachinesRequest{Context: operation("1", "")})
	if err != nil {
		t.Fatal(err)
	}
	var pages []int
	for page, err := stream.Recv(); err == nil; page, err = stream.Recv() {
		pages = append(pages, len(page.Machines))
	}
	if len(pages) != 3 || pages[0] != 500 || pages[2] != 1 {
		t.Error(pages)
	}
}

func TestASocketFileThatIsLeftIsReplacedAndOthersCannotUseIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "s")
	for range 2 {
		socket, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		socket.(*net.UnixListener).SetUnlinkOnClose(false)
		socket.Close()
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Error(info, err)
	}
}

func TestASocketThatSomebodyRemovedIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "s")
	socket, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	end, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serveUntil(end, socket, newServer(fake{}, Info{Provider: "go.ostler.dev"}), time.Hour)
	}()
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	link, client := dial(t, path)
	info, err := client.GetInfo(t.Context(), &pb.GetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.Provider != "go.ostler.dev" {
		t.Error(info, err)
	}
	link.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// teller is a fake that tells what is in its queue.
type teller struct {
	fake
	Events
}

func (teller) ListScope(*pb.OperationContext) string { return "account" }

func TestEventsAreToldAndAreACapability(t *testing.T) {
	queue := make(Events, 1)
	for _, id := range []string{"fake:///1", "fake:///2"} { // the second one is dropped
		queue.Tell(&pb.DriverEvent{Kind: pb.InstanceEvent_INSTANCE_EVENT_GONE, ProviderId: id})
	}
	client := serve(t, teller{Events: queue})
	info, err := client.GetInfo(context.Background(), &pb.GetInfoRequest{})
	if err != nil || len(info.Capabilities) != 1 || info.Capabilities[0] != pb.DriverCapability_DRIVER_CAPABILITY_EVENTS {
		t.Fatalf("%v %v", info, err)
	}
	told, err := client.WatchEvents(context.Background(), &pb.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	event, err := told.Recv()
	if err != nil || event.Event.ProviderId != "fake:///1" {
		t.Fatalf("%v %v", event, err)
	}
	if len(queue) > 0 {
		t.Fatal("a full queue took more")
	}
	list, err := client.ListMachines(context.Background(), &pb.ListMachinesRequest{Context: operation("op", "uid")})
	if err != nil {
		t.Fatal(err)
	}
	part, err := list.Recv()
	if err != nil || part.ListScope != "account" {
		t.Fatalf("%v %v", part, err)
	}
}

func TestADriverWithoutEventsSaysSo(t *testing.T) {
	told, err := serve(t, fake{}).WatchEvents(context.Background(), &pb.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = told.Recv(); status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
}
