package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"google.golang.org/protobuf/types/known/timestamppb"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// object is one of Cluster API, with the kind as it is served.
type object = unstructured.Unstructured

// management is a cluster with Cluster API's controllers. It knows no Go type of Cluster API: versions v1beta1 and v1beta2
// differ in few fields, and every provider brings kinds of its own.
type management struct {
	dynamic.Interface
	mapper meta.ResettableRESTMapper
	// namespace of the credentials; empty: that of the class.
	namespace string
	// watched are the namespaces of which events are told.
	watched sync.Map
}

// resource is a kind as the API server serves it.
type resource struct {
	schema.GroupVersionResource
	kind string
}

func (r resource) apiVersion() string { return r.GroupVersion().String() }

// mostClusters is how many management clusters are remembered.
const mostClusters = 64

// timeout is how long one call of the API may take.
const timeout = time.Minute

// clusters are those that classes named, by the digest of the credentials.
type clusters struct {
	mu    sync.Mutex
	known map[string]*management
}

// keyOf tells the management cluster of a secret from others. It has the keys of a ServiceAccount's token, and `server`;
// without that key it is the driver's own.
func keyOf(secret map[string][]byte) string {
	return digest(fmt.Sprintf("%q", [][]byte{secret["server"], secret["token"], secret["ca.crt"], secret["namespace"]}), 40)
}

func (c *clusters) of(secret map[string][]byte) (*management, error) {
	key := keyOf(secret)
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.known[key]; it != nil {
		return it, nil
	}
	config := &rest.Config{Host: string(secret["server"]), BearerToken: string(secret["token"])}
	config.CAData = secret["ca.crt"]
	var err error
	if path := os.Getenv("CAPI_KUBECONFIG"); config.Host == "" && path != "" {
		config, err = clientcmd.BuildConfigFromFlags("", path)
	} else if config.Host == "" {
		config, err = rest.InClusterConfig()
	}
	if err != nil { // whose text may have a part of the credentials in it
		return nil, driver.Fail(driver.Unauthenticated, "NO_CREDENTIALS",
			"the secret names no server, and the driver has no usable CAPI_KUBECONFIG and no ServiceAccount")
	}
	config.QPS, config.Burst, config.Timeout = 200, 400, timeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	it := &management{
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)),
		namespace: string(secret["namespace"]),
	}
	if it.Interface, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.known == nil || len(c.known) >= mostClusters {
		for _, old := range c.known {
			old.watched.Range(func(home, over any) bool { old.end(home, over); return true })
		}
		c.known = map[string]*management{}
	}
	c.known[key] = it
	return it, nil
}

// served finds the version and the resource of a kind. What is not served is looked for each time: it may come.
func (m *management) served(kind schema.GroupKind) (resource, error) {
	it, err := m.mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		m.mapper.Reset()
		it, err = m.mapper.RESTMapping(kind)
	}
	if meta.IsNoMatchError(err) {
		return resource{}, driver.Fail(driver.FailedPrecondition, notServed, "the management cluster does not serve %s: install its provider", kind)
	}
	if err != nil {
		return resource{}, err
	}
	return resource{it.Resource, kind.Kind}, nil
}

const notServed = "KIND_NOT_SERVED"

// until looks at an object again and again until done says so. It ends with false after `hold`, so that the core can say
// what is waited for.
func (w *work) until(ctx context.Context, at resource, name string, done func(*object) (bool, error)) (bool, error) {
	for pause, over := hold/200, time.Now().Add(hold); ; pause = min(pause*3/2, 3*time.Second) {
		it, err := w.get(ctx, at, name)
		if err != nil {
			return false, err
		}
		if end, err := done(it); err != nil || end {
			return end, err
		}
		if time.Now().After(over) {
			return false, nil
		}
		if err := driver.Sleep(ctx, pause, driver.Partial); err != nil {
			return false, err
		}
	}
}

// get is an object, or nil if it is not there. A version that is not served any more is no absence.
func (w *work) get(ctx context.Context, at resource, name string) (*object, error) {
	it, err := w.in(at).Get(ctx, name, metav1.GetOptions{})
	if status := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &status) {
		if details := status.Status().Details; details != nil && details.Name == name {
			return nil, nil
		}
		w.mapper.Reset()
		return nil, driver.Fail(driver.Unavailable, notServed, "the management cluster does not serve %s any more", at)
	}
	return it, err
}

