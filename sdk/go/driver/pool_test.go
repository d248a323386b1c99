package driver

import (
	"context"
	"slices"
	"testing"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

func TestANamedDeletionLowersOnceHoweverOftenItComes(t *testing.T) {
	there := func(id string) bool { return id == "a" || id == "b" }
	for _, c := range []struct {
		ids                        []string
		expected, wanted, now, end int32
		goes                       []string
		lowers, aborted            bool
	}{
		{ids: []string{"a"}, expected: 3, wanted: 2, now: 3, end: 2, goes: []string{"a"}, lowers: true},
		{ids: []string{"a", "b"}, expected: 3, wanted: 1, now: 3, end: 1, goes: []string{"a", "b"}, lowers: true},
		{ids: []string{"a"}, expected: 3, wanted: 3, now: 3, end: 3, goes: []string{"a"}},
		{ids: []string{"a"}, expected: 3, wanted: 2, now: 2, end: 2, goes: []string{"a"}},
		{ids: []string{"gone"}, expected: 3, wanted: 2, now: 3, end: 3},
		{ids: []string{"gone"}, expected: 3, wanted: 2, now: 9, end: 9},
		{ids: []string{"a", "gone"}, expected: 3, wanted: 1, now: 3, end: 2, goes: []string{"a"}, lowers: true},
		{ids: []string{"a"}, expected: 3, wanted: 2, now: 4, aborted: true},
		{ids: []string{"a", "b"}, expected: 3, wanted: 2, now: 3, aborted: true},
		{ids: []string{"a"}, expected: 2, wanted: 3, now: 2, aborted: true},
	} {
		plan, err := PlanDeletion(&pb.DeletePoolMachinesRequest{
			MachineProviderIds: c.ids, ExpectedDesired: c.expected, NewDesired: c.wanted,
		}, c.now, there)
		if (err != nil) != c.aborted {
			t.Errorf("%+v: %v", c, err)
		}
		if !c.aborted && (plan.Size != c.end || plan.Lowers != c.lowers || !slices.Equal(plan.Instances, c.goes)) {
			t.Errorf("%+v: %+v", c, plan)
		}
	}
}

func TestALowerSizeTakesNoInstance(t *testing.T) {
	ask := func(expected, wanted, now, live int32) (int32, error) {
		return AllowSize(&pb.UpdatePoolRequest{Desired: &wanted, ExpectedDesired: &expected}, now, live)
	}
	for _, good := range [][4]int32{{3, 5, 3, 3}, {3, 5, 5, 3}, {5, 3, 5, 3}} {
		if size, err := ask(good[0], good[1], good[2], good[3]); err != nil || size != good[1] {
			t.Errorf("%v: %d %v", good, size, err)
		}
	}
	for _, bad := range [][4]int32{{3, 5, 4, 3}, {5, 3, 5, 4}, {0, -1, 0, 0}} {
		if size, err := ask(bad[0], bad[1], bad[2], bad[3]); err == nil {
			t.Errorf("%v: %d", bad, size)
		}
	}
}

// pools is a driver with a large group.
type pools struct{ fake }

func (pools) CreatePool(context.Context, *pb.CreatePoolRequest) (*pb.CreatePoolResponse, error) {
	return nil, nil
}

func (pools) UpdatePool(context.Context, *pb.UpdatePoolRequest) (*pb.UpdatePoolResponse, error) {
	return nil, nil
}

func (pools) DeletePool(context.Context, *pb.DeletePoolRequest) (*pb.DeletePoolResponse, error) {
	return nil, NotOurs("group", "other")
}

func (pools) GetPoolStatus(context.Context, *pb.GetPoolStatusRequest) (*pb.GetPoolStatusResponse, error) {
	return &pb.GetPoolStatusResponse{
		Pool: &pb.PoolRecord{Desired: 1001}, Machines: make([]*pb.PoolMachineRecord, 1001),
	}, nil
}

func (pools) ListPools(context.Context, *pb.ListPoolsRequest) ([]*pb.PoolRecord, error) {
	return nil, nil
}

func TestGroupsAreOfferedByWhoHasThemAndGoInParts(t *testing.T) {
	client := serve(t, pools{})
	info, err := client.GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil || !slices.Contains(info.OperationKinds, pb.OperationKind_OPERATION_KIND_LIST_POOLS) ||
		slices.Contains(info.OperationKinds, pb.OperationKind_OPERATION_KIND_DELETE_POOL_MACHINES) {
		t.Errorf("%v %v", info, err)
	}
	stream, err := client.GetPoolStatus(t.Context(), &pb.GetPoolStatusRequest{Context: operation("1", "")})
	if err != nil {
		t.Fatal(err)
	}
	desired, machines, parts := int32(0), 0, 0
	for part, err := stream.Recv(); err == nil; part, err = stream.Recv() {
		desired, machines, parts = desired+part.GetPool().GetDesired(), machines+len(part.Machines), parts+1
	}
	if desired != 1001 || machines != 1001 || parts != 4 {
		t.Errorf("%d, %d machines in %d parts", desired, machines, parts)
	}
	gone, err := client.DeletePool(t.Context(), &pb.DeletePoolRequest{Context: operation("2", "u")})
	if err != nil || gone.GetOutcome() != pb.DeletionOutcome_DELETION_OUTCOME_NOT_OURS {
		t.Errorf("%v %v", gone, err)
	}
}
