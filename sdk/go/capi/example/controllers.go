package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

type object = unstructured.Unstructured

var (
	clusters = gvr("cluster.x-k8s.io/v1beta2", "clusters")
	machines = gvr("cluster.x-k8s.io/v1beta2", "machines")
	infras   = gvr("infrastructure.example.com/v1", "examplemachines")
	configs  = gvr("bootstrap.example.com/v1", "exampleconfigs")
	secrets  = gvr("v1", "secrets")
	nodes    = gvr("v1", "nodes")
)

const (
	ofCore  = "machine.cluster.x-k8s.io"
	ofInfra = "examplemachine.infrastructure.example.com"
	version = "cluster.x-k8s.io/v1beta2"
)

func gvr(version, resource string) schema.GroupVersionResource {
	it, err := schema.ParseGroupVersion(version)
	if err != nil {
		panic(err)
	}
	return it.WithResource(resource)
}

// controllers do for standalone Machines what Cluster API's core, an infrastructure and a bootstrap provider do, as far as
// their contract goes. They keep nothing: the next pass goes on wherever the last one was killed.
type controllers struct {
	dynamic.Interface
	namespace string
}

func (c *controllers) at(of schema.GroupVersionResource) dynamic.ResourceInterface {
	if of == nodes {
		return c.Resource(of)
	}
	return c.Resource(of).Namespace(c.namespace)
}

func (c *controllers) all(ctx context.Context, of schema.GroupVersionResource) map[string]*object {
	found := map[string]*object{}
	list, err := c.at(of).List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Printf("%s: %s", of.Resource, err)
		return nil
	}
	for i := range list.Items {
		found[list.Items[i].GetName()] = &list.Items[i]
	}
	return found
}

// run works until ctx ends.
func (c *controllers) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.pass(ctx)
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *controllers) pass(ctx context.Context) {
	owners, boxes, data, groups := c.all(ctx, machines), c.all(ctx, infras), c.all(ctx, configs), c.all(ctx, clusters)
	joined := c.all(ctx, nodes)
	if owners == nil || boxes == nil || data == nil || groups == nil || joined == nil {
		return
	}
	for name, it := range owners {
		cluster := groups[text(it, "spec", "clusterName")]
		if cluster == nil || isPaused(cluster) {
			continue
		}
		c.report("machine "+name, c.core(ctx, it, boxes[text(it, "spec", "infrastructureRef", "name")], data[text(it, "spec", "bootstrap", "configRef", "name")]))
	}
	for name, it := range data {
		c.report("config "+name, c.bootstrap(ctx, it))
	}
	for name, it := range boxes {
		if owner := metav1.GetControllerOf(it); owner != nil {
			c.report("infrastructure "+name, c.infrastructure(ctx, it, owners[owner.Name], joined[name]))
		}
	}
}

func (c *controllers) report(what string, err error) {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		log.Printf("%s: %s", what, err)
	}
}

func isPaused(cluster *object) bool {
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return paused
}

func text(it *object, path ...string) string {
	found, _, _ := unstructured.NestedString(it.Object, path...)
	return found
}

func yes(it *object, path ...string) bool {
	found, _, _ := unstructured.NestedBool(it.Object, path...)
	return found
}

func set(it *object, value any, path ...string) {
	if err := unstructured.SetNestedField(it.Object, value, path...); err != nil {
		panic(err)
	}
}

// changed writes what differs: the object, and then its status.
func (c *controllers) changed(ctx context.Context, of schema.GroupVersionResource, was, now *object) error {
	same := func(key string) bool { return fmt.Sprint(was.Object[key]) == fmt.Sprint(now.Object[key]) }
	if !same("metadata") || !same("spec") {
		written, err := c.at(of).Update(ctx, now, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		now.SetResourceVersion(written.GetResourceVersion())
	}
	if same("status") {
		return nil
	}
	_, err := c.at(of).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return err
}

func (c *controllers) gone(ctx context.Context, of schema.GroupVersionResource, it *object) error {
	if it == nil || it.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := it.GetUID()
	return c.at(of).Delete(ctx, it.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// core is Cluster API's own: it owns the clones, copies what they say, and deletes them before the Machine goes.
func (c *controllers) core(ctx context.Context, it, box, config *object) error {
	now := it.DeepCopy()
	for of, one := range map[schema.GroupVersionResource]*object{infras: box, configs: config} {
		if one == nil || metav1.GetControllerOf(one) != nil {
			continue
		}
		owned, controls := one.DeepCopy(), true
		owned.SetOwnerReferences(append(owned.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: version, Kind: "Machine", Name: it.GetName(), UID: it.GetUID(), Controller: &controls,
		}))
		if err := c.changed(ctx, of, one, owned); err != nil {
			return err
		}
	}
	if it.GetDeletionTimestamp() != nil {
		set(now, "Deleting", "status", "phase")
		switch {
		case box != nil:
			c.report("delete", c.gone(ctx, infras, box))
		case config != nil:
			c.report("delete", c.gone(ctx, configs, config))
		default:
			now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(it string) bool { return it == ofCore }))
			delete(now.Object, "status")
			delete(it.Object, "status")
		}
		return c.changed(ctx, machines, it, now)
	}
	if !slices.Contains(now.GetFinalizers(), ofCore) {
		now.SetFinalizers(append(now.GetFinalizers(), ofCore))
	}
	phase := "Pending"
	if config != nil && yes(config, "status", "initialization", "dataSecretCreated") {
		set(now, text(config, "status", "dataSecretName"), "spec", "bootstrap", "dataSecretName")
	}
	if text(now, "spec", "bootstrap", "dataSecretName") != "" {
		set(now, true, "status", "initialization", "bootstrapDataSecretCreated")
		phase = "Provisioning"
	}
	if box != nil && yes(box, "status", "initialization", "provisioned") {
		set(now, text(box, "spec", "providerID"), "spec", "providerID")
		set(now, true, "status", "initialization", "infrastructureProvisioned")
		set(now, []any{map[string]any{"type": "InternalIP", "address": "10.0.0.1"}}, "status", "addresses")
		phase = "Provisioned"
	}
	if box == nil && yes(it, "status", "initialization", "infrastructureProvisioned") {
		set(now, []any{map[string]any{
			"type": "InfrastructureReady", "status": "False", "reason": "ObjectDeleted", "message": "ExampleMachine has been deleted",
			"lastTransitionTime": it.GetCreationTimestamp().UTC().Format(time.RFC3339), // the same in each pass
		}}, "status", "conditions")
	}
	set(now, phase, "status", "phase")
	return c.changed(ctx, machines, it, now)
}

