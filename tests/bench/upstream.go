package main

import (
	"context"
	"fmt"
	"sync"

	managerapp "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager/app"
	manageroptions "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager/app/options"
	machinescheme "github.com/gardener/machine-controller-manager/pkg/client/clientset/versioned/scheme"
	core "github.com/gardener/machine-controller-manager/pkg/util/clientbuilder/core"
	machine "github.com/gardener/machine-controller-manager/pkg/util/clientbuilder/machine"
	providerapp "github.com/gardener/machine-controller-manager/pkg/util/provider/app"
	provideroptions "github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
)

const (
	machineController = "machine-controller"
	controllerManager = "machine-controller-manager"
)

// runControllerManager is upstream's binary: sets and deployments.
func runControllerManager() error {
	s := manageroptions.NewMCMServer()
	s.AddFlags(pflag.CommandLine)
	cliflag.InitFlags()
	logs.InitLogs()
	return managerapp.Run(s)
}

// runMachineController is what a provider's binary is made of, with a cloud in memory. Clients speak JSON, since the
// embedded API server takes no Node in protobuf; there is no election.
func runMachineController() error {
	s := provideroptions.NewMCServer()
	s.AddFlags(pflag.CommandLine)
	cliflag.InitFlags()
	logs.InitLogs()
	if err := s.Validate(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.ControlKubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = "application/json"
	config.QPS, config.Burst = s.KubeAPIQPS, int(s.KubeAPIBurst)
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), machineController))
	if err != nil {
		return err
	}
	if err := machinescheme.AddToScheme(kubescheme.Scheme); err != nil {
		return err
	}
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&v1core.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := events.NewRecorder(kubescheme.Scheme, corev1.EventSource{Component: machineController})
	builder := core.SimpleControllerClientBuilder{ClientConfig: config}
	return providerapp.StartControllers(
		s, rest.CopyConfig(config), rest.CopyConfig(config),
		machine.SimpleClientBuilder{ClientConfig: config}, builder, builder,
		&cloud{instances: map[string]string{}}, recorder, make(chan struct{}),
	)
}

// cloud is a driver whose instances are there as soon as they are asked for.
type cloud struct {
	lock      sync.Mutex
	instances map[string]string
}

func (c *cloud) CreateMachine(_ context.Context, r *driver.CreateMachineRequest) (*driver.CreateMachineResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	id := "bench:///" + r.Machine.Name
	c.instances[r.Machine.Name] = id
	return &driver.CreateMachineResponse{ProviderID: id, NodeName: r.Machine.Name}, nil
}

func (c *cloud) InitializeMachine(context.Context, *driver.InitializeMachineRequest) (*driver.InitializeMachineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "instances need none")
}

func (c *cloud) DeleteMachine(_ context.Context, r *driver.DeleteMachineRequest) (*driver.DeleteMachineResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.instances, r.Machine.Name)
	return &driver.DeleteMachineResponse{}, nil
}

func (c *cloud) GetMachineStatus(_ context.Context, r *driver.GetMachineStatusRequest) (*driver.GetMachineStatusResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	id, there := c.instances[r.Machine.Name]
	if !there {
		return nil, status.Error(codes.NotFound, fmt.Sprintf("there is no instance %s", r.Machine.Name))
	}
	return &driver.GetMachineStatusResponse{ProviderID: id, NodeName: r.Machine.Name}, nil
}

func (c *cloud) ListMachines(context.Context, *driver.ListMachinesRequest) (*driver.ListMachinesResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	list := map[string]string{}
	for name, id := range c.instances {
		list[id] = name
	}
	return &driver.ListMachinesResponse{MachineList: list}, nil
}

func (c *cloud) GetVolumeIDs(context.Context, *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	return &driver.GetVolumeIDsResponse{}, nil
}
