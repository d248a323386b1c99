package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

const (
	pods  = 10000
	nodes = 100
	// lists of the pods of one Node, and writes of each client.
	lists = 200
	each  = 300
)

// kind is a kind of Machines that are written: one for each client, from this number on.
type kind struct {
	how   string
	first int
}

// server measures the API server alone: durable writes of a status by clients with a connection each, and lists of the
// pods of one Node.
func server(o options, results *table) error {
	directory, err := os.MkdirTemp("", "bench-server")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	kubeconfig := o.kubeconfig
	process := (*process)(nil)
	if kubeconfig == "" {
		if process, kubeconfig, err = serve(directory, o.bin); err != nil {
			return err
		}
		defer process.end()
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.ContentType, config.UserAgent = -1, "application/json", "bench"
	clients := make([]client, o.clients)
	for at := range clients {
		if clients[at], err = alone(config); err != nil {
			return err
		}
	}
	ctx := context.Background()
	kinds := []kind{{"", 0}, {", without managedFields", len(clients)}}
	if err := create(clients, len(clients)*len(kinds), func(client client, at int) error {
		made, err := client.machines.Create(ctx, running(at), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Object["status"] = running(at).Object["status"]
		_, err = client.machines.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		if err == nil && at >= len(clients) {
			forget := []byte(`{"metadata":{"managedFields":[{}]}}`)
			_, err = client.machines.Patch(ctx, name(at), types.MergePatchType, forget, metav1.PatchOptions{})
		}
		return err
	}); err != nil {
		return err
	}
	busy := func() float64 {
		if process == nil {
			return (&api{core: clients[0].core}).cpu(ctx)
		}
		return process.cpu()
	}
	for range o.rounds {
		for _, one := range kinds {
			for _, way := range []struct {
				name  string
				write change
			}{{"merge patches", patch}, {"PUTs of the whole object", put}, {"applies", apply}} {
				if way.name == "applies" && one.how != "" {
					continue // an apply would begin to keep them
				}
				before := busy()
				writes, err := write(ctx, clients, one.first, way.write)
				if err != nil {
					return err
				}
				results.add(fmt.Sprintf("durable status writes of %d clients, %s%s, each second", o.clients, way.name, one.how), "server", writes)
				results.add("CPU of the API server for one of the "+way.name+one.how+", µs", "server", (busy()-before)*1e6/float64(o.clients*each))
			}
		}
	}
	if process == nil {
		return create(clients, len(clients)*len(kinds), func(client client, at int) error {
			return client.machines.Delete(ctx, name(at), metav1.DeleteOptions{})
		})
	}
	if err := create(clients, pods, func(client client, at int) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", at)},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("n%d", at%nodes), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		_, err := client.core.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	for at := range lists {
		began := time.Now()
		selector := fmt.Sprintf("spec.nodeName=n%d", at%nodes)
		list, err := clients[0].core.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != pods/nodes {
			return fmt.Errorf("%d pods of a Node: %w", len(list.Items), err)
		}
		results.add(fmt.Sprintf("list of the %d pods of one Node out of %d, ms", pods/nodes, pods), "server", time.Since(began).Seconds()*1000)
	}
	return nil
}

// client has a connection of its own.
type client struct {
	core     *kubernetes.Clientset
	machines dynamic.ResourceInterface
}

// alone makes such a client: clients of one configuration share their connection.
func alone(config *rest.Config) (client, error) {
	config = rest.CopyConfig(config)
	wanted, err := config.TransportConfig()
	if err != nil {
		return client{}, err
	}
	// A dialer of its own makes a transport of its own.
	wanted.DialHolder = &transport.DialHolder{Dial: (&net.Dialer{}).DialContext}
	own, err := transport.New(wanted)
	if err != nil {
		return client{}, err
	}
	config = &rest.Config{
		Host: config.Host, Transport: own, QPS: -1, UserAgent: config.UserAgent,
		ContentConfig: rest.ContentConfig{ContentType: config.ContentType},
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return client{}, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return client{}, err
	}
	return client{core, objects.Resource(machines).Namespace(namespace)}, nil
}

func name(at int) string { return fmt.Sprintf("status-%d", at) }

// running is a Machine as it is while it runs.
func running(at int) *unstructured.Unstructured {
	since := "2026-11-28T00:00:00Z"
	var conditions []any
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		conditions = append(conditions, map[string]any{
			"type": kind, "status": "False", "reason": "KubeletHas", "message": "kubelet has what it needs",
			"lastHeartbeatTime": since, "lastTransitionTime": since,
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1",
		"kind":       "Machine",
		"metadata": map[string]any{
			"name":   name(at),
			"labels": map[string]any{"node": name(at), "pool": "workers"},
		},
		"spec": map[string]any{
			"class":        map[string]any{"kind": "MachineClass", "name": class},
			"providerID":   "fake:///local/" + name(at),
			"nodeTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"pool": "workers"}}},
		},
		"status": map[string]any{
			"currentStatus": map[string]any{"phase": "Running", "lastUpdateTime": since},
			"lastOperation": map[string]any{
				"type": "Create", "state": "Successful", "description": "the Node is ready", "lastUpdateTime": since,
			},
			"conditions": conditions,
		},
	}}
}

func create(clients []client, count int, do func(client, int) error) error {
	return every(clients, func(client client, first int) error {
		for at := first; at < count; at += len(clients) {
			if err := do(client, at); err != nil {
				return err
			}
		}
		return nil
	})
}

// change writes the status of a Machine that was read.
type change func(context.Context, client, *unstructured.Unstructured, int) (*unstructured.Unstructured, error)

// write has all clients write the status of a Machine each, from that of this number on, and says how many writes a second there were.
func write(ctx context.Context, clients []client, from int, one change) (float64, error) {
	began := time.Now()
	err := every(clients, func(client client, at int) error {
		machine, err := client.machines.Get(ctx, name(from+at), metav1.GetOptions{})
		for count := 0; err == nil && count < each; count++ {
			machine, err = one(ctx, client, machine, count)
		}
		return err
	})
	return float64(each*len(clients)) / time.Since(began).Seconds(), err
}

func patch(ctx context.Context, client client, machine *unstructured.Unstructured, count int) (*unstructured.Unstructured, error) {
	status := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"status":{"lastOperation":{"description":"write %d"}}}`, machine.GetResourceVersion(), count)
	return client.machines.Patch(ctx, machine.GetName(), types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
}

func put(ctx context.Context, client client, machine *unstructured.Unstructured, count int) (*unstructured.Unstructured, error) {
	if err := unstructured.SetNestedField(machine.Object, fmt.Sprintf("write %d", count), "status", "lastOperation", "description"); err != nil {
		return nil, err
	}
	return client.machines.UpdateStatus(ctx, machine, metav1.UpdateOptions{})
}

func apply(ctx context.Context, client client, machine *unstructured.Unstructured, count int) (*unstructured.Unstructured, error) {
	config := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": machine.GetAPIVersion(), "kind": machine.GetKind(), "metadata": map[string]any{"name": machine.GetName()},
		"status": map[string]any{"lastOperation": map[string]any{"description": fmt.Sprintf("write %d", count)}},
	}}
	return client.machines.ApplyStatus(ctx, machine.GetName(), config, metav1.ApplyOptions{FieldManager: "bench-applier", Force: true})
}

// every has all clients do something at the same time.
func every(clients []client, do func(client, int) error) error {
	var waiting sync.WaitGroup
	failed := make(chan error, len(clients))
	for at, client := range clients {
		waiting.Go(func() {
			if err := do(client, at); err != nil {
				failed <- err
			}
		})
	}
	waiting.Wait()
	close(failed)
	return <-failed
}
