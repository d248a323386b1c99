package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

const coreGroup = "cluster.x-k8s.io"

var secrets = resource{schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret"}

// work is one operation: whose it is, and where its objects are.
type work struct {
	*management
	op       *pb.OperationContext
	home     string // the namespace of its objects
	machines resource
	left     driver.Certainty // what an error leaves behind
}

// on does one operation, and says what an error of it left.
func on[A any](ctx context.Context, c *capi, op *pb.OperationContext, do func(*work) (A, error)) (answer A, err error) {
	w := &work{op: op, left: driver.NotApplied}
	if w.management, err = c.clusters.of(op.GetSecret()); err == nil {
		w.machines, err = w.served(schema.GroupKind{Group: coreGroup, Kind: "Machine"})
	}
	if err == nil {
		w.home = cmp.Or(w.namespace, op.GetMachineClass().GetRef().GetNamespace())
		w.watch(c.events)
		answer, err = do(w)
	}
	return answer, failure(ctx, err, w.left)
}

// in are the objects of a kind in the namespace of the operation.
func (w *work) in(at resource) dynamic.ResourceInterface {
	return w.Resource(at.GroupVersionResource).Namespace(w.home)
}

// names are those that the Machine of Cluster API may have: that of ours or, while another cluster or an earlier Machine
// has that, one with its UID.
func (w *work) names() [2]string {
	name := w.op.Target.GetName()
	return [2]string{name, fmt.Sprintf("%.240s-%s", name, digest(w.op.Target.GetUid(), 8))}
}

// isOfCluster says that an object has the identity of this cluster, now or before.
func (w *work) isOfCluster(it *object) bool {
	id := it.GetAnnotations()[clusterID]
	return id != "" && (id == w.op.ClusterId || slices.Contains(w.op.PreviousClusterIds, id))
}

func (w *work) isMine(it *object) bool {
	return w.isOfCluster(it) && it.GetAnnotations()[machineUID] == w.op.Target.GetUid()
}

// stranger refuses what is there and is another's.
func stranger(it *object) *driver.Error {
	id := text(it, "spec", "providerID")
	if id == "" {
		id = it.GetNamespace() + "/" + it.GetName()
	}
	refused := driver.NotOurs(id, it.GetAnnotations()[clusterID])
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

// find returns the Machine of Cluster API that is this machine's, or nil; and a refusal if there is one that was meant and is
// another's. Both may be.
func (w *work) find(ctx context.Context, id string) (*object, error) {
	var mine, named *object
	for _, name := range w.names() {
		it, err := w.get(ctx, w.machines, name)
		switch {
		case err != nil:
			return nil, err
		case it == nil:
		case w.isMine(it) && mine != nil:
			return nil, driver.Fail(driver.OutOfRange, "SEVERAL_MACHINES", "two Machines of Cluster API have this identity: delete one")
		case w.isMine(it):
			mine = it
		case named == nil:
			named = it
		}
	}
	if mine == nil { // one that was taken over has any name
		which := metav1.ListOptions{LabelSelector: machineUID + "=" + w.op.Target.GetUid()}
		if err := w.each(ctx, which, func(it *object) {
			if w.isMine(it) {
				mine = it
			}
		}); err != nil {
			return nil, err
		}
	}
	if id != "" && (mine == nil || text(mine, "spec", "providerID") != id) {
		holder, err := w.holder(ctx, id, named)
		switch {
		case err != nil:
			return nil, err
		case holder == nil:
		case w.isFree(holder), w.isOfCluster(holder) && holder.GetAnnotations()[machineName] == w.op.Target.GetName():
			return holder, nil
		default:
			return mine, stranger(holder)
		}
	}
	if mine != nil || named == nil {
		return mine, nil
	}
	before := w.isOfCluster(named) && named.GetAnnotations()[clusterID] != w.op.ClusterId
	unclaimed := named.GetAnnotations()[clusterID] == ""
	switch {
	case id == "" && w.isFree(named):
		return named, nil
	case id == "" && (before || unclaimed):
		return nil, stranger(named)
	}
	return nil, nil
}

// one is find for who does not delete: its own Machine counts, whatever the id names.
func (w *work) one(ctx context.Context, id string) (*object, error) {
	it, err := w.find(ctx, id)
	if it != nil && reasonOf(err) == "NOT_OURS" {
		err = nil
	}
	return it, err
}

// holder is the Machine of Cluster API with a provider id, or nil.
func (w *work) holder(ctx context.Context, id string, likely *object) (holder *object, err error) {
	if likely != nil && text(likely, "spec", "providerID") == id {
		return likely, nil
	}
	err = w.each(ctx, metav1.ListOptions{}, func(it *object) {
		if text(it, "spec", "providerID") == id {
			holder = it
		}
	})
	return holder, err
}

// each calls do with all Machines of Cluster API in the namespace that fit, or fails.
func (w *work) each(ctx context.Context, which metav1.ListOptions, do func(*object)) error {
	all := w.in(w.machines)
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return all.List(ctx, options)
	}))
	return pages.EachListItem(ctx, which, func(it runtime.Object) error {
		do(it.(*object))
		return nil
	})
}

