// The driver whose cloud is Cluster API: it clones templates, makes a standalone Machine that owns the clones, and waits for
// what its providers make of them. README.md explains.
package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// hold is how long a creation or a deletion waits in one call. Then it says what it waits for, and is asked again.
const hold = 30 * time.Second

// lag is how long after the end of the driver a request of it may still reach the API server.
const lag = 5 * time.Second

type capi struct {
	clusters clusters
	events   events
}

// CreateMachine makes the Machine of Cluster API first, and then what it refers to, with that Machine as the owner from
// the first moment: whatever breaks off in between goes when the Machine goes, and no provider sees a clone without its owner.
func (c *capi) CreateMachine(ctx context.Context, q *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	want, err := driver.ParseSpec[spec](q.Context)
	if err != nil {
		return nil, err
	}
	if theirs, ours := want.BootstrapTemplateRef != nil, q.Bootstrap != nil; theirs == ours {
		return nil, oneUserData(theirs)
	}
	return on(ctx, c, q.Context, func(w *work) (*pb.CreateMachineResponse, error) {
		it, err := w.one(ctx, q.ProviderId)
		if err == nil && it == nil {
			it, err = w.begin(ctx, want, q.Tags)
		} else if err == nil {
			err = w.take(ctx, it, want, q.Tags)
		}
		if err != nil {
			return nil, err
		}
		w.left = driver.Partial
		if text(it, "spec", "providerID") == "" {
			if err := w.finish(ctx, it, want, q); err != nil {
				return nil, err
			}
		}
		made, err := w.provisioned(ctx, it.GetName(), want)
		if err != nil {
			return nil, err
		}
		return &pb.CreateMachineResponse{Machine: record(q.Context, made)}, nil
	})
}

func oneUserData(both bool) error {
	said := "is needed, for the class has no user data"
	if both {
		said = "must be left out, or the user data of the class: one of the two starts the machine"
	}
	failed := driver.Fail(driver.InvalidArgument, "USER_DATA", "bootstrapTemplateRef %s", said)
	failed.Detail.Violations = driver.Violations{}.Unless(false, "bootstrapTemplateRef", said)
	return failed
}

// undrained: the core has drained the Node, and waited for its volumes.
var undrained = map[string]string{withoutDrain: "", withoutDetach: ""}

// begin makes the Machine of Cluster API, once everything that it needs is there.
func (w *work) begin(ctx context.Context, want spec, tags map[string]string) (*object, error) {
	if err := w.cluster(ctx, want.ClusterName); err != nil {
		return nil, err
	}
	for _, from := range want.templates() {
		if _, err := w.template(ctx, from); err != nil {
			return nil, err
		}
		if _, err := w.served(schema.GroupKind{Group: from.APIGroup, Kind: from.clone()}); err != nil {
			return nil, err
		}
	}
	for _, name := range w.names() {
		it, err := w.machine(ctx, name, want, tags)
		if err != nil {
			return nil, err
		}
		made, err := w.in(w.machines).Create(ctx, it, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			// Another process of this driver was faster, or the name is another's.
			if made, err = w.get(ctx, w.machines, name); err == nil && (made == nil || !w.isMine(made)) {
				continue
			}
		}
		if err != nil {
			w.left = driver.Partial // it may have reached the API server
			return nil, err
		}
		return made, nil
	}
	return nil, driver.Fail(driver.AlreadyExists, "NAME_TAKEN", "both names that the Machine of Cluster API may have are taken")
}

// machine is a standalone Machine of Cluster API.
func (w *work) machine(ctx context.Context, name string, want spec, tags map[string]string) (*object, error) {
	it := w.made(w.machines, name, want, tags)
	it.SetAnnotations(merged(it.GetAnnotations(), undrained))
	body := map[string]any{"clusterName": want.ClusterName}
	if version := cmp.Or(want.Version, w.op.GetMachine().GetVersion()); version != "" {
		body["version"] = version
	}
	if want.FailureDomain != "" {
		body["failureDomain"] = want.FailureDomain
	}
	var err error
	if body["infrastructureRef"], err = w.refer(ctx, want.InfrastructureTemplateRef, name); err != nil {
		return nil, err
	}
	if want.BootstrapTemplateRef == nil {
		body["bootstrap"] = map[string]any{"dataSecretName": secretOf(name)}
	} else {
		config, err := w.refer(ctx, *want.BootstrapTemplateRef, name)
		if err != nil {
			return nil, err
		}
		body["bootstrap"] = map[string]any{"configRef": config}
	}
	it.Object["spec"] = body
	return it, nil
}

