package driver

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// PoolDriver has scaling groups: see "Groups" in driver.proto.
type PoolDriver interface {
	// CreatePool makes the group with its tags, or finds it by its identity. One that is found keeps its size.
	CreatePool(context.Context, *pb.CreatePoolRequest) (*pb.CreatePoolResponse, error)
	// UpdatePool changes size and model, and takes no instance: see [AllowSize].
	UpdatePool(context.Context, *pb.UpdatePoolRequest) (*pb.UpdatePoolResponse, error)
	// DeletePool may fail with [NotOurs]: the core gets the outcome NOT_OURS.
	DeletePool(context.Context, *pb.DeletePoolRequest) (*pb.DeletePoolResponse, error)
	// GetPoolStatus returns the group and all its instances, or fails; the answer goes in parts by itself.
	GetPoolStatus(context.Context, *pb.GetPoolStatusRequest) (*pb.GetPoolStatusResponse, error)
	// ListPools returns all or fails.
	ListPools(context.Context, *pb.ListPoolsRequest) ([]*pb.PoolRecord, error)
}

// PoolMachineDeleter deletes named instances of a group, as [PlanDeletion] says. Without it, machines of a pool cannot be
// deleted one by one.
type PoolMachineDeleter interface {
	DeletePoolMachines(context.Context, *pb.DeletePoolMachinesRequest) (*pb.DeletePoolMachinesResponse, error)
}

// PoolMachineUpdater brings one instance to the model of its group, in place. Without it, instances are replaced.
type PoolMachineUpdater interface {
	UpdatePoolMachine(context.Context, *pb.UpdatePoolMachineRequest) (*pb.UpdatePoolMachineResponse, error)
}

// Deletion is what is to be done for a DeletePoolMachines, also when it comes a second time.
type Deletion struct {
	// Instances are there and are to go. None: there is nothing to do, which is a success.
	Instances []string
	// Lowers says that the size falls by one for each of them, in the call that deletes it. Else the group makes others.
	Lowers bool
	// Size of the group when all of them have gone.
	Size int32
}

// PlanDeletion says what is to be done. desired is the size of the group now; there says whether an instance is in the
// group and not on its way out already.
func PlanDeletion(q *pb.DeletePoolMachinesRequest, desired int32, there func(id string) bool) (Deletion, error) {
	plan := Deletion{Size: desired}
	for _, id := range q.GetMachineProviderIds() {
		if there(id) && !slices.Contains(plan.Instances, id) {
			plan.Instances = append(plan.Instances, id)
		}
	}
	expected, wanted, count := q.GetExpectedDesired(), q.GetNewDesired(), int32(len(plan.Instances))
	switch {
	case count == 0, desired == wanted && wanted <= expected:
		// Nothing is left; or the group makes others, or an earlier attempt lowered it.
		return plan, nil
	case wanted > expected || wanted < 0:
		return Deletion{}, Fail(InvalidArgument, "BAD_SIZE", "a size of %d in place of %d is no deletion", wanted, expected)
	case desired == expected && desired-count >= wanted:
		plan.Lowers, plan.Size = true, desired-count
		return plan, nil
	}
	return Deletion{}, sizeChanged(desired)
}

// AllowSize returns the size that a group is to have. desired is its size now, live how many instances are there and not
// on their way out: a lower size never takes one.
func AllowSize(q *pb.UpdatePoolRequest, desired, live int32) (int32, error) {
	wanted := q.GetDesired()
	switch {
	case q.Desired == nil, desired == wanted:
		return desired, nil
	case wanted < 0 || q.ExpectedDesired == nil:
		return 0, Fail(InvalidArgument, "BAD_SIZE", "a size of %d without the one that was seen is none", wanted)
	case desired == q.GetExpectedDesired() && (wanted > desired || wanted >= live):
		return wanted, nil
	}
	return 0, sizeChanged(desired)
}

func sizeChanged(desired int32) error {
	return Fail(Aborted, "SIZE_CHANGED", "the size of the group is %d", desired)
}

