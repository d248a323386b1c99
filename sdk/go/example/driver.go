// An Ostler driver for the cloud in cloud.go: one method for each call. ../README.md explains.
package main

import (
	"context"
	"time"

	"github.com/google/uuid"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

const provider = "go.ostler.dev"

// spec is the providerSpec of a class, as example/class.yaml has one.
type spec struct {
	Size        string            `json:"size" ostler:"fixed"`
	Image       string            `json:"image" ostler:"fixed"`
	BootSeconds float64           `json:"bootSeconds,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
}

// Check says what is wrong with the values of a spec.
func (s spec) Check() driver.Violations {
	return driver.Violations{}.
		Unless(s.Size == "small" || s.Size == "large", "size", "must be small or large").
		Unless(s.Image != "", "image", "must name an image").
		Unless(s.BootSeconds >= 0 && s.BootSeconds <= 600, "bootSeconds", "must be a number from 0 to 600")
}

type example struct{}

// on logs in and calls do with the cloud and the machine's instance, or nil if there is none.
func on(op *pb.OperationContext, id string, do func(*cloud, *instance) error) error {
	return inCloud(op.Secret["apiKey"], func(c *cloud) error {
		m := machine{op, id}
		found, others := c.find(m.is), c.find(m.isNot)
		switch {
		case len(found) > 1:
			return driver.Fail(driver.OutOfRange, "SEVERAL_INSTANCES", "two instances claim to be this machine: delete one")
		case len(found) == 1:
			return do(c, found[0])
		case len(others) > 0: // it is there and is not touched
			return driver.NotOurs(others[0].ID, others[0].Cluster)
		}
		return do(c, nil)
	})
}

// change calls do with the machine's instance, which must be there, and returns its record.
func change(op *pb.OperationContext, id string, do func(*instance) error) (record *pb.MachineRecord, err error) {
	err = on(op, id, func(_ *cloud, it *instance) error {
		if it == nil {
			return driver.Fail(driver.NotFound, "NO_INSTANCE", "there is no such instance")
		}
		defer func() { record = it.record(op) }()
		return do(it)
	})
	return record, err
}

func (it *instance) record(op *pb.OperationContext) *pb.MachineRecord {
	record := &pb.MachineRecord{
		ProviderId: it.ID, MachineName: it.Name, MachineUid: it.UID, Initialized: &it.Initialized, PowerState: it.state(),
	}
	if it.Cluster != op.ClusterId {
		record.ClusterId = it.Cluster
	}
	return record
}

// The calls. Each may come again, and may be stopped at driver.Sleep.

func (example) CreateMachine(ctx context.Context, q *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	op := q.Context
	want, err := driver.ParseSpec[spec](op)
	if err != nil {
		return nil, err
	}
	var made *instance
	err = on(op, q.ProviderId, func(c *cloud, it *instance) error {
		if it == nil { // looked first: this may be the second try
			it = &instance{
				ID: "go:///" + uuid.NewString(), Cluster: op.ClusterId, UID: op.Target.Uid, Name: op.Target.Name, Spec: want,
				Tags: merge(want.Tags, q.Tags), UserData: append([]byte{}, q.Bootstrap.GetUserData()...),
				ReadyAt: time.Now().Add(want.boot()),
			}
			c.Instances = append(c.Instances, it)
		} else if it.UID != op.Target.Uid || it.Cluster != op.ClusterId { // a restored or moved cluster: adopt it
			it.UID, it.Cluster, it.Tags = op.Target.Uid, op.ClusterId, merge(it.Tags, q.Tags)
		} else if len(driver.Differing(it.Spec, want)) > 0 {
			return driver.Fail(driver.AlreadyExists, "DOES_NOT_FIT", "an instance of this machine exists and is different")
		}
		made = it
		return nil
	})
	if err == nil { // from here on something exists, however this ends
		err = driver.Sleep(ctx, time.Until(made.ReadyAt), driver.Partial)
	}
	if err != nil {
		return nil, err
	}
	return &pb.CreateMachineResponse{Machine: made.record(op)}, nil
}

func (example) InitializeMachine(_ context.Context, q *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error) {
	record, err := change(q.Context, q.ProviderId, func(it *instance) error {
		it.Initialized = true
		return nil
	})
	return &pb.InitializeMachineResponse{Machine: record}, err
}

func (example) UpdateMachine(_ context.Context, q *pb.UpdateMachineRequest) (*pb.UpdateMachineResponse, error) {
	want, err := driver.ParseSpec[spec](q.Context)
	if err != nil {
		return nil, err
	}
	answer := &pb.UpdateMachineResponse{}
	_, err = change(q.Context, q.ProviderId, func(it *instance) error {
		if paths := driver.InTheWay(it.Spec, want, q.LastAppliedSpecJson); len(paths) > 0 {
			return driver.NotHotUpdatable(paths)
		}
		if it.replaceTags(it.Spec.Tags, want.Tags) {
			answer.AppliedPaths = []string{"tags"}
		}
		it.Spec = want
		return nil
	})
	return answer, err
}

func (example) DeleteMachine(_ context.Context, q *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	answer := &pb.DeleteMachineResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT}
	m := machine{q.Context, q.ProviderId}
	return answer, inCloud(q.Context.Secret["apiKey"], func(c *cloud) error {
		if c.remove(m.is) { // all of them, should there be several
			answer.Outcome = pb.DeletionOutcome_DELETION_OUTCOME_DELETED
		}
		if others := c.find(m.isNot); len(others) > 0 { // it is there, and not touched
			answer.Outcome = pb.DeletionOutcome_DELETION_OUTCOME_NOT_OURS
			answer.ProviderId, answer.ClusterId = others[0].ID, others[0].Cluster
		}
		return nil
	})
}

func (example) GetMachineStatus(_ context.Context, q *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	record, err := change(q.Context, q.ProviderId, func(*instance) error { return nil })
	return &pb.GetMachineStatusResponse{Machine: record}, err
}

func (example) ListMachines(_ context.Context, q *pb.ListMachinesRequest) (records []*pb.MachineRecord, err error) {
	err = inCloud(q.Context.Secret["apiKey"], func(c *cloud) error {
		for _, it := range c.find(machine{q.Context, ""}.mine) {
			records = append(records, it.record(q.Context))
		}
		return nil
	})
	return records, err
}

func (example) GetVolumeIds(_ context.Context, q *pb.GetVolumeIdsRequest) (*pb.GetVolumeIdsResponse, error) {
	return driver.VolumeIDs(q, provider)
}

func (example) ValidateClass(_ context.Context, q *pb.ValidateClassRequest) (*pb.ValidateClassResponse, error) {
	return driver.Validate[spec](q), nil
}

func main() {
	probe()
	driver.Main(example{}, driver.Info{Provider: provider, Version: "0.1.0", MaxInFlight: 64, PreviousClusterIDs: true})
}
