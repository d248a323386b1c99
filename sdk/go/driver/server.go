// Package driver serves an Ostler driver: it is what stands around the calls in machine_driver.proto.
//
// Write a type that implements [Driver], and those of the optional interfaces whose operations it has, and give it to
// [Main]. The server knows which operations run, hands each one a context that ends when the core cancels it or its
// time is over, refuses a second mutation of the same machine, and turns errors into those of the contract.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// Driver has the operations that every driver has. Requests carry all that an operation needs in Context: class,
// secret, identity. operation.proto has a table for each of what to answer; fail with an [Error].
//
// The context ends when the core cancels the operation or its time is over. That of a read also ends with its caller.
type Driver interface {
	CreateMachine(context.Context, *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error)
	// DeleteMachine may fail with [NotOurs]: the core gets the outcome NOT_OURS.
	DeleteMachine(context.Context, *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error)
	// ListMachines returns all or fails: the core believes what it gets.
	ListMachines(context.Context, *pb.ListMachinesRequest) ([]*pb.MachineRecord, error)
}

// StatusGetter can read one instance. Without it the core looks for the instance in the list.
type StatusGetter interface {
	GetMachineStatus(context.Context, *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error)
}

// Initializer does what has to be done once, after the instance exists.
type Initializer interface {
	InitializeMachine(context.Context, *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error)
}

// Updater changes running instances.
type Updater interface {
	UpdateMachine(context.Context, *pb.UpdateMachineRequest) (*pb.UpdateMachineResponse, error)
}

// VolumeNamer names the volumes behind persistent volumes.
type VolumeNamer interface {
	GetVolumeIds(context.Context, *pb.GetVolumeIdsRequest) (*pb.GetVolumeIdsResponse, error)
}

// ClassValidator checks provider specs.
type ClassValidator interface {
	ValidateClass(context.Context, *pb.ValidateClassRequest) (*pb.ValidateClassResponse, error)
}

// Prober says whether the driver can work: an error makes it NOT_READY, and its text is shown. It must answer within
// 5 s, so it must not wait for the infrastructure.
type Prober interface {
	Probe(context.Context) error
}

// EventSource tells the core what happens to instances, until the context ends: see event.proto. An event makes the core
// look and proves nothing. An end before that is taken as a break: WatchEvents is called again.
type EventSource interface {
	WatchEvents(ctx context.Context, tell func(*pb.DriverEvent) error) error
}

// Events is an EventSource: a queue of the length that it is made with. What is told while it is full is dropped, for the core
// reads all when it connects.
type Events chan *pb.DriverEvent

// Tell adds an event, and does not wait.
func (e Events) Tell(event *pb.DriverEvent) {
	select {
	case e <- event:
	default:
	}
}

// WatchEvents tells the core what was added.
func (e Events) WatchEvents(ctx context.Context, tell func(*pb.DriverEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-e:
			if err := tell(event); err != nil {
				return err
			}
		}
	}
}

// ListScoper says what the list of a class is of, e.g. account and region: see ListMachinesResponse.list_scope.
type ListScoper interface {
	ListScope(*pb.OperationContext) string
}

// PartLister reads the parts that belong to no instance: see ListMachinesResponse.parts.
type PartLister interface {
	ListParts(context.Context, *pb.ListMachinesRequest) ([]*pb.PartRecord, error)
}

// IsOfCluster says whether the id in the tags of an instance is that of the core's cluster: now, or before.
func IsOfCluster(op *pb.OperationContext, id string) bool {
	return id != "" && (id == op.GetClusterId() || slices.Contains(op.GetPreviousClusterIds(), id))
}

// Info says who the driver is.
type Info struct {
	// Provider is a DNS name. Classes name it in `provider`.
	Provider string
	// Version is for people.
	Version string
	// MaxInFlight is how many operations the driver works on at once; 0: 16.
	MaxInFlight uint32
	// ListLag is how long after a call the infrastructure may not show what that made, and may go on to make it: see
	// `Hello.list_lag` in session.proto. nil: not known, which counts as a minute.
	ListLag *time.Duration
	// ProviderIDs is how the provider ids of Nodes are compared with those of records: see `Hello.provider_id_comparison` in
	// session.proto. Zero: to the letter.
	ProviderIDs pb.ProviderIdComparison
	// PreviousClusterIDs says that all operations look for previous cluster ids as well: see "Cluster ids that change" in
	// driver.proto.
	PreviousClusterIDs bool
	// IdentityByName says that the driver finds instances by their names alone: see the capability in session.proto for
	// what is lost by it.
	IdentityByName bool
	// PoolSurge says that groups replace outdated instances by themselves.
	PoolSurge bool
	// PoolScalesIn says that groups may delete instances that the core did not name.
	PoolScalesIn bool
}

