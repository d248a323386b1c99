package main

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

const class = `{"clusterName": "one", "labels": {"team": "stables"}, "infrastructureTemplateRef":
	{"apiGroup": "infrastructure.example.com", "kind": "CrateTemplate", "name": "small"}}`

type mapper struct{ meta.RESTMapper }

func (mapper) Reset() {}

// api is a management cluster that serves Machines at a version, with these objects.
func api(version string, objects ...runtime.Object) (*capi, *fake.FakeDynamicClient) {
	kinds := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		{Version: "v1"}, {Group: coreGroup, Version: version}, {Group: "infrastructure.example.com", Version: "v1"},
	})
	lists := map[schema.GroupVersionResource]string{}
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Secret"}, {Group: coreGroup, Version: version, Kind: "Machine"}, {Group: coreGroup, Version: version, Kind: "Cluster"},
		{Group: "infrastructure.example.com", Version: "v1", Kind: "CrateTemplate"}, {Group: "infrastructure.example.com", Version: "v1", Kind: "Crate"},
	} {
		kinds.Add(kind, meta.RESTScopeNamespace)
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		lists[plural] = kind.Kind + "List"
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
	it := &capi{}
	it.clusters.known = map[string]*management{keyOf(nil): {Interface: client, mapper: mapper{kinds}, over: make(chan struct{})}}
	return it, client
}

func made(version, kind, name string, content map[string]any) *object {
	it := &object{Object: content}
	it.SetAPIVersion(version)
	it.SetKind(kind)
	it.SetNamespace("default")
	it.SetName(name)
	it.SetUID("uid-of-" + "it")
	return it
}

func ready(version string) []runtime.Object {
	template := map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"size": "small"}}, "spec": map[string]any{"cores": int64(2)},
	}}}
	return []runtime.Object{
		made(coreGroup+"/"+version, "Cluster", "one", map[string]any{}),
		made("infrastructure.example.com/v1", "CrateTemplate", "small", template),
	}
}

func operation() *pb.OperationContext {
	return &pb.OperationContext{
		ClusterId: "c", Target: &pb.Target{Name: "m", Uid: "u"},
		MachineClass: &pb.ClassContent{Ref: &pb.ObjectRevision{Namespace: "default", Name: "class"}, ProviderSpecJson: class},
	}
}

func failed(t *testing.T, err error, code driver.Code, says string) {
	t.Helper()
	known, ok := err.(*driver.Error)
	if !ok || known.Detail.Code != code || !strings.Contains(known.Detail.Message, says) {
		t.Fatalf("%s with %q is wanted: %v", code, says, err)
	}
}

func TestAMachineRefersToItsClones(t *testing.T) {
	it, client := api(coreVersion, ready(coreVersion)...)
	// What takes the Machine to its end is Cluster API's: here it is there at once.
	client.PrependReactor("create", "machines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		machine := action.(clienttesting.CreateAction).GetObject().(*object)
		machine.SetUID("of-the-machine")
		return false, nil, nil
	})
	client.PrependReactor("create", "crates", func(action clienttesting.Action) (bool, runtime.Object, error) {
		machines := schema.GroupVersionResource{Group: coreGroup, Version: coreVersion, Resource: "machines"}
		machine, err := client.Tracker().Get(machines, "default", "m")
		if err != nil {
			t.Fatal(err)
		}
		machine.(*object).Object["spec"].(map[string]any)["providerID"] = "box:///1"
		if err := client.Tracker().Update(machines, machine, "default"); err != nil {
			t.Fatal(err)
		}
		return false, nil, nil
	})
	answer, err := it.CreateMachine(context.Background(), &pb.CreateMachineRequest{
		Context: operation(), Bootstrap: &pb.BootstrapData{UserData: []byte("join")},
		Tags: map[string]string{clusterID: "c", machineUID: "u", machineName: "m"},
	})
	if err != nil || answer.Machine.ProviderId != "box:///1" || answer.Machine.MachineUid != "u" {
		t.Fatalf("%v, %v", answer, err)
	}
	machine, err := client.Resource(schema.GroupVersionResource{Group: coreGroup, Version: coreVersion, Resource: "machines"}).
		Namespace("default").Get(context.Background(), "m", metav1.GetOptions{})
	if err != nil || text(machine, "spec", "infrastructureRef", "apiGroup") != "infrastructure.example.com" ||
		text(machine, "spec", "infrastructureRef", "kind") != "Crate" {
		t.Fatalf("%v, %v", machine, err)
	}
	box, err := client.Resource(schema.GroupVersionResource{Group: "infrastructure.example.com", Version: "v1", Resource: "crates"}).
		Namespace("default").Get(context.Background(), "m", metav1.GetOptions{})
	if err != nil || !metav1.IsControlledBy(box, machine) || box.GetLabels()["size"] != "small" || box.GetLabels()["team"] != "stables" ||
		box.GetAnnotations()[clonedName] != "small" || box.GetAnnotations()[clonedKind] != "CrateTemplate.infrastructure.example.com" {
		t.Fatalf("%v, %v", box, err)
	}
}