// refer names a clone as the version of the Machine wants it: v1beta1 with version and namespace.
func (w *work) refer(ctx context.Context, from reference, name string) (map[string]any, error) {
	at, err := w.served(schema.GroupKind{Group: from.APIGroup, Kind: from.clone()})
	ref := map[string]any{"kind": from.clone(), "name": name}
	if w.machines.Version == "v1beta1" {
		ref["apiVersion"], ref["namespace"] = at.apiVersion(), w.home
	} else {
		ref["apiGroup"] = from.APIGroup
	}
	return ref, err
}

func secretOf(name string) string { return name + "-user-data" }

// take goes on with a Machine of Cluster API that is there: it gets the identity of today, if it has another or none.
func (w *work) take(ctx context.Context, it *object, want spec, tags map[string]string) error {
	if it.GetDeletionTimestamp() != nil {
		return driver.Fail(driver.Aborted, "DELETING", "Machine %s of Cluster API is being deleted", it.GetName())
	}
	was, known := recorded(it.GetAnnotations())
	if w.isMine(it) && it.GetAnnotations()[clusterID] == w.op.ClusterId {
		if paths := driver.Differing(was, want); known && len(paths) > 0 {
			return driver.Fail(driver.AlreadyExists, "DOES_NOT_FIT", "Machine %s of Cluster API was made with another %s",
				it.GetName(), strings.Join(paths, ", "))
		}
		return nil
	}
	if !known {
		was = want
		was.Labels, was.Annotations = nil, nil // an update brings those
	}
	_, err := w.settle(ctx, w.machines, it, was, merged(tags, undrained))
	return err
}

// finish makes what the Machine refers to and is not there; the infrastructure's last, for that begins when it has all.
func (w *work) finish(ctx context.Context, it *object, want spec, q *pb.CreateMachineRequest) error {
	if it.GetDeletionTimestamp() != nil {
		return driver.Fail(driver.Aborted, "DELETING", "Machine %s of Cluster API is being deleted", it.GetName())
	}
	var err error
	if want.BootstrapTemplateRef != nil {
		err = w.clone(ctx, *want.BootstrapTemplateRef, it, want, q.Tags)
	} else {
		secret := w.made(secrets, secretOf(it.GetName()), spec{ClusterName: want.ClusterName}, q.Tags)
		secret.Object["type"] = "cluster.x-k8s.io/secret"
		secret.Object["data"] = map[string]any{
			"value":  base64.StdEncoding.EncodeToString(q.Bootstrap.GetUserData()),
			"format": base64.StdEncoding.EncodeToString([]byte(cmp.Or(q.Bootstrap.GetFormat(), "cloud-config"))),
		}
		err = w.own(ctx, secrets, secret, it)
	}
	if err == nil {
		err = w.clone(ctx, want.InfrastructureTemplateRef, it, want, q.Tags)
	}
	return err
}

// provisioned waits until Cluster API knows the provider id.
func (w *work) provisioned(ctx context.Context, name string, want spec) (made *object, err error) {
	over, err := w.until(ctx, w.machines, name, func(it *object) (bool, error) {
		switch made = it; {
		case it == nil:
			return false, driver.Fail(driver.Aborted, "DELETED", "Machine %s of Cluster API was deleted meanwhile", name)
		case text(it, "spec", "providerID") != "":
			return true, nil
		case fault(it) != nil:
			return false, &driver.Error{Detail: fault(it)}
		}
		return false, nil
	})
	if err != nil || over {
		return made, err
	}
	if paused := w.cluster(ctx, want.ClusterName); paused != nil {
		return nil, paused
	}
	return nil, driver.Fail(driver.Unavailable, "PROVISIONING", "waits for Cluster API: %s", progress(made)).After(time.Second)
}

// progress is what Cluster API says of a Machine that is not there yet.
func progress(it *object) string {
	said := []string{"phase " + cmp.Or(text(it, "status", "phase"), "Pending")}
	for _, kind := range []string{"BootstrapConfigReady", "BootstrapReady", infrastructureReady} {
		if one := condition(it, kind); one != nil && one["status"] != "True" {
			said = append(said, fmt.Sprintf("%s is %v: %v", kind, one["status"], cmp.Or(one["message"], one["reason"])))
		}
	}
	return strings.Join(said, "; ")
}