// bootstrap makes a Secret from the spec of its config.
func (c *controllers) bootstrap(ctx context.Context, it *object) error {
	if metav1.GetControllerOf(it) == nil || it.GetDeletionTimestamp() != nil || text(it, "status", "dataSecretName") != "" {
		return nil
	}
	secret := &object{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
		"data": map[string]any{"value": base64.StdEncoding.EncodeToString([]byte(text(it, "spec", "value")))},
	}}
	secret.SetName(it.GetName())
	secret.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: it.GetAPIVersion(), Kind: it.GetKind(), Name: it.GetName(), UID: it.GetUID(),
	}})
	if _, err := c.at(secrets).Create(ctx, secret, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	now := it.DeepCopy()
	set(now, true, "status", "initialization", "dataSecretCreated")
	set(now, it.GetName(), "status", "dataSecretName")
	return c.changed(ctx, configs, it, now)
}

// infrastructure is a cloud in which an object is a VM, and its kubelet: `seconds` is how long it takes, `never` that it is
// never ready, `lost` that it has no kubelet any more.
func (c *controllers) infrastructure(ctx context.Context, it, owner, node *object) error {
	now := it.DeepCopy()
	if it.GetDeletionTimestamp() != nil {
		now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(it string) bool { return it == ofInfra }))
		return c.changed(ctx, infras, it, now)
	}
	if !slices.Contains(now.GetFinalizers(), ofInfra) {
		now.SetFinalizers(append(now.GetFinalizers(), ofInfra))
	}
	seconds, _, _ := unstructured.NestedInt64(it.Object, "spec", "seconds")
	ready := time.Since(it.GetCreationTimestamp().Time) >= time.Duration(seconds)*time.Second
	if ready && owner != nil && text(owner, "spec", "bootstrap", "dataSecretName") != "" && !yes(it, "spec", "never") {
		set(now, "example:///"+string(it.GetUID()), "spec", "providerID")
		set(now, true, "status", "initialization", "provisioned")
	}
	if err := c.changed(ctx, infras, it, now); err != nil || !yes(now, "status", "initialization", "provisioned") || owner == nil || yes(it, "spec", "lost") {
		return err
	}
	return c.kubelet(ctx, now, owner, node)
}

// kubelet joins, and says every ten seconds that it is well. Cluster API copies labels of this domain to the Node.
func (c *controllers) kubelet(ctx context.Context, it, owner, node *object) (err error) {
	labels := map[string]string{}
	for key, value := range owner.GetLabels() {
		if len(key) > 21 && key[:21] == "node.cluster.x-k8s.io" {
			labels[key] = value
		}
	}
	if node == nil {
		node = &object{Object: map[string]any{"apiVersion": "v1", "kind": "Node"}}
		node.SetName(it.GetName())
		set(node, text(it, "spec", "providerID"), "spec", "providerID")
		node, err = c.at(nodes).Create(ctx, node, metav1.CreateOptions{})
	}
	if err != nil || text(node, "spec", "providerID") != text(it, "spec", "providerID") {
		return err
	}
	now := node.DeepCopy()
	has := now.GetLabels()
	if has == nil {
		has = map[string]string{}
	}
	maps.Copy(has, labels)
	now.SetLabels(has)
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	beat := time.Time{}
	for _, one := range conditions {
		if one, ok := one.(map[string]any); ok && one["type"] == "Ready" && one["status"] == "True" {
			beat, _ = time.Parse(time.RFC3339, fmt.Sprint(one["lastHeartbeatTime"]))
		}
	}
	if time.Since(beat) > 10*time.Second {
		at := time.Now().UTC().Format(time.RFC3339)
		set(now, []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}}, "status", "conditions")
	}
	return c.changed(ctx, nodes, node, now)
}
