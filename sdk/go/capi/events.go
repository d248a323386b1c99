package main

import (
	"context"
	"errors"
	"log"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// mostEvents is how many events wait for the core, which takes 500 in a row. Others are dropped: a core that connects reads.
const mostEvents = 500

// events are told by the watches of all namespaces to whoever asks for them.
type events chan *pb.DriverEvent

// WatchEvents tells what the watches see.
func (c *capi) WatchEvents(ctx context.Context, tell func(*pb.DriverEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-c.events:
			if err := tell(event); err != nil {
				return err
			}
		}
	}
}

// watch tells of the Machines of this namespace from the first operation on, until the credentials are refused.
func (w *work) watch(tell events) {
	home, over := w.home, make(chan struct{})
	if _, begun := w.watched.LoadOrStore(home, over); begun || tell == nil || home == "" {
		return
	}
	mine := func(options *metav1.ListOptions) {
		seconds := int64(timeout.Seconds()) - 5 // a watch that the client ends is an error, one that the server ends is none
		options.LabelSelector, options.TimeoutSeconds = clusterHash, &seconds
	}
	machines := dynamicinformer.NewFilteredDynamicInformer(w, w.machines.GroupVersionResource, home, 0, nil, mine).Informer()
	_, failed := machines.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { tell.changed(&object{}, now.(*object)) },
		UpdateFunc: func(was, now any) { tell.changed(was.(*object), now.(*object)) },
		DeleteFunc: func(was any) {
			if last, missed := was.(cache.DeletedFinalStateUnknown); missed {
				was = last.Obj
			}
			tell.of(pb.InstanceEvent_INSTANCE_EVENT_GONE, was.(*object))
		},
	})
	refused := machines.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		log.Printf("events of namespace %s: %s", home, err)
		// After another version is served, or with other credentials, an operation begins again.
		again := apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
		if again {
			w.end(home, over)
		}
	})
	if err := errors.Join(failed, refused); err != nil {
		log.Printf("events of namespace %s: %s", home, err)
	}
	go machines.Run(over)
}

// end ends one watch, once.
func (m *management) end(home, over any) {
	if m.watched.CompareAndDelete(home, over) {
		close(over.(chan struct{}))
	}
}

// changed tells what Cluster API wrote: that the infrastructure is gone, that there is a failure, or a deletion.
func (e events) changed(was, now *object) {
	switch {
	case isLost(now) && !isLost(was):
		e.of(pb.InstanceEvent_INSTANCE_EVENT_GONE, now)
	case fault(now).GetMessage() != fault(was).GetMessage(), now.GetDeletionTimestamp() != nil && was.GetDeletionTimestamp() == nil:
		e.of(pb.InstanceEvent_INSTANCE_EVENT_CHANGED, now)
	}
}

// isLost says that Cluster API misses the infrastructure. An older core has no such condition, and tells of a failure.
func isLost(it *object) bool { return condition(it, infrastructureReady)["reason"] == "ObjectDeleted" }

// of tells of a Machine that has been an instance.
func (e events) of(kind pb.InstanceEvent, it *object) {
	id, notes := text(it, "spec", "providerID"), it.GetAnnotations()
	if id == "" {
		return
	}
	select {
	case e <- &pb.DriverEvent{Kind: kind, ProviderId: id, ClusterId: notes[clusterID], MachineUid: notes[machineUID]}:
	default:
	}
}
