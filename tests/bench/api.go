package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	toolswatch "k8s.io/client-go/tools/watch"
)

const (
	namespace = "default"
	class     = "bench"
	// writers is how many requests the bench itself has under way.
	writers = 16
)

// seconds that a watch goes on.
var seconds = int64(longest.Seconds())

var (
	machines = schema.GroupVersionResource{Group: "machine.sapcloud.io", Version: "v1alpha1", Resource: "machines"}
	classes  = schema.GroupVersionResource{Group: "machine.sapcloud.io", Version: "v1alpha1", Resource: "machineclasses"}
	sets     = schema.GroupVersionResource{Group: "machine.sapcloud.io", Version: "v1alpha1", Resource: "machinesets"}
)

// api is the API server as the bench uses it: the user, and the kubelets of all instances.
type api struct {
	core     *kubernetes.Clientset
	nodes    *kubernetes.Clientset
	machines dynamic.ResourceInterface
	classes  dynamic.ResourceInterface
	sets     dynamic.ResourceInterface
}

func connect(kubeconfig string) (*api, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.ContentType, config.UserAgent = -1, "application/json", "bench"
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kubelets := rest.CopyConfig(config)
	kubelets.UserAgent = "bench-kubelets"
	nodes, err := kubernetes.NewForConfig(kubelets)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	of := func(resource schema.GroupVersionResource) dynamic.ResourceInterface {
		return objects.Resource(resource).Namespace(namespace)
	}
	return &api{core, nodes, of(machines), of(classes), of(sets)}, nil
}

// prepare makes the class and its secret. Its user data asks for a bootstrap token, as real ones do.
func (a *api) prepare(ctx context.Context) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		StringData: map[string]string{"userData": "join <<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>", "accessToken": "bench"},
	}
	_, err := a.core.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	reference := map[string]any{"name": class, "namespace": namespace}
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion":   "machine.sapcloud.io/v1alpha1",
		"kind":         "MachineClass",
		"metadata":     map[string]any{"name": class},
		"provider":     "fake.ostler.dev",
		"secretRef":    reference,
		"providerSpec": map[string]any{"region": "local", "image": "fake-1.0"},
	}}
	_, err = a.classes.Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// watch shows what happens to machines from now on. A watch that ends begins again where it was: kube-apiserver ends those
// that do not read fast enough.
func (a *api) watch(ctx context.Context) (watch.Interface, error) {
	list, err := a.machines.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.TimeoutSeconds = &seconds
			return a.machines.Watch(ctx, options)
		},
	})
}

// join makes the Node of each machine some time after its instance appears, until the context ends. It watches machines, as it is
// told of instances the same way by both sides: the provider id and the name of the Node.
func (a *api) join(ctx context.Context, delay time.Duration, failed chan<- error) {
	events, err := a.watch(ctx)
	if err != nil {
		failed <- err
		return
	}
	free := make(chan struct{}, writers)
	made := map[string]bool{}
	for event := range events.ResultChan() {
		machine, is := event.Object.(*unstructured.Unstructured)
		if !is {
			continue
		}
		name := machine.GetName()
		if event.Type == watch.Deleted {
			delete(made, name)
			continue
		}
		id, _, _ := unstructured.NestedString(machine.Object, "spec", "providerID")
		node := machine.GetLabels()["node"]
		if id == "" || node == "" || made[name] || machine.GetDeletionTimestamp() != nil {
			continue
		}
		made[name] = true
		go func() {
			for _, ready := range []bool{false, true} {
				time.Sleep(delay)
				free <- struct{}{}
				err := a.report(ctx, node, id, ready)
				<-free
				if err != nil {
					if ctx.Err() == nil && !apierrors.IsNotFound(err) {
						failed <- err
					}
					return
				}
			}
		}()
	}
	if ctx.Err() == nil {
		failed <- fmt.Errorf("the watch of machines ended")
	}
}

// report does what a kubelet does: it creates its Node, and then says that it is ready.
func (a *api) report(ctx context.Context, name, id string, ready bool) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: id},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}},
	}
	if !ready {
		_, err := a.nodes.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	}
	condition := &node.Status.Conditions[0]
	condition.Status, condition.Reason = corev1.ConditionTrue, "KubeletReady"
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": node.Status.Conditions}})
	if err != nil {
		return err
	}
	_, err = a.nodes.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// forEach does something for each name, some at the same time.
