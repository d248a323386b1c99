// A provider of machine-controller-manager for a cloud that is a JSON file, and its ten lines of Ostler: it knows an
// instance by its name and the tags of the class, as all of them do. Tried with the conformance suite; the command is in
// ../../../../docs/mcm-providers.md.
package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	upstream "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"ostler.dev/sdk/go/mcm"
)

// classes is the `provider` of its MachineClasses.
const classes = "example"

// spec is the providerSpec of a class.
type spec struct {
	Image string            `json:"image"`
	Tags  map[string]string `json:"tags"`
}

type provider struct{}

// on reads class and secret, and calls do with the cloud and the instance that has the machine's name, if there is one.
func on(machine string, class *v1alpha1.MachineClass, secret *corev1.Secret, do func(*cloud, spec, *instance) error) error {
	var want spec
	if err := json.Unmarshal(class.ProviderSpec.Raw, &want); err != nil || want.Image == "" || len(want.Tags) == 0 {
		return status.Error(codes.InvalidArgument, "image and tags must be set")
	}
	if key := string(secret.Data["apiKey"]); key == "" || strings.HasPrefix(key, "invalid") {
		return status.Error(codes.Unauthenticated, "the cloud refuses the apiKey of the secret")
	}
	return inCloud(func(c *cloud) error {
		at := slices.IndexFunc(c.Instances, func(it *instance) bool { return it.Name == machine && it.has(want.Tags) })
		if at < 0 {
			return do(c, want, nil)
		}
		return do(c, want, c.Instances[at])
	})
}

func (provider) CreateMachine(_ context.Context, q *upstream.CreateMachineRequest) (*upstream.CreateMachineResponse, error) {
	name, answer := q.Machine.Name, &upstream.CreateMachineResponse{}
	return answer, on(name, q.MachineClass, q.Secret, func(c *cloud, want spec, _ *instance) error {
		it := &instance{ID: "example:///" + uuid.NewString(), Name: name, Tags: want.Tags, UserData: append([]byte{}, q.Secret.Data["userData"]...)}
		c.Instances = append(c.Instances, it)
		answer.ProviderID, answer.NodeName = it.ID, name
		return nil
	})
}

func (provider) InitializeMachine(
	_ context.Context, q *upstream.InitializeMachineRequest,
) (*upstream.InitializeMachineResponse, error) {
	name, answer := q.Machine.Name, &upstream.InitializeMachineResponse{}
	return answer, on(name, q.MachineClass, q.Secret, func(_ *cloud, _ spec, it *instance) error {
		if it == nil {
			return status.Error(codes.NotFound, "no instance has the name "+name)
		}
		it.Initialized, answer.ProviderID, answer.NodeName = true, it.ID, name
		return nil
	})
}

func (provider) DeleteMachine(_ context.Context, q *upstream.DeleteMachineRequest) (*upstream.DeleteMachineResponse, error) {
	return &upstream.DeleteMachineResponse{}, on(q.Machine.Name, q.MachineClass, q.Secret, func(c *cloud, _ spec, it *instance) error {
		c.Instances = slices.DeleteFunc(c.Instances, func(other *instance) bool { return other == it })
		return nil
	})
}

func (provider) GetMachineStatus(_ context.Context, q *upstream.GetMachineStatusRequest) (*upstream.GetMachineStatusResponse, error) {
	name, answer := q.Machine.Name, &upstream.GetMachineStatusResponse{}
	return answer, on(name, q.MachineClass, q.Secret, func(_ *cloud, _ spec, it *instance) error {
		if it == nil {
			return status.Error(codes.NotFound, "no instance has the name "+name)
		}
		answer.ProviderID, answer.NodeName = it.ID, name
		if !it.Initialized {
			return status.Error(codes.Uninitialized, "InitializeMachine was not called for it")
		}
		return nil
	})
}

func (provider) ListMachines(_ context.Context, q *upstream.ListMachinesRequest) (*upstream.ListMachinesResponse, error) {
	answer := &upstream.ListMachinesResponse{MachineList: map[string]string{}}
	return answer, on("", q.MachineClass, q.Secret, func(c *cloud, want spec, _ *instance) error {
		for _, it := range c.Instances {
			if it.has(want.Tags) {
				answer.MachineList[it.ID] = it.Name
			}
		}
		return nil
	})
}

func (provider) GetVolumeIDs(_ context.Context, q *upstream.GetVolumeIDsRequest) (*upstream.GetVolumeIDsResponse, error) {
	answer := &upstream.GetVolumeIDsResponse{}
	for _, it := range q.PVSpecs {
		if it.CSI != nil && it.CSI.Driver == "example.ostler.dev" {
			answer.VolumeIDs = append(answer.VolumeIDs, it.CSI.VolumeHandle)
		}
	}
	return answer, nil
}

func main() {
	probe()
	mcm.Main(provider{}, mcm.Info{
		Provider: "example.ostler.dev", Classes: classes, Version: "0.1.0", FindsByName: true, MaxInFlight: 64,
	})
}
