// Package mcm serves a provider of machine-controller-manager, unmodified, as an Ostler driver.
//
// The main of a provider becomes
//
//	func main() {
//		mcm.Main(aws.NewAWSDriver(&cpi.ClientProvider{}),
//			mcm.Info{Provider: "aws.example.com", Classes: "AWS", FindsByName: true})
//	}
//
// ../../../docs/mcm-providers.md says what such a driver can and cannot do.
package mcm

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	upstream "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// Info says who the driver is.
type Info struct {
	// Provider is a DNS name. The core maps the provider of the classes to it: `--provider-alias AWS=aws.example.com`.
	Provider string
	// Classes is what `provider` of a MachineClass must be for the provider, e.g. AWS.
	Classes string
	// Version is for people.
	Version string
	// FindsByName says that the provider needs no spec.providerID to find an instance: GetMachineStatus reads it by its name,
	// or CreateMachine finds by name what it made before, and finishes it; and DeleteMachine deletes it by name. For any other
	// provider NotFound without an id says nothing, and ListMachines is asked as well.
	FindsByName bool
	// MaxInFlight is how many operations the provider works on at once; 0: 100, as many as the workers of
	// machine-controller-manager, for which providers are written: they may block for 20 minutes.
	MaxInFlight uint32
	// ListLag is how long after a call the infrastructure may not show what that made: as in driver.Info.
	ListLag *time.Duration
	// ProviderIDs is how the provider ids of Nodes are compared with those of the provider: as in driver.Info.
	ProviderIDs pb.ProviderIdComparison
}

func (info Info) driver() driver.Info {
	return driver.Info{
		Provider: info.Provider, Version: info.Version, MaxInFlight: cmp.Or(info.MaxInFlight, 100), IdentityByName: true,
		ListLag: info.ListLag, ProviderIDs: info.ProviderIDs,
	}
}

// Main serves the provider on the unix socket that OSTLER_DRIVER_SOCKET names, until SIGTERM. It ends the program with 1
// and says why if it cannot.
func Main(provider upstream.Driver, info Info) {
	driver.Main(New(provider, info), info.driver())
}

// New makes a driver of a provider.
func New(provider upstream.Driver, info Info) driver.Driver {
	return shim{provider, info}
}

type shim struct {
	provider upstream.Driver
	info     Info
}

// CreateMachine looks first, as machine-controller-manager does: not every provider does so by itself. One that cannot
// read must: asked again, it finds by name what it made, and finishes it.
func (s shim) CreateMachine(ctx context.Context, q *pb.CreateMachineRequest) (*pb.CreateMachineResponse, error) {
	op := q.Context
	found, err := s.find(ctx, op, q.ProviderId, q.Bootstrap)
	if err == nil {
		return &pb.CreateMachineResponse{Machine: found}, nil
	}
	if code := codeOf(err); code != codes.NotFound && code != codes.Unimplemented {
		return nil, failure(err, driver.NotApplied, "")
	}
	if ctx.Err() != nil {
		return nil, driver.Fail(driver.Canceled, "CANCELED", "the operation was over before the provider was asked to create")
	}
	ctx, end := uncancelled(ctx)
	defer end()
	made, err := s.provider.CreateMachine(ctx, &upstream.CreateMachineRequest{
		Machine: s.machine(op, q.ProviderId), MachineClass: s.class(op), Secret: secretOf(op, q.Bootstrap),
	})
	state := ""
	if made != nil {
		state = made.LastKnownState
	}
	if err != nil {
		// No code says that nothing was made: the core reads before it goes on.
		return nil, failure(err, driver.NotKnown, state)
	}
	record := recordOf(op, made.ProviderID, made.NodeName, made.Addresses)
	record.Initialized = new(bool) // a provider that has nothing to do there says Unimplemented
	return &pb.CreateMachineResponse{Machine: record, Checkpoint: state}, nil
}

// InitializeMachine is asked until it succeeds, whatever a read says meanwhile.
func (s shim) InitializeMachine(ctx context.Context, q *pb.InitializeMachineRequest) (*pb.InitializeMachineResponse, error) {
	op := q.Context
	ctx, end := uncancelled(ctx)
	defer end()
	done, err := s.provider.InitializeMachine(ctx, &upstream.InitializeMachineRequest{
		Machine: s.machine(op, q.ProviderId), MachineClass: s.class(op), Secret: secretOf(op, q.Bootstrap),
	})
	if err != nil {
		return nil, failure(err, driver.Partial, "")
	}
	record := recordOf(op, q.ProviderId, "", nil)
	if done != nil {
		record = recordOf(op, cmp.Or(done.ProviderID, q.ProviderId), done.NodeName, done.Addresses)
	}
	return &pb.InitializeMachineResponse{Machine: record}, nil
}

