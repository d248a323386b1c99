// The driver whose cloud is Cluster API: it clones templates, makes a standalone Machine that owns the clones, and waits for
// what its providers make of them. README.md explains.
package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// hold is how long a creation or a deletion waits in one call. Then it says what it waits for, and is asked again.
const hold = 30 * time.Second

type capi struct {
	clusters clusters
	driver.Events
}

// CreateMachine makes the Machine of Cluster API first, and then what it refers to, with that Machine as the owner from
// the first moment: whatever breaks off in between goes when the Machine goes, and no provider sees a clone without its owner.
func (c *capi) CreateMachine(ctx context.Context, q *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	want, err := driver.ParseSpec[spec](q.Context)
	if err == nil && (want.BootstrapTemplateRef != nil) == (q.Bootstrap != nil) {
		err = driver.Fail(driver.InvalidArgument, "USER_DATA", "bootstrapTemplateRef or user data: exactly one of the two starts the machine")
	}
	if err != nil {
		return nil, err
	}
	return on(ctx, c, q.Context, func(w *work) (*pb.CreateMachineResponse, error) {
		it, err := w.find(ctx, q.ProviderId)
		if err == nil && it == nil {
			it, err = w.begin(ctx, want, q.Tags)
		}
		if it == nil {
			return nil, err
		}
		if err := w.take(ctx, it, want, q.Tags); err != nil {
			return nil, err
		}
		w.left = driver.Partial
		if idOf(it) == "" {
			if err := w.finish(ctx, it, want, q); err != nil {
				return nil, err
			}
		}
		return w.provisioned(ctx, it.GetName(), want)
	})
}

// undrained: the core has drained the Node, and waited for its volumes.
var undrained = map[string]string{withoutDrain: "", withoutDetach: ""}

// begin makes the Machine of Cluster API, once everything that it needs is there. It has the name of ours or, while another
// cluster or an earlier Machine has that, one with its UID.
func (w *work) begin(ctx context.Context, want spec, tags map[string]string) (*object, error) {
	if err := w.ready(ctx, want); err != nil {
		return nil, err
	}
	for _, suffix := range []string{"", "-" + digest(w.op.Target.GetUid(), 8)} {
		name := fmt.Sprintf("%.240s%s", w.op.Target.GetName(), suffix)
		w.left = driver.Partial // it may reach the API server
		made, err := w.machines.Create(ctx, w.machine(name, want, tags), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			// Another process of this driver was faster, or the name is another's.
			if made, err = w.get(ctx, w.machines, name); err == nil && (made == nil || !w.isMine(made)) {
				continue
			}
		}
		return made, err
	}
	w.left = driver.NotApplied
	return nil, driver.Fail(driver.AlreadyExists, "NAME_TAKEN", "both names that the Machine of Cluster API may have are taken")
}

// machine is a standalone Machine of Cluster API.
func (w *work) machine(name string, want spec, tags map[string]string) *object {
	bootstrap := map[string]any{"dataSecretName": secretOf(name)}
	if want.BootstrapTemplateRef != nil {
		bootstrap = map[string]any{"configRef": want.BootstrapTemplateRef.named(name)}
	}
	body := map[string]any{
		"clusterName": want.ClusterName, "infrastructureRef": want.InfrastructureTemplateRef.named(name), "bootstrap": bootstrap,
	}
	optional := map[string]string{"version": cmp.Or(want.Version, w.op.GetMachine().GetVersion()), "failureDomain": want.FailureDomain}
	for field, value := range optional {
		if value != "" {
			body[field] = value
		}
	}
	it := w.made(w.machines, name, want, labels.Merge(tags, undrained))
	it.Object["spec"] = body
	return it
}

func secretOf(name string) string { return name + "-user-data" }

// take gives the identity of today to a Machine of Cluster API that has another or none.
func (w *work) take(ctx context.Context, it *object, want spec, tags map[string]string) error {
	if it.GetDeletionTimestamp() != nil {
		return driver.Fail(driver.Aborted, "DELETING", "Machine %s of Cluster API is being deleted", it.GetName())
	}
	was, known := recorded(it)
	if w.isMine(it) && it.GetAnnotations()[clusterID] == w.op.ClusterId {
		if paths := driver.Differing(was, want); known && len(paths) > 0 {
			return driver.Fail(driver.AlreadyExists, "DOES_NOT_FIT", "Machine %s of Cluster API was made with another %s",
				it.GetName(), strings.Join(paths, ", "))
		}
		return nil
	}
	if !known {
		was = want
	}
	_, err := w.settle(ctx, part{w.machines, it.GetName()}, was, labels.Merge(tags, undrained))
	return err
}

