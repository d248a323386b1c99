package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/provider"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/testhelp"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/testhelp/fakes"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/utils"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
	"ostler.dev/sdk/go/mcm"
)

const group, machine = "shoot", "worker-1"

// azure is the provider before the fake cloud of its own authors, which stands behind the clients of Azure's library.
type azure struct {
	t     *testing.T
	cloud *fakes.ClusterState
	op    *pb.OperationContext
}

func newAzure(t *testing.T) azure {
	spec := testhelp.NewProviderSpecBuilder(group, group, "worker").WithDefaultValues().Build()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cloud := fakes.NewClusterState(spec)
	cloud.WithDefaultVMImageSpec().WithAgreementTerms(true).WithSubnet(group, spec.SubnetInfo.SubnetName, spec.SubnetInfo.VnetName)
	return azure{t, cloud, &pb.OperationContext{
		Target: &pb.Target{Namespace: group, Name: machine, Uid: "u"},
		Secret: fakes.CreateProviderSecret().Data,
		MachineClass: &pb.ClassContent{
			Ref: &pb.ObjectRevision{Namespace: group, Name: "class"}, ProviderSpecJson: string(text),
		},
	}}
}

// driver is the provider behind the shim. vms and graph say what of the cloud fails.
func (a azure) driver(vms, graph *fakes.APIBehaviorSpec) driver.Driver {
	factory := fakes.NewFactory(group)
	access, err := factory.NewVirtualMachineAccessBuilder().WithClusterState(a.cloud).WithAPIBehaviorSpec(vms).Build()
	a.must(err)
	images, err := factory.NewImageAccessBuilder().WithClusterState(a.cloud).Build()
	a.must(err)
	subnets, err := factory.NewSubnetAccessBuilder().WithClusterState(a.cloud).Build()
	a.must(err)
	agreements, err := factory.NewMarketPlaceAgreementAccessBuilder().WithClusterState(a.cloud).Build()
	a.must(err)
	nics, err := factory.NewNICAccessBuilder().WithClusterState(a.cloud).Build()
	a.must(err)
	disks, err := factory.NewDiskAccessBuilder().WithClusterState(a.cloud).Build()
	a.must(err)
	groups, err := factory.NewResourceGroupsAccessBuilder().Build()
	a.must(err)
	resources, err := factory.NewResourceGraphAccessBuilder().WithClusterState(a.cloud).WithAPIBehaviorSpec(graph).Build()
	a.must(err)
	factory.WithVirtualMachineAccess(access).WithVirtualMachineImagesAccess(images).WithSubnetAccess(subnets).
		WithMarketPlaceAgreementsAccess(agreements).WithNetworkInterfacesAccess(nics).WithDisksAccess(disks).
		WithResourceGroupsAccess(groups).WithResourceGraphAccess(resources)
	return mcm.New(provider.NewDefaultDriver(factory), info)
}

func (a azure) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a azure) create(d driver.Driver) (*pb.CreateMachineResponse, error) {
	bootstrap := &pb.BootstrapData{UserData: []byte("#cloud-config")}
	return d.CreateMachine(a.t.Context(), &pb.CreateMachineRequest{Context: a.op, Bootstrap: bootstrap})
}

// refused is what Azure answers to credentials that it does not know.
func refused() error {
	headers := http.Header{}
	headers.Set("x-ms-error-code", "InvalidAuthenticationToken")
	return runtime.NewResponseError(&http.Response{Status: "401 Unauthorized", StatusCode: 401, Header: headers})
}

func detail(t *testing.T, err error) *pb.OperationError {
	t.Helper()
	var failed *driver.Error
	if !errors.As(err, &failed) {
		t.Fatalf("%v is no error of the contract", err)
	}
	return failed.Detail
}