// DeleteMachine looks first: most providers call it a success that there was nothing, and only a read tells DELETED from
// WAS_ABSENT, which the core doubts for an instance that it did not have made. What a read does not see, such as disks,
// is deleted all the same.
func (s shim) DeleteMachine(ctx context.Context, q *pb.DeleteMachineRequest) (*pb.DeleteMachineResponse, error) {
	op, id := q.Context, q.ProviderId
	looking, stop := quarter(ctx)
	defer stop()
	_, unseen := s.read(looking, op, id, nil)
	if codeOf(unseen) == codes.Unimplemented {
		_, unseen = s.listed(looking, op)
	} else if listed, err := s.idInList(looking, op, id, unseen); err != nil {
		return nil, failure(err, driver.NotApplied, "")
	} else if listed != "" {
		id, unseen = listed, nil
	}
	ctx, end := uncancelled(ctx)
	defer end()
	gone, err := s.provider.DeleteMachine(ctx, &upstream.DeleteMachineRequest{
		Machine: s.machine(op, id), MachineClass: s.class(op), Secret: secretOf(op, nil),
	})
	answer := &pb.DeleteMachineResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_DELETED}
	if gone != nil {
		answer.Checkpoint = gone.LastKnownState
	}
	absent := err == nil && codeOf(unseen) == codes.NotFound
	if absent || codeOf(err) == codes.NotFound {
		answer.Outcome = pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT
	} else if err != nil {
		// The same request again finishes it; a read would see only the VM, and no disk that is left.
		return nil, failure(err, driver.Partial, answer.Checkpoint)
	}
	return answer, nil
}

// uncancelled is ctx without its cancellation, with its deadline: machine-controller-manager cancels no change, and a
// provider that is cut off may have made an instance whose id it never says.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	whole := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(whole, deadline)
	}
	return context.WithCancel(whole)
}

// quarter leaves time for what comes after a read that ends only with its context.
func quarter(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Until(deadline)/4)
	}
	return context.WithCancel(ctx)
}

func (s shim) GetMachineStatus(ctx context.Context, q *pb.GetMachineStatusRequest) (*pb.GetMachineStatusResponse, error) {
	found, err := s.find(ctx, q.Context, q.ProviderId, nil)
	if err != nil {
		return nil, failure(err, driver.NotApplied, "")
	}
	return &pb.GetMachineStatusResponse{Machine: found}, nil
}

// find reads one instance. That of a provider that can only list is looked for in its list, once its id is known: a list
// does not tell a server that is half made, which the provider goes on with when it is asked to create again. What the
// provider does not find without an id is read by that of the list: remnants of a failed creation are listed, too.
func (s shim) find(
	ctx context.Context, op *pb.OperationContext, id string, bootstrap *pb.BootstrapData,
) (*pb.MachineRecord, error) {
	found, err := s.read(ctx, op, id, bootstrap)
	if codeOf(err) == codes.Unimplemented && id != "" {
		return s.listed(ctx, op)
	}
	listed, failed := s.idInList(ctx, op, id, err)
	if failed != nil {
		return nil, failed
	}
	if listed != "" {
		return s.read(ctx, op, listed, bootstrap)
	}
	return found, err
}

// idInList is the id that the list has of an instance that the provider may have missed for want of one: `read` is what it
// said without. Empty: there is none, or the provider cannot list. A list that fails is no absence.
func (s shim) idInList(ctx context.Context, op *pb.OperationContext, id string, read error) (string, error) {
	if codeOf(read) != codes.NotFound || id != "" || s.info.FindsByName {
		return "", nil
	}
	listed, err := s.listed(ctx, op)
	if code := codeOf(err); code == codes.NotFound || code == codes.Unimplemented {
		err = nil
	}
	return listed.GetProviderId(), err
}

// read reads one instance as the provider does, with one that is not initialized as a result.
func (s shim) read(
	ctx context.Context, op *pb.OperationContext, id string, bootstrap *pb.BootstrapData,
) (*pb.MachineRecord, error) {
	found, err := s.provider.GetMachineStatus(ctx, &upstream.GetMachineStatusRequest{
		Machine: s.machine(op, id), MachineClass: s.class(op), Secret: secretOf(op, bootstrap),
	})
	record := recordOf(op, id, "", nil)
	if found != nil {
		record = recordOf(op, cmp.Or(found.ProviderID, id), found.NodeName, found.Addresses)
	}
	switch code := codeOf(err); {
	case err == nil:
		return record, nil
	case code == codes.Uninitialized && record.ProviderId != "":
		record.Initialized = new(bool)
		return record, nil
	}
	return nil, err
}

// listed is the instance that the list has under the name of the machine.
func (s shim) listed(ctx context.Context, op *pb.OperationContext) (*pb.MachineRecord, error) {
	all, err := s.list(ctx, op)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(it *pb.MachineRecord) bool { return it.MachineName != op.Target.Name })
	switch len(all) {
	case 0:
		return nil, driver.Fail(driver.NotFound, "NOT_LISTED", "no instance has the name of the machine")
	case 1:
		return all[0], nil
	}
	return nil, driver.Fail(driver.OutOfRange, "SEVERAL_INSTANCES", "%d instances have the name of the machine", len(all))
}

func (s shim) ListMachines(ctx context.Context, q *pb.ListMachinesRequest) ([]*pb.MachineRecord, error) {
	all, err := s.list(ctx, q.Context)
	if err != nil {
		return nil, failure(err, driver.NotApplied, "")
	}
	return all, nil
}