// finish makes what the Machine refers to and is not there; the infrastructure's last, for that begins when it has all.
func (w *work) finish(ctx context.Context, it *object, want spec, q *pb.CreateMachineRequest) error {
	if q.Bootstrap != nil {
		secret := w.made(w.secrets, secretOf(it.GetName()), spec{ClusterName: want.ClusterName}, q.Tags)
		secret.Object["type"] = "cluster.x-k8s.io/secret"
		secret.Object["data"] = map[string]any{
			"value":  base64.StdEncoding.EncodeToString(q.Bootstrap.UserData),
			"format": base64.StdEncoding.EncodeToString([]byte(cmp.Or(q.Bootstrap.Format, "cloud-config"))),
		}
		if err := w.own(ctx, w.secrets, secret, it); err != nil {
			return err
		}
	}
	for _, from := range slices.Backward(want.templates()) {
		if err := w.clone(ctx, from, it, want, q.Tags); err != nil {
			return err
		}
	}
	return nil
}

// provisioned waits until Cluster API knows the provider id.
func (w *work) provisioned(ctx context.Context, name string, want spec) (*pb.CreateMachineResponse, error) {
	var made *object
	over, err := until(ctx, func() (bool, error) {
		it, err := w.get(ctx, w.machines, name)
		switch made = it; {
		case err != nil:
			return false, err
		case made == nil:
			return false, driver.Fail(driver.Aborted, "DELETED", "Machine %s of Cluster API was deleted meanwhile", name)
		case idOf(made) == "" && fault(made) != nil:
			return false, &driver.Error{Detail: fault(made)}
		}
		return idOf(made) != "", nil
	})
	if over {
		return &pb.CreateMachineResponse{Machine: record(w.op, made)}, nil
	}
	if err == nil {
		err = w.cluster(ctx, want.ClusterName)
	}
	if err == nil {
		err = driver.Fail(driver.Unavailable, "PROVISIONING", "waits for Cluster API: %s", progress(made)).After(time.Second)
	}
	return nil, err
}

// DeleteMachine deletes the Machine of Cluster API, which takes what it owns along, and waits until all of it is gone.
func (c *capi) DeleteMachine(ctx context.Context, q *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	return on(ctx, c, q.Context, func(w *work) (*pb.DeleteMachineResponse, error) {
		it, refused := w.find(ctx, q.ProviderId)
		if it == nil {
			return &pb.DeleteMachineResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT}, refused
		}
		w.left = driver.Partial
		if err := w.remove(ctx, it); err != nil {
			return nil, err
		}
		return &pb.DeleteMachineResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_DELETED}, refused
	})
}