func forEach(names []string, do func(string) error) error {
	var waiting sync.WaitGroup
	free := make(chan struct{}, writers)
	failed := make(chan error, len(names))
	for _, name := range names {
		waiting.Add(1)
		free <- struct{}{}
		go func() {
			defer func() { <-free; waiting.Done() }()
			if err := do(name); err != nil {
				failed <- err
			}
		}()
	}
	waiting.Wait()
	close(failed)
	return <-failed
}

// follow asks for something, and waits until the watch shows so many machines as done.
func (a *api) follow(ctx context.Context, count int, ask func() error, done func(watch.Event) bool, failed <-chan error) error {
	events, err := a.watch(ctx)
	if err != nil {
		return err
	}
	defer events.Stop()
	asked := make(chan error, 1)
	go func() { asked <- ask() }()
	seen := map[string]bool{}
	for len(seen) < count {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended, and %d machines are left", count-len(seen))
			}
			machine, is := event.Object.(*unstructured.Unstructured)
			if is && done(event) {
				seen[machine.GetName()] = true
			}
		case err := <-asked:
			if err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d machines are left: %w", count-len(seen), ctx.Err())
		}
	}
	return nil
}

// set makes a set with so many machines, or has that of this name have so many.
func (a *api) set(ctx context.Context, name string, replicas int) error {
	if replicas == 0 {
		_, err := a.sets.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
		return err
	}
	labels := map[string]any{"set": name}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1",
		"kind":       "MachineSet",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": int64(replicas),
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"class": map[string]any{"kind": "MachineClass", "name": class}},
			},
		},
	}}
	_, err := a.sets.Create(ctx, set, metav1.CreateOptions{})
	return err
}

func (a *api) create(ctx context.Context, name string) error {
	machine := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1",
		"kind":       "Machine",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"class": map[string]any{"kind": "MachineClass", "name": class}},
	}}
	_, err := a.machines.Create(ctx, machine, metav1.CreateOptions{})
	return err
}

func runs(event watch.Event) bool {
	machine, is := event.Object.(*unstructured.Unstructured)
	if !is {
		return false
	}
	phase, _, _ := unstructured.NestedString(machine.Object, "status", "currentStatus", "phase")
	return phase == "Running"
}

func isGone(event watch.Event) bool { return event.Type == watch.Deleted }

// writes counts the accepted writes of each user agent by resource, as the API server counted them. An API server that
// counts no agents has one without a name, and one that does not show what it counts has none.
func (a *api) writes(ctx context.Context) (map[string]map[string]float64, error) {
	text, err := a.core.RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	counts := map[string]map[string]float64{}
	for _, line := range strings.Split(string(text), "\n") {
		rest, is := strings.CutPrefix(line, "apiserver_request_total{")
		if !is {
			continue
		}
		text, value, _ := strings.Cut(rest, "} ")
		labels := map[string]string{}
		for _, label := range strings.Split(text, ",") {
			name, quoted, _ := strings.Cut(label, "=")
			labels[name] = strings.Trim(quoted, "\"")
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil || !strings.HasPrefix(labels["code"], "2") {
			continue
		}
		switch strings.ToLower(labels["verb"]) {
		case "create", "update", "patch", "delete", "post", "put":
		default:
			continue
		}
		resource := labels["resource"]
		if part := labels["subresource"]; part != "" {
			resource += "/" + part
		}
		agent := labels["agent"]
		if counts[agent] == nil {
			counts[agent] = map[string]float64{}
		}
		counts[agent][resource] += number
	}
	return counts, nil
}

// cpu is what the API server says of its own process; 0 if it says nothing.
func (a *api) cpu(ctx context.Context) float64 {
	text, _ := a.core.RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "process_cpu_seconds_total "); is {
			used, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return used
		}
	}
	return 0
}

// serve starts an API server of ours.
func serve(directory, bin string) (*process, string, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(directory, "data")
	args := []string{"up", "--core", "none", "--driver", "none", "--node-grace", "0", "--data-dir", data, "--api-listen", fmt.Sprintf("127.0.0.1:%d", port)}
	server, err := start(directory, filepath.Join(bin, "ostler"), "ostler", "ready", args)
	return server, filepath.Join(data, "kubeconfig"), err
}