// pageSize is how many machines one response of a list has at most: the contract wants pages above 500.
const pageSize = 500

// call is an operation whose call has not ended.
type call struct {
	running *pb.RunningOperation
	mutates bool
	cancel  context.CancelFunc
}

// server is the MachineDriverService of a Driver.
type server struct {
	pb.UnimplementedMachineDriverServiceServer
	driver Driver
	info   *pb.GetInfoResponse

	// ended ends with the process; it ends the streams of events, which have no end of their own.
	ended context.Context

	mu    sync.Mutex
	calls map[*call]struct{}
}

func newServer(d Driver, info Info) *server {
	who := &pb.GetInfoResponse{
		Provider: info.Provider, DriverName: filepath.Base(os.Args[0]), DriverVersion: info.Version,
		BootId: uuid.NewString(), MaxInFlight: info.MaxInFlight, ProviderIdComparison: info.ProviderIDs,
	}
	if info.ListLag != nil {
		who.ListLag = durationpb.New(*info.ListLag)
	}
	if info.PreviousClusterIDs {
		who.Capabilities = append(who.Capabilities, pb.DriverCapability_DRIVER_CAPABILITY_PREVIOUS_CLUSTER_IDS)
	}
	if info.IdentityByName {
		who.Capabilities = append(who.Capabilities, pb.DriverCapability_DRIVER_CAPABILITY_IDENTITY_BY_NAME)
	}
	if info.PoolSurge {
		who.Capabilities = append(who.Capabilities, pb.DriverCapability_DRIVER_CAPABILITY_POOL_SURGE)
	}
	if info.PoolScalesIn {
		who.Capabilities = append(who.Capabilities, pb.DriverCapability_DRIVER_CAPABILITY_POOL_SCALES_IN)
	}
	if _, tells := d.(EventSource); tells {
		who.Capabilities = append(who.Capabilities, pb.DriverCapability_DRIVER_CAPABILITY_EVENTS)
	}
	offers := func(has bool, kinds ...pb.OperationKind) {
		if has {
			who.OperationKinds = append(who.OperationKinds, kinds...)
		}
	}
	offers(true, pb.OperationKind_OPERATION_KIND_CREATE_MACHINE, pb.OperationKind_OPERATION_KIND_DELETE_MACHINE,
		pb.OperationKind_OPERATION_KIND_LIST_MACHINES)
	_, has := d.(StatusGetter)
	offers(has, pb.OperationKind_OPERATION_KIND_GET_MACHINE_STATUS)
	_, has = d.(Initializer)
	offers(has, pb.OperationKind_OPERATION_KIND_INITIALIZE_MACHINE)
	_, has = d.(Updater)
	offers(has, pb.OperationKind_OPERATION_KIND_UPDATE_MACHINE)
	_, has = d.(VolumeNamer)
	offers(has, pb.OperationKind_OPERATION_KIND_GET_VOLUME_IDS)
	_, has = d.(ClassValidator)
	offers(has, pb.OperationKind_OPERATION_KIND_VALIDATE_CLASS)
	offers(true, poolKinds(d)...)
	return &server{driver: d, info: who, ended: context.Background(), calls: map[*call]struct{}{}}
}

// begin admits an operation, unless another mutation of its machine runs.
func (s *server) begin(
	ctx context.Context, kind pb.OperationKind, mutates bool, op *pb.OperationContext,
) (context.Context, func(), error) {
	timeout := time.Minute
	if op.GetTimeout().AsDuration() > 0 {
		timeout = op.GetTimeout().AsDuration()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.calls {
		if mutates && other.mutates && other.running.Target.GetUid() == op.GetTarget().GetUid() {
			return nil, nil, Fail(Aborted, "TARGET_BUSY", "another operation of this machine runs")
		}
	}
	if mutates {
		ctx = context.WithoutCancel(ctx) // it goes on when its caller has gone
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	it := &call{mutates: mutates, cancel: cancel, running: &pb.RunningOperation{
		OperationId: op.GetOperationId(), IdempotencyKey: op.GetIdempotencyKey(), Target: op.GetTarget(), Kind: kind,
	}}
	s.calls[it] = struct{}{}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, it)
	}, nil
}

// request is any request of an operation.
type request interface{ GetContext() *pb.OperationContext }

// work does one operation from its admission to its answer.
func work[Q request, A any](ctx context.Context, s *server, kind pb.OperationKind, mutates bool, q Q,
	do func(context.Context, Q) (A, error),
) (answer A, err error) {
	ctx, end, err := s.begin(ctx, kind, mutates, q.GetContext())
	if err != nil {
		return answer, err
	}
	defer end()
	verb := kind.String()[len("OPERATION_KIND_"):]
	ctx, ended := spanned(ctx, verb, q.GetContext())
	defer func() { ended(err) }()
	if answer, err = do(ctx, q); err != nil {
		err = asError(ctx, verb, err)
	}
	return answer, err
}

