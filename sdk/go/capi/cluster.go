package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
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
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// object is one of Cluster API, with the kind as it is served.
type object = unstructured.Unstructured

// management is a cluster with Cluster API's controllers. It knows no Go type of Cluster API: every provider brings kinds of
// its own.
type management struct {
	dynamic.Interface
	mapper meta.ResettableRESTMapper
	// namespace of the credentials; empty: that of the class.
	namespace string
	// watched are the namespaces of which events are told, until over is closed.
	watched sync.Map
	over    chan struct{}
}

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
	kinds, unusable := discovery.NewDiscoveryClientForConfig(config)
	objects, err := dynamic.NewForConfig(config)
	if err := cmp.Or(unusable, err); err != nil {
		return nil, err
	}
	it := &management{
		Interface: objects, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds)),
		namespace: string(secret["namespace"]), over: make(chan struct{}),
	}
	c.known[key] = it
	return it, nil
}

// drop ends the watches of a cluster, once. The next operation begins anew.
func (c *clusters) drop(key string, it *management) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[key] == it {
		delete(c.known, key)
		close(it.over)
	}
}

// resource are the objects of one kind in the namespace of an operation.
type resource struct {
	dynamic.ResourceInterface
	schema.GroupVersionKind
}

const notServed = "KIND_NOT_SERVED"

// served finds a kind as the API server serves it. What is not served is looked for each time: it may come.
func (w *work) served(kind schema.GroupKind, versions ...string) (at resource, err error) {
	it, err := w.mapper.RESTMapping(kind, versions...)
	if meta.IsNoMatchError(err) {
		w.mapper.Reset()
		it, err = w.mapper.RESTMapping(kind, versions...)
	}
	switch {
	case meta.IsNoMatchError(err):
		err = driver.Fail(driver.FailedPrecondition, notServed, "the management cluster does not serve %s: install its provider",
			strings.Join(append(versions, kind.String()), " of "))
	case err == nil:
		at = resource{w.Resource(it.Resource).Namespace(w.home), it.GroupVersionKind}
	}
	return at, err
}

// until asks again and again until done says so. It ends with false after `hold`, so that the core can say what is waited for.
func until(ctx context.Context, done func() (bool, error)) (bool, error) {
	for pause, over := hold/200, time.Now().Add(hold); ; pause = min(pause*3/2, 3*time.Second) {
		if end, err := done(); err != nil || end || time.Now().After(over) {
			return end, err
		}
		if err := driver.Sleep(ctx, pause, driver.Partial); err != nil {
			return false, err
		}
	}
}

// get is an object, or nil if it is not there. A version that is not served any more is no absence.
func (w *work) get(ctx context.Context, at resource, name string) (*object, error) {
	it, err := at.Get(ctx, name, metav1.GetOptions{})
	if status := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &status) {
		if details := status.Status().Details; details != nil && details.Name == name {
			return nil, nil
		}
		w.mapper.Reset()
		return nil, driver.Fail(driver.Unavailable, notServed, "the management cluster does not serve %s any more", at.GroupKind())
	}
	return it, err
}

// need reads what must be there.
func (w *work) need(ctx context.Context, kind schema.GroupKind, name string) (*object, error) {
	at, err := w.served(kind)
	if err != nil {
		return nil, err
	}
	it, err := w.get(ctx, at, name)
	if err == nil && it == nil {
		err = driver.Fail(driver.FailedPrecondition, "NOT_THERE", "there is no %s %s in namespace %s", kind.Kind, name, w.home)
	}
	return it, err
}

// codes are what the core hears of an error of the API server; of any other, that it is to ask again.
var codes = map[metav1.StatusReason]driver.Code{
	metav1.StatusReasonUnauthorized: driver.Unauthenticated,
	metav1.StatusReasonForbidden:    driver.PermissionDenied, // the message names user, verb and resource
	metav1.StatusReasonInvalid:      driver.InvalidArgument,
	metav1.StatusReasonBadRequest:   driver.InvalidArgument,
	metav1.StatusReasonConflict:     driver.Aborted,
}

// failure is an error of the API server in terms of the contract.
func failure(ctx context.Context, err error, left driver.Certainty) error {
	var known *driver.Error
	why := apierrors.ReasonForError(err)
	code, reason := cmp.Or(codes[why], driver.Unavailable), strings.ToUpper(string(why))
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known.Leaving(left)
	case ctx.Err() != nil:
		return driver.Sleep(ctx, time.Hour, left) // which says why it ended
	case why == metav1.StatusReasonUnknown: // the connection: its text has ports in it
		return driver.Fail(code, "NO_ANSWER", "the API of the management cluster does not answer").Leaving(left)
	case code == driver.PermissionDenied && strings.Contains(err.Error(), "denied the request"): // by a webhook
		code, reason = driver.FailedPrecondition, "DENIED"
	case apierrors.IsTooManyRequests(err):
		reason = "THROTTLED"
	}
	return driver.Fail(code, reason, "%s", err).Leaving(left)
}

// watch tells of the Machines of this namespace from the first operation on, until the credentials are refused.
func (c *capi) watch(w *work) {
	if _, begun := w.watched.LoadOrStore(w.home, true); begun || c.Events == nil || w.home == "" {
		return
	}
	mine := func(options *metav1.ListOptions) {
		seconds := int64(timeout.Seconds()) - 5 // a watch that the client ends is an error, one that the server ends is none
		options.LabelSelector, options.TimeoutSeconds = clusterHash, &seconds
	}
	machines := dynamicinformer.NewFilteredDynamicInformer(
		w, w.machines.GroupVersion().WithResource("machines"), w.home, 0, nil, mine).Informer()
	_, _ = machines.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { c.changed(&object{}, now.(*object)) },
		UpdateFunc: func(was, now any) { c.changed(was.(*object), now.(*object)) },
		DeleteFunc: func(was any) {
			if last, missed := was.(cache.DeletedFinalStateUnknown); missed {
				was = last.Obj
			}
			c.of(pb.InstanceEvent_INSTANCE_EVENT_GONE, was.(*object))
		},
	})
	_ = machines.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		log.Printf("events of namespace %s: %s", w.home, err)
		// After another version is served, or with other credentials, an operation begins again.
		if apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			c.clusters.drop(keyOf(w.op.GetSecret()), w.management)
		}
	})
	go machines.Run(w.over)
}

// changed tells what Cluster API wrote: that the infrastructure is gone, that there is a failure, or a deletion.
func (c *capi) changed(was, now *object) {
	switch {
	case isLost(now) && !isLost(was):
		c.of(pb.InstanceEvent_INSTANCE_EVENT_GONE, now)
	case fault(now).GetMessage() != fault(was).GetMessage(), now.GetDeletionTimestamp() != nil && was.GetDeletionTimestamp() == nil:
		c.of(pb.InstanceEvent_INSTANCE_EVENT_CHANGED, now)
	}
}

// isLost says that Cluster API misses the infrastructure. An older core has no such condition, and tells of a failure.
func isLost(it *object) bool { return condition(it, infrastructureReady)["reason"] == "ObjectDeleted" }

// of tells of a Machine that has been an instance.
func (c *capi) of(kind pb.InstanceEvent, it *object) {
	id, notes := idOf(it), it.GetAnnotations()
	if id == "" {
		return
	}
	c.Tell(&pb.DriverEvent{Kind: kind, ProviderId: id, ClusterId: notes[clusterID], MachineUid: notes[machineUID]})
}