// poolKinds returns the operations on groups that a driver has.
func poolKinds(d Driver) (kinds []pb.OperationKind) {
	if _, has := d.(PoolDriver); has {
		kinds = append(kinds, pb.OperationKind_OPERATION_KIND_CREATE_POOL, pb.OperationKind_OPERATION_KIND_UPDATE_POOL,
			pb.OperationKind_OPERATION_KIND_DELETE_POOL, pb.OperationKind_OPERATION_KIND_GET_POOL_STATUS,
			pb.OperationKind_OPERATION_KIND_LIST_POOLS)
	}
	if _, has := d.(PoolMachineDeleter); has {
		kinds = append(kinds, pb.OperationKind_OPERATION_KIND_DELETE_POOL_MACHINES)
	}
	if _, has := d.(PoolMachineUpdater); has {
		kinds = append(kinds, pb.OperationKind_OPERATION_KIND_UPDATE_POOL_MACHINE)
	}
	return kinds
}

func (s *server) CreatePool(ctx context.Context, q *pb.CreatePoolRequest) (*pb.CreatePoolResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_CREATE_POOL, true, q, PoolDriver.CreatePool)
}

func (s *server) UpdatePool(ctx context.Context, q *pb.UpdatePoolRequest) (*pb.UpdatePoolResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_UPDATE_POOL, true, q, PoolDriver.UpdatePool)
}

func (s *server) DeletePool(ctx context.Context, q *pb.DeletePoolRequest) (*pb.DeletePoolResponse, error) {
	answer, err := offered(ctx, s, pb.OperationKind_OPERATION_KIND_DELETE_POOL, true, q, PoolDriver.DeletePool)
	var failed *Error
	if errors.As(err, &failed) && failed.Detail.Reason == notOurs {
		return &pb.DeletePoolResponse{
			Outcome:    pb.DeletionOutcome_DELETION_OUTCOME_NOT_OURS,
			ProviderId: failed.Detail.ProviderId, ClusterId: failed.Detail.ClusterId,
		}, nil
	}
	return answer, err
}

func (s *server) GetPoolStatus(q *pb.GetPoolStatusRequest, stream grpc.ServerStreamingServer[pb.GetPoolStatusResponse]) error {
	answer, err := offered(stream.Context(), s, pb.OperationKind_OPERATION_KIND_GET_POOL_STATUS, false, q, PoolDriver.GetPoolStatus)
	if err == nil {
		err = stream.Send(&pb.GetPoolStatusResponse{Pool: answer.GetPool()})
	}
	for some := range slices.Chunk(answer.GetMachines(), pageSize) {
		if err == nil {
			err = stream.Send(&pb.GetPoolStatusResponse{Machines: some})
		}
	}
	return err
}

func (s *server) ListPools(q *pb.ListPoolsRequest, stream grpc.ServerStreamingServer[pb.ListPoolsResponse]) error {
	pools, err := offered(stream.Context(), s, pb.OperationKind_OPERATION_KIND_LIST_POOLS, false, q, PoolDriver.ListPools)
	if it, has := s.driver.(ListScoper); has && err == nil {
		err = stream.Send(&pb.ListPoolsResponse{ListScope: it.ListScope(q.GetContext())})
	}
	for some := range slices.Chunk(pools, pageSize) {
		if err == nil {
			err = stream.Send(&pb.ListPoolsResponse{Pools: some})
		}
	}
	return err
}

func (s *server) DeletePoolMachines(ctx context.Context, q *pb.DeletePoolMachinesRequest) (*pb.DeletePoolMachinesResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_DELETE_POOL_MACHINES, true, q, PoolMachineDeleter.DeletePoolMachines)
}

func (s *server) UpdatePoolMachine(ctx context.Context, q *pb.UpdatePoolMachineRequest) (*pb.UpdatePoolMachineResponse, error) {
	return offered(ctx, s, pb.OperationKind_OPERATION_KIND_UPDATE_POOL_MACHINE, true, q, PoolMachineUpdater.UpdatePoolMachine)
}
