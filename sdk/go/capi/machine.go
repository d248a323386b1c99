package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/protobuf/types/known/timestamppb"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

const coreGroup = "cluster.x-k8s.io"

// coreVersion is served by Cluster API 1.11 and newer.
const coreVersion = "v1beta2"

var secretKind = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}

// work is one operation: whose it is, and where its objects are.
type work struct {
	*management
	op                *pb.OperationContext
	home              string // the namespace of its objects
	machines, secrets resource
	left              driver.Certainty // what an error leaves behind
}

// on does one operation, and says what an error of it left.
func on[A any](ctx context.Context, c *capi, op *pb.OperationContext, do func(*work) (A, error)) (answer A, err error) {
	w := &work{op: op, left: driver.NotApplied}
	if w.management, err = c.clusters.of(op.GetSecret()); err == nil {
		w.home = cmp.Or(w.namespace, op.GetMachineClass().GetRef().GetNamespace())
		w.secrets = resource{w.Resource(secretKind.GroupVersion().WithResource("secrets")).Namespace(w.home), secretKind}
		w.machines, err = w.served(schema.GroupKind{Group: coreGroup, Kind: "Machine"}, coreVersion)
	}
	if err == nil {
		c.watch(w)
		answer, err = do(w)
	}
	return answer, failure(ctx, err, w.left)
}

// isOfCluster says that an object has the identity of this cluster, now or before.
func (w *work) isOfCluster(it *object) bool {
	return driver.IsOfCluster(w.op, it.GetAnnotations()[clusterID])
}

func (w *work) isMine(it *object) bool {
	return w.isOfCluster(it) && it.GetAnnotations()[machineUID] == w.op.Target.GetUid()
}

// stranger refuses what is there and is another's.
func stranger(it *object) *driver.Error {
	refused := driver.NotOurs(cmp.Or(idOf(it), it.GetNamespace()+"/"+it.GetName()), it.GetAnnotations()[clusterID])
	if owner := metav1.GetControllerOf(it); owner != nil {
		refused.Detail.Message = fmt.Sprintf("Machine %s of Cluster API belongs to %s %s", it.GetName(), owner.Kind, owner.Name)
	}
	return refused
}

// isFree says that a Machine of Cluster API without our identity is to be taken over by its name: the class says so, and
// no set of Cluster API would make another one for it.
func (w *work) isFree(it *object) bool {
	was, err := driver.ParseSpec[spec](w.op)
	return w.op.AdoptByName && it.GetName() == w.op.Target.GetName() && it.GetAnnotations()[clusterID] == "" &&
		metav1.GetControllerOf(it) == nil && err == nil && text(it, "spec", "clusterName") == was.ClusterName
}

// all are the Machines of Cluster API in the namespace that fit.
func (w *work) all(ctx context.Context, selector string, fit func(*object) bool) (some []*object, err error) {
	list, err := w.machines.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if it := &list.Items[i]; fit(it) {
			some = append(some, it)
		}
	}
	return some, nil
}

// find returns the Machine of Cluster API that is this machine's, or nil; and a refusal if there is one that was meant and is
// another's. Both may be: then a refusal counts only for a deletion.
func (w *work) find(ctx context.Context, id string) (mine *object, err error) {
	found, err := w.all(ctx, machineUID+"="+w.op.Target.GetUid(), w.isMine)
	if err == nil && len(found) > 1 {
		err = driver.Fail(driver.OutOfRange, "SEVERAL_MACHINES", "two Machines of Cluster API have this identity: delete one")
	}
	if err != nil {
		return nil, err
	}
	for _, mine = range found {
		if id == "" || idOf(mine) == id {
			return mine, nil
		}
	}
	var other *object
	if id == "" {
		other, err = w.get(ctx, w.machines, w.op.Target.GetName())
	} else if found, err = w.all(ctx, "", func(it *object) bool { return idOf(it) == id }); len(found) > 0 {
		other = found[0]
	}
	if err != nil || other == nil {
		return mine, err
	}
	notes := other.GetAnnotations()
	switch {
	case w.isFree(other), id != "" && w.isOfCluster(other) && notes[machineName] == w.op.Target.GetName():
		return other, nil
	case id == "" && notes[clusterID] != "" && (notes[clusterID] == w.op.ClusterId || !w.isOfCluster(other)):
		return nil, nil // another machine has the name, and keeps it
	}
	return mine, stranger(other)
}

// part is one of the three objects, or the Secret.
type part struct {
	resource
	name string
}