// DeleteMachine deletes the Machine of Cluster API, which takes what it owns along, and waits until all of it is gone.
func (c *capi) DeleteMachine(ctx context.Context, q *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	return on(ctx, c, q.Context, func(w *work) (*pb.DeleteMachineResponse, error) {
		it, other := w.find(ctx, q.ProviderId)
		if other != nil && reasonOf(other) != "NOT_OURS" {
			return nil, other
		}
		answer := &pb.DeleteMachineResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT}
		if it != nil {
			answer.Outcome, w.left = pb.DeletionOutcome_DELETION_OUTCOME_DELETED, driver.Partial
			if err := w.removeAll(ctx, it); err != nil {
				return nil, err
			}
		}
		return answer, other
	})
}

// removeAll takes what the Machine owns as well, should anything be left of that: a Secret goes only when the garbage
// collector looks.
func (w *work) removeAll(ctx context.Context, it *object) error {
	parts, err := w.parts(it)
	if err != nil && reasonOf(err) != notServed { // of a kind that is not served there is nothing
		return err
	}
	if err := w.remove(ctx, w.machines, it); err != nil {
		return err
	}
	for _, one := range append(parts, part{secrets, secretOf(it.GetName())}) {
		left, err := w.get(ctx, one.resource, one.name)
		if err == nil && left != nil && metav1.IsControlledBy(left, it) {
			err = w.remove(ctx, one.resource, left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// remove deletes this very object, and waits until it is gone.
func (w *work) remove(ctx context.Context, at resource, it *object) error {
	uid := it.GetUID()
	if it.GetDeletionTimestamp() == nil {
		err := w.in(at).Delete(ctx, it.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	last := it
	gone, err := w.until(ctx, at, it.GetName(), func(now *object) (bool, error) {
		if now != nil {
			last = now
		}
		return now == nil || now.GetUID() != uid, nil
	})
	if err != nil || gone {
		return err
	}
	return w.waiting(ctx, at, last)
}

// waiting says whose turn it is in a deletion that takes long.
func (w *work) waiting(ctx context.Context, at resource, it *object) error {
	if paused := w.cluster(ctx, it.GetLabels()[clusterName]); reasonOf(paused) == "CLUSTER_PAUSED" {
		return paused
	}
	said := []string{holds(at.kind, it)}
	if at == w.machines {
		parts, err := w.parts(it)
		if err != nil {
			return err
		}
		for _, one := range parts {
			if clone, err := w.get(ctx, one.resource, one.name); err == nil && clone != nil {
				said = append(said, holds(one.kind, clone))
			}
		}
	}
	return driver.Fail(driver.Unavailable, "DELETING", "waits for the end of %s", strings.Join(said, "; ")).After(time.Second)
}

func holds(kind string, it *object) string {
	if len(it.GetFinalizers()) == 0 {
		return kind + " " + it.GetName()
	}
	return fmt.Sprintf("%s %s, which has finalizers %s", kind, it.GetName(), strings.Join(it.GetFinalizers(), ", "))
}

// GetMachineStatus finds what has a provider id. What has none yet is no instance: CreateMachine goes on with it.
func (c *capi) GetMachineStatus(ctx context.Context, q *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	return on(ctx, c, q.Context, func(w *work) (*pb.GetMachineStatusResponse, error) {
		it, err := w.instance(ctx, q.ProviderId)
		if err != nil {
			return nil, err
		}
		return &pb.GetMachineStatusResponse{Machine: record(q.Context, it)}, nil
	})
}

// instance is the Machine of Cluster API with its infrastructure.
func (w *work) instance(ctx context.Context, id string) (*object, error) {
	it, err := w.one(ctx, id)
	if err != nil {
		return nil, err
	}
	if it == nil {
		return nil, driver.Fail(driver.NotFound, "NO_MACHINE", "Cluster API has no such Machine")
	}
	if text(it, "spec", "providerID") == "" {
		return nil, driver.Fail(driver.NotFound, "PROVISIONING", "Cluster API has a Machine without provider id: %s", progress(it))
	}
	if it.GetDeletionTimestamp() != nil {
		return it, nil
	}
	parts, err := w.parts(it)
	if err != nil {
		return nil, err
	}
	for _, one := range parts[:min(len(parts), 1)] {
		clone, err := w.get(ctx, one.resource, one.name)
		if err == nil && clone == nil {
			err = driver.Fail(driver.NotFound, "NO_INFRASTRUCTURE", "%s %s was deleted", one.kind, one.name)
		}
		if err != nil {
			return nil, err
		}
	}
	return it, nil
}

// ListMachines reads those with a provider id.
func (c *capi) ListMachines(ctx context.Context, q *pb.ListMachinesRequest) (all []*pb.MachineRecord, err error) {
	err = c.list(ctx, q.Context, func(it *object) {
		if text(it, "spec", "providerID") != "" {
			all = append(all, record(q.Context, it))
		}
	})
	return all, err
}

// ListParts reads those without: a creation that broke off.
func (c *capi) ListParts(ctx context.Context, q *pb.ListMachinesRequest) (all []*pb.PartRecord, err error) {
	err = c.list(ctx, q.Context, func(it *object) {
		if text(it, "spec", "providerID") == "" {
			of := record(q.Context, it)
			all = append(all, &pb.PartRecord{
				Id: it.GetNamespace() + "/" + it.GetName(), Kind: "Machine of Cluster API",
				MachineName: of.MachineName, MachineUid: of.MachineUid, ClusterId: of.ClusterId,
			})
		}
	})
	return all, err
}

func (c *capi) list(ctx context.Context, op *pb.OperationContext, do func(*object)) error {
	hashes := []string{hashOf(op.ClusterId)}
	for _, id := range op.PreviousClusterIds {
		hashes = append(hashes, hashOf(id))
	}
	which := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s in (%s)", clusterHash, strings.Join(hashes, ","))}
	_, err := on(ctx, c, op, func(w *work) (any, error) {
		return nil, w.each(ctx, which, func(it *object) {
			if w.isOfCluster(it) {
				do(it)
			}
		})
	})
	return err
}

// ListScope: all classes of a namespace and of one management cluster have one list.
func (c *capi) ListScope(op *pb.OperationContext) string {
	return op.GetMachineClass().GetRef().GetNamespace() + "/" + keyOf(op.GetSecret())
}

// UpdateMachine brings labels and annotations to the Machine and its clones, from where Cluster API takes them to the Node.
func (c *capi) UpdateMachine(ctx context.Context, q *pb.UpdateMachineRequest) (*pb.UpdateMachineResponse, error) {
	want, err := driver.ParseSpec[spec](q.Context)
	if err != nil {
		return nil, err
	}
	return on(ctx, c, q.Context, func(w *work) (*pb.UpdateMachineResponse, error) {
		it, err := w.instance(ctx, q.ProviderId)
		if err != nil {
			return nil, err
		}
		was, known := recorded(it.GetAnnotations())
		if paths := driver.InTheWay(was, want, q.LastAppliedSpecJson); known && len(paths) > 0 {
			return nil, driver.NotHotUpdatable(paths)
		}
		parts, err := w.parts(it)
		if err != nil {
			return nil, err
		}
		answer := &pb.UpdateMachineResponse{}
		for _, one := range append(parts, part{w.machines, it.GetName()}) {
			now, err := w.get(ctx, one.resource, one.name)
			if err == nil && now != nil {
				var paths []string
				paths, err = w.settle(ctx, one.resource, now, want, nil)
				answer.AppliedPaths = append(answer.AppliedPaths, paths...)
				w.left = driver.Partial
			}
			if err != nil {
				return nil, err
			}
		}
		slices.Sort(answer.AppliedPaths)
		answer.AppliedPaths = slices.Compact(answer.AppliedPaths)
		return answer, nil
	})
}

// ValidateClass refuses what can never be, and warns of what is not there yet: it may come.
func (c *capi) ValidateClass(ctx context.Context, q *pb.ValidateClassRequest) (*pb.ValidateClassResponse, error) {
	answer := driver.Validate[spec](q)
	if len(answer.Violations) > 0 {
		return answer, nil
	}
	want, err := driver.ParseSpec[spec](&pb.OperationContext{MachineClass: &pb.ClassContent{ProviderSpecJson: q.ProviderSpecJson}})
	if err != nil {
		return nil, err
	}
	_, err = on(ctx, c, q.Context, func(w *work) (any, error) {
		if w.home == "" {
			return nil, nil
		}
		said := []error{w.cluster(ctx, want.ClusterName)}
		for _, from := range want.templates() {
			_, err := w.template(ctx, from)
			said = append(said, err)
		}
		return nil, errors.Join(said...)
	})
	// The secret of the class, which is not shown here, may name another management cluster: one that does not answer says nothing.
	if reason := reasonOf(err); reason != "" && reason != "NO_ANSWER" && reason != "NO_CREDENTIALS" {
		answer.Warnings = []string{err.Error()}
	}
	return answer, nil
}

func main() {
	wait := lag
	driver.Main(&capi{events: make(events, mostEvents)}, driver.Info{
		Provider: cmp.Or(os.Getenv("CAPI_PROVIDER"), "capi.ostler.dev"), Version: "0.1.0", MaxInFlight: 500,
		ListLag: &wait, PreviousClusterIDs: true,
	})
}