// failure is an error of the API server in terms of the contract.
func failure(ctx context.Context, err error, left driver.Certainty) error {
	var known *driver.Error
	code, reason := driver.Unavailable, "API_ERROR"
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known) && left == driver.NotApplied:
		return known // which may know more
	case known != nil:
		return known.Leaving(left)
	case ctx.Err() != nil:
		return driver.Sleep(ctx, time.Hour, left) // which says why it ended
	case apierrors.IsUnauthorized(err):
		code, reason = driver.Unauthenticated, "UNAUTHORIZED"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "denied the request"): // by a webhook
		code, reason = driver.FailedPrecondition, "DENIED"
	case apierrors.IsForbidden(err): // the message names user, verb and resource
		code, reason = driver.PermissionDenied, "FORBIDDEN"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		code, reason = driver.InvalidArgument, "REFUSED_BY_API"
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		code, reason = driver.Aborted, "CONFLICT"
	case apierrors.IsTooManyRequests(err):
		reason = "THROTTLED"
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown: // the connection: its text has ports in it
		return driver.Fail(code, "NO_ANSWER", "the API of the management cluster does not answer").Leaving(left)
	}
	failed := driver.Fail(code, reason, "%s", err).Leaving(left)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		failed = failed.After(time.Duration(seconds) * time.Second)
	}
	return failed
}

// record is what a driver tells of a Machine of Cluster API.
func record(op *pb.OperationContext, it *object) *pb.MachineRecord {
	notes := it.GetAnnotations()
	all := &pb.MachineRecord{
		ProviderId: text(it, "spec", "providerID"), MachineName: notes[machineName], MachineUid: notes[machineUID],
		NodeName: text(it, "status", "nodeRef", "name"), PowerState: pb.MachinePowerState_MACHINE_POWER_STATE_PENDING,
		Fault: fault(it), CreatedAt: timestamppb.New(it.GetCreationTimestamp().Time),
	}
	if all.MachineName == "" {
		all.MachineName = it.GetName()
	}
	if notes[clusterID] != op.ClusterId {
		all.ClusterId = notes[clusterID]
	}
	switch {
	case it.GetDeletionTimestamp() != nil:
		all.PowerState = pb.MachinePowerState_MACHINE_POWER_STATE_DELETING
	case isProvisioned(it):
		all.PowerState = pb.MachinePowerState_MACHINE_POWER_STATE_RUNNING
	}
	addresses, _, _ := unstructured.NestedSlice(it.Object, "status", "addresses")
	for _, one := range addresses {
		if one, ok := one.(map[string]any); ok {
			all.Addresses = append(all.Addresses, &pb.Address{Type: fmt.Sprint(one["type"]), Address: fmt.Sprint(one["address"])})
		}
	}
	return all
}

func text(it *object, path ...string) string {
	found, _, _ := unstructured.NestedString(it.Object, path...)
	return found
}

const infrastructureReady = "InfrastructureReady"

// condition is one of a Machine of Cluster API, or nil. Objects of v1beta1 have those of v1beta2 in a place of their own.
func condition(it *object, kind string) map[string]any {
	later, _, _ := unstructured.NestedSlice(it.Object, "status", "v1beta2", "conditions")
	all, _, _ := unstructured.NestedSlice(it.Object, "status", "conditions")
	for _, one := range append(later, all...) {
		if one, _ := one.(map[string]any); one["type"] == kind {
			return one
		}
	}
	return nil
}

// isProvisioned reads v1beta2, else v1beta1.
func isProvisioned(it *object) bool {
	now, _, _ := unstructured.NestedBool(it.Object, "status", "initialization", "infrastructureProvisioned")
	before, _, _ := unstructured.NestedBool(it.Object, "status", "infrastructureReady")
	return now || before
}

// fault is what Cluster API gives up a Machine for: the failure of v1beta1, which v1beta2 keeps under `deprecated`.
func fault(it *object) *pb.OperationError {
	for _, at := range [][]string{{"status"}, {"status", "deprecated", "v1beta1"}} {
		reason := text(it, append(at, "failureReason")...)
		message := text(it, append(at, "failureMessage")...)
		if reason != "" || message != "" {
			return driver.Fail(driver.DataLoss, "CLUSTER_API_FAILURE", "%s: %s", reason, message).Detail
		}
	}
	return nil
}