// parts are what a Machine of Cluster API refers to: the clones, the infrastructure's first.
func (w *work) parts(it *object) (all []part, err error) {
	for _, path := range [][]string{{"spec", "infrastructureRef"}, {"spec", "bootstrap", "configRef"}} {
		ref, there, _ := unstructured.NestedStringMap(it.Object, path...)
		if !there {
			continue
		}
		at, err := w.served(schema.GroupKind{Group: ref["apiGroup"], Kind: ref["kind"]})
		if err != nil {
			return nil, err
		}
		all = append(all, part{at, ref["name"]})
	}
	return all, nil
}

// ready checks that the controllers work on the Cluster, and that the templates are there.
func (w *work) ready(ctx context.Context, want spec) error {
	if err := w.cluster(ctx, want.ClusterName); err != nil {
		return err
	}
	for _, from := range want.templates() {
		_, missing := w.need(ctx, from.template(), from.Name)
		_, unserved := w.served(from.clone())
		if err := cmp.Or(missing, unserved); err != nil {
			return err
		}
	}
	return nil
}

const paused = "CLUSTER_PAUSED"

func (w *work) cluster(ctx context.Context, name string) error {
	it, err := w.need(ctx, schema.GroupKind{Group: coreGroup, Kind: "Cluster"}, name)
	if err != nil {
		return err
	}
	if said, _, _ := unstructured.NestedBool(it.Object, "spec", "paused"); said {
		return driver.Fail(driver.FailedPrecondition, paused, "Cluster %s is paused: Cluster API does nothing for it", name)
	}
	return nil
}

// identity are the labels by which a machine's objects are found.
func (w *work) identity(want spec) map[string]string {
	return map[string]string{clusterName: want.ClusterName, machineUID: w.op.Target.GetUid(), clusterHash: digest(w.op.ClusterId, 40)}
}

// made is a new object with the identity of the machine.
func (w *work) made(at resource, name string, want spec, tags map[string]string) *object {
	it := &object{Object: map[string]any{}}
	it.SetGroupVersionKind(at.GroupVersionKind)
	it.SetNamespace(w.home)
	it.SetName(name)
	it.SetLabels(labels.Merge(want.Labels, w.identity(want)))
	it.SetAnnotations(labels.Merge(labels.Merge(want.Annotations, tags), map[string]string{settled: want.String()}))
	return it
}

// clone is the object of a template, as Cluster API makes it, with the Machine as its owner.
func (w *work) clone(ctx context.Context, from reference, machine *object, want spec, tags map[string]string) error {
	template, missing := w.need(ctx, from.template(), from.Name)
	at, unserved := w.served(from.clone())
	if err := cmp.Or(missing, unserved); err != nil {
		return err
	}
	it := w.made(at, machine.GetName(), want, tags)
	it.Object["spec"] = map[string]any{}
	if body, there, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec"); there {
		it.Object["spec"] = body
	}
	theirs, _, _ := unstructured.NestedStringMap(template.Object, "spec", "template", "metadata", "labels")
	notes, _, _ := unstructured.NestedStringMap(template.Object, "spec", "template", "metadata", "annotations")
	it.SetLabels(labels.Merge(theirs, it.GetLabels()))
	it.SetAnnotations(labels.Merge(labels.Merge(notes, it.GetAnnotations()), map[string]string{
		clonedName: from.Name, clonedKind: from.template().String(),
	}))
	return w.own(ctx, at, it, machine)
}

// own creates an object with the Machine as its owner, or finds it.
func (w *work) own(ctx context.Context, at resource, it, machine *object) error {
	it.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(machine, w.machines.GroupVersionKind)})
	_, err := at.Create(ctx, it, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, err := w.get(ctx, at, it.GetName())
	switch {
	case err != nil:
		return err
	case there == nil || !metav1.IsControlledBy(there, machine):
		return driver.Fail(driver.FailedPrecondition, "NAME_TAKEN", "%s %s is there, and of another Machine", at.Kind, it.GetName())
	case reflect.DeepEqual(there.Object["data"], it.Object["data"]):
		return nil
	}
	return patch(ctx, at, there, map[string]any{"data": it.Object["data"]}) // the token of a Secret was renewed
}

// patch changes this very object: another one of the name, with another UID, is not touched.
func patch(ctx context.Context, at resource, it *object, body map[string]any) error {
	change := object{Object: body}
	change.SetUID(it.GetUID())
	text, _ := json.Marshal(body) // of maps and texts: it cannot fail
	_, err := at.Patch(ctx, it.GetName(), types.MergePatchType, text, metav1.PatchOptions{})
	return err
}