func (s shim) list(ctx context.Context, op *pb.OperationContext) ([]*pb.MachineRecord, error) {
	answer, err := s.provider.ListMachines(ctx, &upstream.ListMachinesRequest{
		MachineClass: s.class(op), Secret: secretOf(op, nil),
	})
	if err != nil {
		return nil, err
	}
	var all []*pb.MachineRecord
	for id, name := range answer.MachineList {
		all = append(all, &pb.MachineRecord{ProviderId: id, MachineName: name})
	}
	slices.SortFunc(all, func(a, b *pb.MachineRecord) int { return strings.Compare(a.ProviderId, b.ProviderId) })
	return all, nil
}

// GetVolumeIds asks for one volume at a time: providers leave out those that are not theirs.
func (s shim) GetVolumeIds(ctx context.Context, q *pb.GetVolumeIdsRequest) (*pb.GetVolumeIdsResponse, error) {
	answer := &pb.GetVolumeIdsResponse{VolumeIds: make([]string, len(q.PvSpecsJson))}
	for i, text := range q.PvSpecsJson {
		spec := &corev1.PersistentVolumeSpec{}
		if err := json.Unmarshal([]byte(text), spec); err != nil {
			return nil, driver.Fail(driver.InvalidArgument, "BAD_VOLUME", "volume %d is not a PersistentVolumeSpec", i)
		}
		named, err := s.provider.GetVolumeIDs(ctx, &upstream.GetVolumeIDsRequest{
			PVSpecs: []*corev1.PersistentVolumeSpec{spec},
		})
		if err != nil {
			return nil, failure(err, driver.NotApplied, "")
		}
		if len(named.VolumeIDs) > 0 {
			answer.VolumeIds[i] = named.VolumeIDs[0]
		}
	}
	return answer, nil
}

func recordOf(op *pb.OperationContext, id, node string, at []corev1.NodeAddress) *pb.MachineRecord {
	return &pb.MachineRecord{ProviderId: id, MachineName: op.Target.Name, NodeName: node, Addresses: addresses(at)}
}

func addresses(of []corev1.NodeAddress) (all []*pb.Address) {
	for _, it := range of {
		all = append(all, &pb.Address{Type: string(it.Type), Address: it.Address})
	}
	return all
}

// machine is the Machine as far as a driver may know it.
func (s shim) machine(op *pb.OperationContext, providerID string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: op.Target.GetNamespace(), Name: op.Target.GetName(), UID: types.UID(op.Target.GetUid()),
			Labels: op.Machine.GetLabels(), Annotations: op.Machine.GetAnnotations(),
		},
		Spec: v1alpha1.MachineSpec{
			Class:      v1alpha1.ClassSpec{Kind: "MachineClass", Name: op.MachineClass.GetRef().GetName()},
			ProviderID: providerID,
		},
		Status: v1alpha1.MachineStatus{LastKnownState: op.Checkpoint},
	}
	// What the core sends is a node template; one that is not is left out, as one that is too large is.
	_ = json.Unmarshal([]byte(op.Machine.GetNodeTemplateJson()), &machine.Spec.NodeTemplateSpec)
	return machine
}

func (s shim) class(op *pb.OperationContext) *v1alpha1.MachineClass {
	it := op.MachineClass
	class := &v1alpha1.MachineClass{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineClass"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: it.GetRef().GetNamespace(), Name: it.GetRef().GetName(), UID: types.UID(it.GetRef().GetUid()),
			ResourceVersion: it.GetRef().GetRevision(), Labels: it.GetLabels(),
		},
		Provider:     s.info.Classes,
		ProviderSpec: runtime.RawExtension{Raw: []byte(it.GetProviderSpecJson())},
		SecretRef:    &corev1.SecretReference{Namespace: it.GetRef().GetNamespace(), Name: it.GetRef().GetName()},
	}
	if shape := it.GetShape(); shape != nil {
		class.NodeTemplate = &v1alpha1.NodeTemplate{
			Capacity: corev1.ResourceList{}, InstanceType: shape.InstanceType, Region: shape.Region, Zone: shape.Zone,
		}
		if shape.Architecture != "" {
			class.NodeTemplate.Architecture = &shape.Architecture
		}
		for name, text := range shape.Capacity {
			if amount, err := resource.ParseQuantity(text); err == nil {
				class.NodeTemplate.Capacity[corev1.ResourceName(name)] = amount
			}
		}
	}
	return class
}

// userData is the key of a Secret for what an instance starts with.
const userData = "userData"

// secretOf is the credentials with the user data of the operation. An operation that has none gets a comment: most
// providers refuse a Secret without any, and use them only to create and to initialize.
func secretOf(op *pb.OperationContext, bootstrap *pb.BootstrapData) *corev1.Secret {
	ref := op.MachineClass.GetRef()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.GetNamespace(), Name: ref.GetName()},
		Data:       map[string][]byte{userData: []byte("# only for CreateMachine and InitializeMachine")},
	}
	for key, value := range op.Secret {
		secret.Data[key] = value
	}
	if bootstrap != nil {
		secret.Data[userData] = bootstrap.UserData
	}
	return secret
}
