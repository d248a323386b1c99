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
	"k8s.io/apimachinery/pkg/types"
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
	clients := make([]*kubernetes.Clientset, o.clients)
	for at := range clients {
		if clients[at], err = alone(config); err != nil {
			return err
		}
	}
	ctx := context.Background()
	if err := create(ctx, clients, nodes, func(client *kubernetes.Clientset, at int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", at)}}
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	busy := func() float64 {
		if process == nil {
			return 0
		}
		return process.cpu()
	}
	for range o.rounds {
		for _, way := range []struct {
			name  string
			write func(context.Context, *kubernetes.Clientset, string, *corev1.Node, int) (*corev1.Node, error)
		}{{"merge patches", patch}, {"PUTs of the whole object", put}} {
			before := busy()
			writes, err := write(ctx, clients, way.write)
			if err != nil {
				return err
			}
			results.add(fmt.Sprintf("durable status writes of %d clients, %s, each second", o.clients, way.name), "server", writes)
			results.add("CPU of the API server for one of the "+way.name+", µs", "server", (busy()-before)*1e6/float64(o.clients*each))
		}
	}
	if err := create(ctx, clients, pods, func(client *kubernetes.Clientset, at int) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", at)},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("n%d", at%nodes), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	for at := range lists {
		began := time.Now()
		selector := fmt.Sprintf("spec.nodeName=n%d", at%nodes)
		list, err := clients[0].CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != pods/nodes {
			return fmt.Errorf("%d pods of a Node: %w", len(list.Items), err)
		}
		results.add(fmt.Sprintf("list of the %d pods of one Node out of %d, ms", pods/nodes, pods), "server", time.Since(began).Seconds()*1000)
	}
	return nil
}

// alone is a client with a connection of its own: clients of one configuration share it.
func alone(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	wanted, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	// A dialer of its own makes a transport of its own.
	wanted.DialHolder = &transport.DialHolder{Dial: (&net.Dialer{}).DialContext}
	own, err := transport.New(wanted)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(&rest.Config{
		Host: config.Host, Transport: own, QPS: -1, UserAgent: config.UserAgent,
		ContentConfig: rest.ContentConfig{ContentType: config.ContentType},
	})
}

func create(ctx context.Context, clients []*kubernetes.Clientset, count int, do func(*kubernetes.Clientset, int) error) error {
	return every(clients, func(client *kubernetes.Clientset, first int) error {
		for at := first; at < count; at += len(clients) {
			if err := do(client, at); err != nil {
				return err
			}
		}
		return nil
	})
}

// write has all clients write the status of a Node each, and says how many writes a second there were.
func write(ctx context.Context, clients []*kubernetes.Clientset, one func(context.Context, *kubernetes.Clientset, string, *corev1.Node, int) (*corev1.Node, error)) (float64, error) {
	began := time.Now()
	err := every(clients, func(client *kubernetes.Clientset, at int) error {
		name := fmt.Sprintf("n%d", at%nodes)
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		for count := 0; err == nil && count < each; count++ {
			node, err = one(ctx, client, name, node, count)
		}
		return err
	})
	return float64(each*len(clients)) / time.Since(began).Seconds(), err
}

func patch(ctx context.Context, client *kubernetes.Clientset, name string, node *corev1.Node, count int) (*corev1.Node, error) {
	status := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"status":{"images":[{"names":["i%d"]}]}}`, node.ResourceVersion, count)
	return client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
}

func put(ctx context.Context, client *kubernetes.Clientset, _ string, node *corev1.Node, count int) (*corev1.Node, error) {
	node.Status.Images = []corev1.ContainerImage{{Names: []string{fmt.Sprintf("i%d", count)}}}
	return client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
}

// every has all clients do something at the same time.
func every(clients []*kubernetes.Clientset, do func(*kubernetes.Clientset, int) error) error {
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