// caught makes a panic of the driver an error: the process goes on, with all operations that run.
func caught(call string, err *error) {
	if defect := recover(); defect != nil {
		// Its text may hold secrets; where it happened does not.
		slog.Error("the driver panicked", "call", call, "type", fmt.Sprintf("%T", defect), "stack", string(debug.Stack()))
		*err = Fail(Internal, "DRIVER_DEFECT", "%s panicked: see the log of the driver", path.Base(call)).Leaving(NotKnown)
	}
}

// serving is a gRPC server of s in which no call ends the process.
func serving(s *server, options ...grpc.ServerOption) *grpc.Server {
	it := grpc.NewServer(append(options,
		grpc.UnaryInterceptor(func(ctx context.Context, q any, call *grpc.UnaryServerInfo, do grpc.UnaryHandler) (answer any, err error) {
			defer caught(call.FullMethod, &err)
			return do(ctx, q)
		}),
		grpc.StreamInterceptor(func(s any, stream grpc.ServerStream, call *grpc.StreamServerInfo, do grpc.StreamHandler) (err error) {
			defer caught(call.FullMethod, &err)
			return do(s, stream)
		}),
	)...)
	pb.RegisterMachineDriverServiceServer(it, s)
	return it
}

// offered does the operation if the driver has it.
func offered[I any, Q request, A any](ctx context.Context, s *server, kind pb.OperationKind, mutates bool, q Q,
	do func(I, context.Context, Q) (A, error),
) (A, error) {
	it, has := s.driver.(I)
	if !has {
		var none A
		return none, Fail(Unimplemented, "NOT_OFFERED", "the driver has no such operation")
	}
	return work(ctx, s, kind, mutates, q, func(ctx context.Context, q Q) (A, error) { return do(it, ctx, q) })
}

func (s *server) CreateMachine(ctx context.Context, q *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	return work(ctx, s, pb.OperationKind_OPERATION_KIND_CREATE_MACHINE, true, q, s.driver.CreateMachine)
}

func (s *server) DeleteMachine(ctx context.Context, q *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	answer, err := work(ctx, s, pb.OperationKind_OPERATION_KIND_DELETE_MACHINE, true, q, s.driver.DeleteMachine)
	var failed *Error
	if errors.As(err, &failed) && failed.Detail.Reason == notOurs {
		return &pb.DeleteMachineResponse{
			Outcome:    pb.DeletionOutcome_DELETION_OUTCOME_NOT_OURS,
			ProviderId: failed.Detail.ProviderId, ClusterId: failed.Detail.ClusterId,
		}, nil
	}
	return answer, err
}

func (s *server) InitializeMachine(ctx context.Context, q *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_INITIALIZE_MACHINE, true, q, Initializer.InitializeMachine)
}

func (s *server) UpdateMachine(ctx context.Context, q *pb.UpdateMachineRequest) (*pb.UpdateMachineResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_UPDATE_MACHINE, true, q, Updater.UpdateMachine)
}

func (s *server) GetMachineStatus(ctx context.Context, q *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_GET_MACHINE_STATUS, false, q, StatusGetter.GetMachineStatus)
}

func (s *server) GetVolumeIds(ctx context.Context, q *pb.GetVolumeIdsRequest) (*pb.GetVolumeIdsResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_GET_VOLUME_IDS, false, q, VolumeNamer.GetVolumeIds)
}

func (s *server) ValidateClass(ctx context.Context, q *pb.ValidateClassRequest) (*pb.ValidateClassResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_VALIDATE_CLASS, false, q, ClassValidator.ValidateClass)
}

func (s *server) ListMachines(q *pb.ListMachinesRequest, stream grpc.ServerStreamingServer[pb.ListMachinesResponse]) error {
	machines, err := work(stream.Context(), s, pb.OperationKind_OPERATION_KIND_LIST_MACHINES, false, q, s.driver.ListMachines)
	if it, has := s.driver.(ListScoper); has && err == nil {
		err = stream.Send(&pb.ListMachinesResponse{ListScope: it.ListScope(q.GetContext())})
	}
	for some := range slices.Chunk(machines, pageSize) {
		if err == nil {
			err = stream.Send(&pb.ListMachinesResponse{Machines: some})
		}
	}
	it, has := s.driver.(PartLister)
	if !has || err != nil {
		return err
	}
	parts, err := work(stream.Context(), s, pb.OperationKind_OPERATION_KIND_LIST_MACHINES, false, q, it.ListParts)
	for some := range slices.Chunk(parts, pageSize) {
		if err == nil {
			err = stream.Send(&pb.ListMachinesResponse{Parts: some})
		}
	}
	return err
}