func TestAMissingRightIsNamedAndIsNoAbsence(t *testing.T) {
	it, client := api("v1beta2", ready("v1beta2")...)
	client.PrependReactor("list", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		resource := schema.GroupResource{Group: coreGroup, Resource: "machines"}
		return true, nil, apierrors.NewForbidden(resource, "m", nil)
	})
	_, err := it.GetMachineStatus(context.Background(), &pb.GetMachineStatusRequest{Context: operation()})
	failed(t, err, driver.PermissionDenied, "machines.cluster.x-k8s.io")
}

func TestAKindThatIsNotServedAnyMoreIsNoAbsence(t *testing.T) {
	infrastructure := map[string]any{"apiGroup": "infrastructure.example.com", "kind": "Crate", "name": "m"}
	machine := made(coreGroup+"/v1beta2", "Machine", "m", map[string]any{
		"spec": map[string]any{"providerID": "box:///1", "infrastructureRef": infrastructure},
	})
	machine.SetLabels(map[string]string{machineUID: "u"})
	machine.SetAnnotations(map[string]string{clusterID: "c", machineUID: "u"})
	it, client := api("v1beta2", machine)
	gone := func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "404 page not found", 0, true)
	}
	client.PrependReactor("get", "crates", gone)
	ask := func() error {
		_, err := it.GetMachineStatus(context.Background(), &pb.GetMachineStatusRequest{Context: operation()})
		return err
	}
	failed(t, ask(), driver.Unavailable, "does not serve Crate.infrastructure.example.com any more")
	client.PrependReactor("list", "machines", gone)
	failed(t, ask(), driver.Unavailable, "could not find")
	// One before 1.11.
	it, _ = api("v1beta1")
	failed(t, ask(), driver.FailedPrecondition, "does not serve v1beta2 of Machine.cluster.x-k8s.io")
}

func TestAMachineOfAMachineSetIsNotTakenOver(t *testing.T) {
	theirs := map[string]any{"spec": map[string]any{"clusterName": "one", "providerID": "box:///1"}}
	machine := made(coreGroup+"/v1beta2", "Machine", "m", theirs)
	yes := true
	machine.SetOwnerReferences([]metav1.OwnerReference{{Kind: "MachineSet", Name: "set", UID: "s", Controller: &yes}})
	it, client := api("v1beta2", append(ready("v1beta2"), machine)...)
	op := operation()
	op.AdoptByName = true
	ask := func() (*pb.GetMachineStatusResponse, error) {
		return it.GetMachineStatus(context.Background(), &pb.GetMachineStatusRequest{Context: op, ProviderId: "box:///1"})
	}
	_, err := ask()
	failed(t, err, driver.FailedPrecondition, "belongs to MachineSet set")

	machine.SetOwnerReferences(nil)
	machines := schema.GroupVersionResource{Group: coreGroup, Version: "v1beta2", Resource: "machines"}
	if err := client.Tracker().Update(machines, machine, "default"); err != nil {
		t.Fatal(err)
	}
	if answer, err := ask(); err != nil || answer.Machine.ProviderId != "box:///1" || answer.Machine.MachineUid != "" {
		t.Fatalf("%v, %v", answer, err)
	}
	// Without the word of the class it stays a stranger.
	op.AdoptByName = false
	_, err = ask()
	failed(t, err, driver.FailedPrecondition, "other tags")
}