// remove waits for the Machine, which goes after its clones, and takes what is left then: a Secret goes only when the garbage
// collector looks.
func (w *work) remove(ctx context.Context, machine *object) error {
	parts, err := w.parts(machine)
	if err != nil && driver.ReasonOf(err) != notServed { // of a kind that is not served there is nothing
		return err
	}
	parts = slices.Concat([]part{{w.machines, machine.GetName()}}, parts, []part{{w.secrets, secretOf(machine.GetName())}})
	own := func(one part) (*object, error) {
		it, err := w.get(ctx, one.resource, one.name)
		if it != nil && it.GetUID() != machine.GetUID() && !metav1.IsControlledBy(it, machine) {
			it = nil
		}
		return it, err
	}
	gone, err := until(ctx, func() (bool, error) {
		for ; len(parts) > 0; parts = parts[1:] {
			it, err := own(parts[0])
			if err == nil && it != nil && it.GetDeletionTimestamp() == nil {
				err = parts[0].Delete(ctx, it.GetName(), *metav1.NewPreconditionDeleteOptions(string(it.GetUID())))
				err = utilerrors.FilterOut(err, apierrors.IsNotFound)
			}
			if err != nil || it != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil || gone {
		return err
	}
	if err := w.cluster(ctx, machine.GetLabels()[clusterName]); driver.ReasonOf(err) == paused {
		return err
	}
	var said []string
	for _, one := range parts {
		if it, _ := own(one); it != nil {
			said = append(said, strings.Join(append([]string{one.Kind + " " + one.name}, it.GetFinalizers()...), ", held by "))
		}
	}
	return driver.Fail(driver.Unavailable, "DELETING", "waits for the end of %s", strings.Join(said, "; ")).After(time.Second)
}

// GetMachineStatus finds what has a provider id. What has none yet is no instance: CreateMachine goes on with it.
func (c *capi) GetMachineStatus(ctx context.Context, q *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	return on(ctx, c, q.Context, func(w *work) (*pb.GetMachineStatusResponse, error) {
		it, _, err := w.instance(ctx, q.ProviderId)
		if err != nil {
			return nil, err
		}
		return &pb.GetMachineStatusResponse{Machine: record(q.Context, it)}, nil
	})
}

// instance is the Machine of Cluster API, whose infrastructure is there, and its parts.
func (w *work) instance(ctx context.Context, id string) (it *object, parts []part, err error) {
	it, err = w.find(ctx, id)
	if it == nil || idOf(it) == "" {
		none := driver.Fail(driver.NotFound, "NO_MACHINE", "Cluster API has no such Machine with a provider id")
		return nil, nil, cmp.Or[error](err, none)
	}
	parts, err = w.parts(it)
	if err != nil || len(parts) == 0 || it.GetDeletionTimestamp() != nil {
		return it, parts, err
	}
	clone, err := w.get(ctx, parts[0].resource, parts[0].name)
	if err == nil && clone == nil {
		err = driver.Fail(driver.NotFound, "NO_INFRASTRUCTURE", "%s %s was deleted", parts[0].Kind, parts[0].name)
	}
	return it, parts, err
}

// ListMachines reads those with a provider id.
func (c *capi) ListMachines(ctx context.Context, q *pb.ListMachinesRequest) (all []*pb.MachineRecord, err error) {
	made, err := c.list(ctx, q.Context, true)
	for _, it := range made {
		all = append(all, record(q.Context, it))
	}
	return all, err
}

// ListParts reads those without: a creation that broke off.
func (c *capi) ListParts(ctx context.Context, q *pb.ListMachinesRequest) (all []*pb.PartRecord, err error) {
	begun, err := c.list(ctx, q.Context, false)
	for _, it := range begun {
		of := record(q.Context, it)
		all = append(all, &pb.PartRecord{
			Id: it.GetNamespace() + "/" + it.GetName(), Kind: "Machine of Cluster API",
			MachineName: of.MachineName, MachineUid: of.MachineUid, ClusterId: of.ClusterId,
		})
	}
	return all, err
}

func (c *capi) list(ctx context.Context, op *pb.OperationContext, made bool) ([]*object, error) {
	return on(ctx, c, op, func(w *work) ([]*object, error) {
		return w.all(ctx, clusterHash, func(it *object) bool { return w.isOfCluster(it) && (idOf(it) != "") == made })
	})
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
		it, parts, err := w.instance(ctx, q.ProviderId)
		if err != nil {
			return nil, err
		}
		was, known := recorded(it)
		if paths := driver.InTheWay(was, want, q.LastAppliedSpecJson); known && len(paths) > 0 {
			return nil, driver.NotHotUpdatable(paths)
		}
		changed := sets.New[string]()
		for _, one := range append(parts, part{w.machines, it.GetName()}) {
			paths, err := w.settle(ctx, one, want, nil)
			if err != nil {
				return nil, err
			}
			changed.Insert(paths...)
			w.left = driver.Partial
		}
		return &pb.UpdateMachineResponse{AppliedPaths: sets.List(changed)}, nil
	})
}

// ValidateClass refuses what can never be, and warns of what is not there yet: it may come.
func (c *capi) ValidateClass(ctx context.Context, q *pb.ValidateClassRequest) (*pb.ValidateClassResponse, error) {
	answer := driver.Validate[spec](q)
	if len(answer.Violations) > 0 {
		return answer, nil
	}
	want, _ := driver.ParseSpec[spec](&pb.OperationContext{MachineClass: &pb.ClassContent{ProviderSpecJson: q.ProviderSpecJson}})
	_, err := on(ctx, c, q.Context, func(w *work) (any, error) {
		if w.home == "" {
			return nil, nil
		}
		return nil, w.ready(ctx, want)
	})
	// The secret of the class, which is not shown here, may name another management cluster: one that does not answer says nothing.
	if !slices.Contains([]string{"", "NO_ANSWER", "NO_CREDENTIALS"}, driver.ReasonOf(err)) {
		answer.Warnings = []string{err.Error()}
	}
	return answer, nil
}

func main() {
	driver.Main(&capi{clusters{known: map[string]*management{}}, make(driver.Events, 500)}, driver.Info{
		Provider: cmp.Or(os.Getenv("CAPI_PROVIDER"), "capi.ostler.dev"), Version: "0.1.0", MaxInFlight: 500, PreviousClusterIDs: true,
		ListLag: new(5 * time.Second), // after the end of the driver a request may still reach the API server
	})
}