func TestAMachineOfAzureLivesAWholeLife(t *testing.T) {
	a := newAzure(t)
	d := a.driver(nil, nil)
	status := func() (*pb.GetMachineStatusResponse, error) {
		return d.(driver.StatusGetter).GetMachineStatus(t.Context(), &pb.GetMachineStatusRequest{Context: a.op})
	}
	_, err := status()
	if failed := detail(t, err); failed.Code != driver.NotFound {
		t.Error(failed)
	}
	for range 2 { // the second one finds what the first one made
		made, err := a.create(d)
		a.must(err)
		if made.Machine.ProviderId == "" || made.Machine.NodeName != machine {
			t.Error(made)
		}
	}
	vm := a.cloud.GetVM(machine)
	if vm == nil || len(a.cloud.GetAllVMNamesFromMachineResources()) != 1 {
		t.Fatal(a.cloud.GetAllVMNamesFromMachineResources())
	}
	for key := range a.cloud.ProviderSpec.Tags {
		if vm.Tags[key] == nil {
			t.Errorf("the VM lacks tag %s of the class", key)
		}
	}
	_, err = status()
	a.must(err)
	all, err := d.ListMachines(t.Context(), &pb.ListMachinesRequest{Context: a.op})
	a.must(err)
	if len(all) != 1 || all[0].MachineName != machine {
		t.Error(all)
	}
	for range 2 { // again, as after a crash
		_, err = d.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: a.op, ProviderId: all[0].ProviderId})
		a.must(err)
	}
	left := a.cloud.MachineResourcesMap[machine]
	if left.HasResources() {
		t.Errorf("left in the cloud: VM %v, network card %v, disk %v", left.VM, left.NIC, left.OSDisk)
	}
}

func TestAWrongClassMakesNothing(t *testing.T) {
	a := newAzure(t)
	a.op.MachineClass.ProviderSpecJson = `{"location": "", "resourceGroup": 5}`
	_, err := a.create(a.driver(nil, nil))
	detail(t, err)
	if len(a.cloud.MachineResourcesMap) != 0 {
		t.Error("something was made")
	}
}

func TestRefusedCredentialsAreNoAbsence(t *testing.T) {
	a := newAzure(t)
	_, err := a.create(a.driver(nil, nil))
	a.must(err)
	vms := fakes.NewAPIBehaviorSpec().
		AddErrorResourceReaction(machine, testhelp.AccessMethodGet, refused()).
		AddErrorResourceReaction(machine, testhelp.AccessMethodBeginDelete, refused())
	graph := fakes.NewAPIBehaviorSpec()
	for _, kind := range []utils.ResourceType{utils.VirtualMachinesResourceType, utils.NetworkInterfacesResourceType} {
		graph.AddErrorResourceTypeReaction(kind, testhelp.AccessMethodResources, refused())
	}
	d := a.driver(vms, graph)
	_, err = d.(driver.StatusGetter).GetMachineStatus(t.Context(), &pb.GetMachineStatusRequest{Context: a.op})
	if failed := detail(t, err); failed.Code == driver.NotFound {
		t.Error(failed)
	}
	_, err = d.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: a.op})
	if failed := detail(t, err); failed.Code == driver.NotFound || failed.Certainty != driver.Partial {
		t.Error(failed)
	}
	if all, err := d.ListMachines(t.Context(), &pb.ListMachinesRequest{Context: a.op}); err == nil {
		t.Error("a list of what could not be listed:", all)
	}
}

func TestWhatAFailedCreateLeavesIsDeleted(t *testing.T) {
	a := newAzure(t)
	// The fake cloud forgets to name what it keeps for a network card that comes before its VM.
	a.cloud.MachineResourcesMap[machine] = fakes.MachineResources{Name: machine}
	vms := fakes.NewAPIBehaviorSpec().
		AddErrorResourceReaction(machine, testhelp.AccessMethodBeginCreateOrUpdate, testhelp.InternalServerError("x"))
	_, err := a.create(a.driver(vms, nil))
	if failed := detail(t, err); failed.Certainty != driver.NotKnown {
		t.Error(failed)
	}
	if a.cloud.MachineResourcesMap[machine].NIC == nil {
		t.Error("the create left nothing that could be deleted")
	}
	_, err = a.driver(nil, nil).DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: a.op})
	a.must(err)
	left := a.cloud.MachineResourcesMap[machine]
	if left.HasResources() {
		t.Errorf("left in the cloud: VM %v, network card %v, disk %v", left.VM, left.NIC, left.OSDisk)
	}
}