// part is one of the three objects, or the Secret.
type part struct {
	resource
	name string
}

// parts are what a Machine of Cluster API refers to: the clones, the infrastructure's first.
func (w *work) parts(it *object) (all []part, err error) {
	for _, path := range [][]string{{"spec", "infrastructureRef"}, {"spec", "bootstrap", "configRef"}} {
		group := text(it, append(path, "apiGroup")...)
		if version := text(it, append(path, "apiVersion")...); version != "" {
			group, _, _ = strings.Cut(version, "/")
		}
		kind := text(it, append(path, "kind")...)
		if kind == "" {
			continue
		}
		at, err := w.served(schema.GroupKind{Group: group, Kind: kind})
		if err != nil {
			return nil, err
		}
		all = append(all, part{at, text(it, append(path, "name")...)})
	}
	return all, nil
}

// template reads what a clone is made from.
func (w *work) template(ctx context.Context, from reference) (*object, error) {
	at, err := w.served(schema.GroupKind{Group: from.APIGroup, Kind: from.Kind})
	if err != nil {
		return nil, err
	}
	it, err := w.get(ctx, at, from.Name)
	if err == nil && it == nil {
		return nil, driver.Fail(driver.FailedPrecondition, "NO_TEMPLATE", "there is no %s %s in namespace %s", from.Kind, from.Name, w.home)
	}
	return it, err
}

// cluster checks that the controllers work on the Cluster.
func (w *work) cluster(ctx context.Context, name string) error {
	at, err := w.served(schema.GroupKind{Group: coreGroup, Kind: "Cluster"})
	if err != nil {
		return err
	}
	it, err := w.get(ctx, at, name)
	if err != nil {
		return err
	}
	if it == nil {
		return driver.Fail(driver.FailedPrecondition, "NO_CLUSTER", "there is no Cluster %s in namespace %s", name, w.home)
	}
	_, annotated := it.GetAnnotations()["cluster.x-k8s.io/paused"]
	if paused, _, _ := unstructured.NestedBool(it.Object, "spec", "paused"); paused || annotated {
		return driver.Fail(driver.FailedPrecondition, "CLUSTER_PAUSED", "Cluster %s is paused: Cluster API does nothing for it", name)
	}
	return nil
}

// made is a new object with the identity of the machine.
func (w *work) made(at resource, name string, want spec, tags map[string]string) *object {
	it := &object{Object: map[string]any{}}
	it.SetAPIVersion(at.apiVersion())
	it.SetKind(at.kind)
	it.SetNamespace(w.home)
	it.SetName(name)
	it.SetLabels(want.Labels)
	it.SetAnnotations(want.Annotations)
	w.identify(it, want, tags)
	remember(it, want)
	return it
}

// identify puts the identity on an object.
func (w *work) identify(it *object, want spec, tags map[string]string) {
	it.SetLabels(merged(it.GetLabels(), map[string]string{
		clusterName: want.ClusterName, machineUID: w.op.Target.GetUid(), clusterHash: hashOf(w.op.ClusterId),
	}))
	it.SetAnnotations(merged(it.GetAnnotations(), tags))
}

// remember notes on an object what it was brought to.
func remember(it *object, want spec) {
	if text, err := json.Marshal(want); err == nil {
		it.SetAnnotations(merged(it.GetAnnotations(), map[string]string{settled: string(text)}))
	}
}