func TestAFailureOfClusterAPIIsAFault(t *testing.T) {
	failure := map[string]any{"failureReason": "CreateError", "failureMessage": "no such image"}
	status := map[string]any{"deprecated": map[string]any{"v1beta1": failure}}
	it := made(coreGroup+"/v1beta2", "Machine", "m", map[string]any{"status": status})
	if said := record(operation(), it).Fault.GetMessage(); said != "CreateError: no such image" {
		t.Errorf("%q", said)
	}
}

func TestASpecThatCannotBeNamesItsFields(t *testing.T) {
	for text, path := range map[string]string{
		strings.Replace(class, "CrateTemplate", "Crate", 1):                          "infrastructureTemplateRef.kind",
		strings.Replace(class, `"name": "small"`, `"name": "s", "namespace":"a"`, 1): "infrastructureTemplateRef.namespace",
		strings.Replace(class, "example.com\"", "example.com/v1\"", 1):               "infrastructureTemplateRef.apiGroup",
		strings.Replace(class, `"team"`, `"ostler.dev/machine-uid"`, 1):              "labels",
		strings.Replace(class, `"team"`, `"cluster.x-k8s.io/cluster-name"`, 1):       "labels",
		strings.Replace(class, `"one"`, `""`, 1):                                     "clusterName",
	} {
		wrong := driver.Validate[spec](&pb.ValidateClassRequest{ProviderSpecJson: text}).Violations
		if len(wrong) != 1 || wrong[0].Path != path {
			t.Errorf("%s: %v", text, wrong)
		}
	}
}

func TestAMachineThatCannotBeAnyMoreIsToldAndNoOther(t *testing.T) {
	instance := func(name string, status map[string]any) *object {
		it := made(coreGroup+"/v1beta2", "Machine", name, map[string]any{
			"spec": map[string]any{"clusterName": "one", "providerID": "box:///" + name}, "status": status,
		})
		it.SetLabels(map[string]string{clusterHash: digest("c", 40)})
		it.SetAnnotations(map[string]string{clusterID: "c", machineUID: name})
		return it
	}
	condition := func(reason string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{"type": "InfrastructureReady", "status": "False", "reason": reason}}}
	}
	it, client := api("v1beta2", append(ready("v1beta2"), instance("before", condition("ObjectDeleted")), instance("m", nil), instance("kept", nil))...)
	it.Events = make(driver.Events, 10)
	watched := make(chan bool, 1) // what is written between list and watch, this client loses
	client.PrependWatchReactor("machines", func(action clienttesting.Action) (bool, watch.Interface, error) {
		seen, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		watched <- true
		return true, seen, err
	})
	told := make(chan *pb.DriverEvent)
	go it.WatchEvents(t.Context(), func(event *pb.DriverEvent) error { told <- event; return nil })
	expect := func(kind pb.InstanceEvent, uid string) {
		t.Helper()
		if event := <-told; event.Kind != kind || event.MachineUid != uid || event.ClusterId != "c" || event.ProviderId != "box:///"+uid {
			t.Fatalf("%s of %s is wanted: %v", kind, uid, event)
		}
	}
	// The first operation begins the watch, which tells of what was lost while no driver ran.
	if _, err := it.GetMachineStatus(t.Context(), &pb.GetMachineStatusRequest{Context: operation()}); err == nil {
		t.Fatal("there is no Machine of this UID")
	}
	expect(pb.InstanceEvent_INSTANCE_EVENT_GONE, "before")
	<-watched

	machines := client.Resource(schema.GroupVersionResource{Group: coreGroup, Version: "v1beta2", Resource: "machines"}).Namespace("default")
	write := func(now *object) {
		t.Helper()
		if _, err := machines.Update(t.Context(), now, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	write(instance("kept", condition("NotReady"))) // which may pass
	failure := map[string]any{"deprecated": map[string]any{"v1beta1": map[string]any{"failureMessage": "no such image"}}}
	write(instance("m", failure))
	expect(pb.InstanceEvent_INSTANCE_EVENT_CHANGED, "m")
	write(instance("m", condition("ObjectDeleted")))
	expect(pb.InstanceEvent_INSTANCE_EVENT_GONE, "m")
	if err := machines.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(pb.InstanceEvent_INSTANCE_EVENT_GONE, "m")
}