// WatchEvents runs the driver's own until the stream or the process ends.
func (s *server) WatchEvents(_ *pb.WatchEventsRequest, stream grpc.ServerStreamingServer[pb.WatchEventsResponse]) error {
	it, has := s.driver.(EventSource)
	if !has {
		return Fail(Unimplemented, "NOT_OFFERED", "the driver tells no events")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	return it.WatchEvents(ctx, func(event *pb.DriverEvent) error {
		return stream.Send(&pb.WatchEventsResponse{Event: event})
	})
}

func (s *server) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := proto.CloneOf(s.info)
	for it := range s.calls {
		if it.mutates {
			info.Running = append(info.Running, it.running)
		}
	}
	return info, nil
}

func (s *server) Probe(ctx context.Context, _ *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	if it, has := s.driver.(Prober); has {
		if err := probe(ctx, it); err != nil {
			return &pb.ProbeResponse{NotReadyReason: Fail(Unknown, "", "%s", err).Detail.Message}, nil
		}
	}
	return &pb.ProbeResponse{}, nil
}

func probe(ctx context.Context, it Prober) (err error) {
	defer caught("Probe", &err)
	return it.Probe(ctx)
}

func (s *server) CancelOperation(_ context.Context, q *pb.CancelOperationRequest) (*pb.CancelOperationResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for it := range s.calls {
		if it.running.OperationId == q.OperationId {
			it.cancel()
		}
	}
	return &pb.CancelOperationResponse{}, nil
}

// listen opens the socket for the adapter's user and group alone. A socket file that is left there is removed.
func listen(path string) (net.Listener, error) {
	if path == "" {
		return nil, errors.New("OSTLER_DRIVER_SOCKET must name a unix socket, e.g. /run/driver/s")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	old := syscall.Umask(0o117)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

// Main is Serve for a program that does nothing else: it ends with 0 after SIGTERM, else with 1 and says why. If
// OTEL_EXPORTER_OTLP_ENDPOINT names a collector, it sends a span of each operation there; beside Serve, the program sets
// its own otel.TracerProvider.
func Main(d Driver, info Info) {
	last, err := exportSpans(info)
	if err == nil {
		err = Serve(d, info)
		last()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Serve serves the driver on the unix socket that OSTLER_DRIVER_SOCKET names, until SIGTERM, and then until the
// operations that run are done. Those of an adapter that has gone may take 25 s more.
func Serve(d Driver, info Info) error {
	socket, err := listen(os.Getenv("OSTLER_DRIVER_SOCKET"))
	if err != nil {
		return err
	}
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return serveUntil(signals, socket, newServer(d, info), abandoned)
}

// abandoned is how long operations may go on whose adapter has gone, once the driver is to end. Nobody hears what they
// do, and the core soon has another driver do it again.
const abandoned = 25 * time.Second

func serveUntil(end context.Context, socket net.Listener, it *server, abandoned time.Duration) error {
	adapters := &links{gone: make(chan struct{}, 1)}
	it.ended = end
	calls := serving(it, grpc.StatsHandler(adapters))
	reflection.Register(calls)
	ended := make(chan error, 1)
	go func() { ended <- calls.Serve(socket) }()
	go listenAgain(end, socket.Addr().String(), calls)
	select {
	case err := <-ended:
		return err
	case <-end.Done():
	}
	go calls.GracefulStop()
	for adapters.open.Load() > 0 {
		select {
		case err := <-ended:
			return err
		case <-adapters.gone:
		}
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(abandoned):
		return errors.New("operations of an adapter that has gone did not end in time")
	}
}

// look is how often the file of the socket is looked for.
const look = 2 * time.Second

// listenAgain makes the socket again when somebody removed its file: the next adapter would not find the driver.
func listenAgain(end context.Context, path string, calls *grpc.Server) {
	for {
		select {
		case <-end.Done():
			return
		case <-time.After(look):
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		socket, err := listen(path)
		if err != nil {
			slog.Warn("the socket was removed, and cannot be made again yet", "error", err)
			continue
		}
		// The first listener ends the server.
		go func() { _ = calls.Serve(socket) }()
	}
}

// links counts the connections of adapters: a stats.Handler, since gRPC tells nothing else that one has ended.
type links struct {
	open atomic.Int32
	gone chan struct{}
}

func (*links) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*links) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*links) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (l *links) HandleConn(_ context.Context, event stats.ConnStats) {
	switch event.(type) {
	case *stats.ConnBegin:
		l.open.Add(1)
	case *stats.ConnEnd:
		if l.open.Add(-1) == 0 {
			select {
			case l.gone <- struct{}{}:
			default:
			}
		}
	}
}