// clone is the object of a template, as Cluster API makes it, with the Machine as its owner.
func (w *work) clone(ctx context.Context, from reference, machine *object, want spec, tags map[string]string) error {
	template, err := w.template(ctx, from)
	if err != nil {
		return err
	}
	at, err := w.served(schema.GroupKind{Group: from.APIGroup, Kind: from.clone()})
	if err != nil {
		return err
	}
	it := w.made(at, machine.GetName(), want, tags)
	body, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	if body == nil {
		body = map[string]any{}
	}
	it.Object["spec"] = body
	labels, _, _ := unstructured.NestedStringMap(template.Object, "spec", "template", "metadata", "labels")
	notes, _, _ := unstructured.NestedStringMap(template.Object, "spec", "template", "metadata", "annotations")
	it.SetLabels(merged(labels, it.GetLabels()))
	it.SetAnnotations(merged(notes, it.GetAnnotations(), map[string]string{
		clonedName: from.Name, clonedKind: schema.GroupKind{Group: from.APIGroup, Kind: from.Kind}.String(),
	}))
	return w.own(ctx, at, it, machine)
}

// own creates an object with the Machine as its owner, or finds it.
func (w *work) own(ctx context.Context, at resource, it, machine *object) error {
	yes := true
	it.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: w.machines.apiVersion(), Kind: "Machine", Name: machine.GetName(), UID: machine.GetUID(),
		Controller: &yes, BlockOwnerDeletion: &yes,
	}})
	_, err := w.in(at).Create(ctx, it, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, err := w.get(ctx, at, it.GetName())
	if err != nil {
		return err
	}
	if there == nil || !metav1.IsControlledBy(there, machine) {
		return driver.Fail(driver.FailedPrecondition, "NAME_TAKEN", "%s %s is there, and of another Machine", at.kind, it.GetName())
	}
	if at != secrets || reflect.DeepEqual(there.Object["data"], it.Object["data"]) {
		return nil
	}
	// Its token was renewed.
	return w.patch(ctx, at, there, map[string]any{"data": it.Object["data"]})
}

func merged(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, one := range all {
		maps.Copy(sum, one)
	}
	return sum
}

func (w *work) patch(ctx context.Context, at resource, it *object, body map[string]any) error {
	text, err := json.Marshal(body)
	if err == nil {
		_, err = w.in(at).Patch(ctx, it.GetName(), types.MergePatchType, text, metav1.PatchOptions{})
	}
	return err
}

// settle brings labels and annotations of an object to a spec, takes away those that an earlier one had put there, and
// leaves those of others. It returns what it changed, as paths of the spec.
func (w *work) settle(ctx context.Context, at resource, it *object, want spec, tags map[string]string) (paths []string, err error) {
	was, _ := recorded(it.GetAnnotations())
	now := it.DeepCopy()
	now.SetLabels(merged(without(it.GetLabels(), was.Labels), want.Labels))
	now.SetAnnotations(merged(without(it.GetAnnotations(), was.Annotations), want.Annotations))
	if len(difference(it.GetLabels(), now.GetLabels())) > 0 {
		paths = append(paths, "labels")
	}
	if len(difference(it.GetAnnotations(), now.GetAnnotations())) > 0 {
		paths = append(paths, "annotations")
	}
	if tags != nil {
		w.identify(now, want, tags)
	}
	remember(now, want)
	labels, notes := difference(it.GetLabels(), now.GetLabels()), difference(it.GetAnnotations(), now.GetAnnotations())
	if len(labels)+len(notes) == 0 {
		return nil, nil
	}
	// By its UID: another object of the name is not touched.
	return paths, w.patch(ctx, at, it, map[string]any{
		"metadata": map[string]any{"uid": it.GetUID(), "labels": labels, "annotations": notes},
	})
}

func without(all, less map[string]string) map[string]string {
	maps.DeleteFunc(all, func(key, _ string) bool { _, goes := less[key]; return goes })
	return all
}

// difference is a merge patch from one map to the other.
func difference(from, to map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range from {
		if _, stays := to[key]; !stays {
			patch[key] = nil
		}
	}
	for key, value := range to {
		if now, there := from[key]; !there || now != value {
			patch[key] = value
		}
	}
	return patch
}

func reasonOf(err error) string {
	var known *driver.Error
	if errors.As(err, &known) {
		return known.Detail.Reason
	}
	return ""
}