// settle brings labels and annotations of an object to a spec, takes away those that an earlier one had put there, and
// leaves those of others. It returns what it changed, as paths of the spec. With tags it also writes the identity.
func (w *work) settle(ctx context.Context, one part, want spec, tags map[string]string) (paths []string, err error) {
	it, err := w.get(ctx, one.resource, one.name)
	if err != nil || it == nil {
		return nil, err
	}
	was, _ := recorded(it)
	names, notes := want.Labels, want.Annotations
	if tags != nil {
		names, notes = labels.Merge(names, w.identity(want)), labels.Merge(notes, tags)
	}
	named, noted := difference(it.GetLabels(), was.Labels, names), difference(it.GetAnnotations(), was.Annotations, notes)
	if len(named) > 0 {
		paths = append(paths, "labels")
	}
	if len(noted) > 0 {
		paths = append(paths, "annotations")
	}
	if paths == nil && it.GetAnnotations()[settled] == want.String() {
		return nil, nil
	}
	noted[settled] = want.String()
	return paths, patch(ctx, one.resource, it, map[string]any{"metadata": map[string]any{"labels": named, "annotations": noted}})
}

// difference is a merge patch of labels or annotations, from those that are there to those of a spec.
func difference(is, was, want map[string]string) map[string]any {
	change := map[string]any{}
	for key := range was {
		change[key] = nil
	}
	for key, value := range want {
		change[key] = value
	}
	maps.DeleteFunc(change, func(key string, value any) bool {
		now, there := is[key]
		return there && value == now || !there && value == nil
	})
	return change
}

// record is what a driver tells of a Machine of Cluster API.
func record(op *pb.OperationContext, it *object) *pb.MachineRecord {
	notes := it.GetAnnotations()
	all := &pb.MachineRecord{
		ProviderId: idOf(it), MachineName: cmp.Or(notes[machineName], it.GetName()), MachineUid: notes[machineUID],
		NodeName: text(it, "status", "nodeRef", "name"), PowerState: pb.MachinePowerState_MACHINE_POWER_STATE_PENDING,
		Fault: fault(it), CreatedAt: timestamppb.New(it.GetCreationTimestamp().Time),
	}
	if notes[clusterID] != op.ClusterId {
		all.ClusterId = notes[clusterID]
	}
	if there, _, _ := unstructured.NestedBool(it.Object, "status", "initialization", "infrastructureProvisioned"); there {
		all.PowerState = pb.MachinePowerState_MACHINE_POWER_STATE_RUNNING
	}
	if it.GetDeletionTimestamp() != nil {
		all.PowerState = pb.MachinePowerState_MACHINE_POWER_STATE_DELETING
	}
	addresses, _, _ := unstructured.NestedSlice(it.Object, "status", "addresses")
	for _, one := range addresses {
		one, _ := one.(map[string]any)
		all.Addresses = append(all.Addresses, &pb.Address{Type: fmt.Sprint(one["type"]), Address: fmt.Sprint(one["address"])})
	}
	return all
}

func text(it *object, path ...string) string {
	found, _, _ := unstructured.NestedString(it.Object, path...)
	return found
}

// idOf is the provider id of a Machine of Cluster API, empty until its infrastructure is there.
func idOf(it *object) string { return text(it, "spec", "providerID") }

const infrastructureReady = "InfrastructureReady"

// condition is one of a Machine of Cluster API, or nil.
func condition(it *object, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(it.Object, "status", "conditions")
	for _, one := range all {
		if one, _ := one.(map[string]any); one["type"] == kind {
			return one
		}
	}
	return nil
}

// progress is what Cluster API says of a Machine that is not there yet.
func progress(it *object) string {
	said := []string{"phase " + cmp.Or(text(it, "status", "phase"), "Pending")}
	for _, kind := range []string{"BootstrapConfigReady", infrastructureReady} {
		if one := condition(it, kind); one != nil && one["status"] != "True" {
			said = append(said, fmt.Sprintf("%s is %v: %v", kind, one["status"], cmp.Or(one["message"], one["reason"])))
		}
	}
	return strings.Join(said, "; ")
}

// fault is what Cluster API gives up a Machine for, as providers of the contract v1beta1 told it.
func fault(it *object) *pb.OperationError {
	said, there, _ := unstructured.NestedMap(it.Object, "status", "deprecated", "v1beta1")
	if !there || said["failureReason"] == nil && said["failureMessage"] == nil {
		return nil
	}
	return driver.Fail(driver.DataLoss, "CLUSTER_API_FAILURE", "%v: %v", said["failureReason"], said["failureMessage"]).Detail
}
