package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"ostler.dev/sdk/go/driver"
)

// spec is the providerSpec of a class. What Cluster API would roll a MachineDeployment for is fixed.
type spec struct {
	ClusterName               string     `json:"clusterName" ostler:"fixed"`
	InfrastructureTemplateRef reference  `json:"infrastructureTemplateRef" ostler:"fixed"`
	BootstrapTemplateRef      *reference `json:"bootstrapTemplateRef,omitempty" ostler:"fixed"`
	Version                   string     `json:"version,omitempty" ostler:"fixed"`
	FailureDomain             string     `json:"failureDomain,omitempty" ostler:"fixed"`
	// Labels and annotations of the Machine and of both clones.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// reference names a template as `infrastructureRef` of v1beta2 does: the version is the one that the API server serves.
type reference struct {
	APIGroup  string `json:"apiGroup"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

func (r reference) template() schema.GroupKind {
	return schema.GroupKind{Group: r.APIGroup, Kind: r.Kind}
}

// clone is the kind of what is made from the template.
func (r reference) clone() schema.GroupKind {
	return schema.GroupKind{Group: r.APIGroup, Kind: strings.TrimSuffix(r.Kind, "Template")}
}

func (r reference) check(wrong driver.Violations, path string) driver.Violations {
	return wrong.
		Unless(r.APIGroup != "" && !strings.Contains(r.APIGroup, "/"), path+".apiGroup",
			"must be an API group without a version, e.g. infrastructure.cluster.x-k8s.io").
		Unless(r.clone().Kind != "" && r.clone() != r.template(), path+".kind", "must be the kind of a template, e.g. DockerMachineTemplate").
		Unless(r.Name != "", path+".name", "must name a template").
		Unless(r.Namespace == "", path+".namespace", "must be left out: a template is cloned in its own namespace, that of the class")
}

// named is how a Machine refers to its clone.
func (r reference) named(name string) map[string]any {
	return map[string]any{"apiGroup": r.APIGroup, "kind": r.clone().Kind, "name": name}
}

// templates are both, the infrastructure's first.
func (s spec) templates() []reference {
	all := []reference{s.InfrastructureTemplateRef}
	if s.BootstrapTemplateRef != nil {
		all = append(all, *s.BootstrapTemplateRef)
	}
	return all
}

// Check says what is wrong with the values of a spec.
func (s spec) Check() driver.Violations {
	wrong := driver.Violations{}.
		Unless(s.ClusterName != "" && len(s.ClusterName) <= validation.LabelValueMaxLength, "clusterName",
			"must name a Cluster, in at most 63 characters")
	wrong = s.InfrastructureTemplateRef.check(wrong, "infrastructureTemplateRef")
	if s.BootstrapTemplateRef != nil {
		wrong = s.BootstrapTemplateRef.check(wrong, "bootstrapTemplateRef")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		said := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(s.Labels[key])...)
		wrong = wrong.Unless(len(said) == 0, "labels", strings.Join(said, ", ")).
			Unless(!reserved(key), "labels", key+" is not free: "+whose)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
		said := validation.IsQualifiedName(strings.ToLower(key))
		wrong = wrong.Unless(len(said) == 0, "annotations", strings.Join(said, ", ")).
			Unless(!reserved(key), "annotations", key+" is not free: "+whose)
	}
	return wrong
}

const whose = "ostler.dev has the identity, cluster.x-k8s.io is Cluster API's own"

// reserved says that a key is the identity, or one by which Cluster API's controllers act. Those of its subdomains are
// free: Cluster API copies labels of node.cluster.x-k8s.io to the Node.
func reserved(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "ostler.dev" || strings.HasSuffix(domain, ".ostler.dev") ||
		domain == "cluster.x-k8s.io" || strings.HasSuffix(domain, "machine.cluster.x-k8s.io")
}

const (
	clusterName   = "cluster.x-k8s.io/cluster-name"
	clonedName    = "cluster.x-k8s.io/cloned-from-name"
	clonedKind    = "cluster.x-k8s.io/cloned-from-groupkind"
	withoutDrain  = "machine.cluster.x-k8s.io/exclude-node-draining"
	withoutDetach = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"

	clusterID   = "ostler.dev/cluster-id"
	machineName = "ostler.dev/machine-name"
	machineUID  = "ostler.dev/machine-uid"
	// clusterHash is a label by which a list finds what a cluster has: its id may have characters that no label takes.
	clusterHash = "ostler.dev/cluster-hash"
	// settled has the spec that an object was last brought to: what is fixed, and which labels and annotations are ours.
	settled = "ostler.dev/provider-spec"
)

func digest(text string, digits int) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:digits]
}

// String is what `settled` has.
func (s spec) String() string {
	text, _ := json.Marshal(s) // of strings alone: it cannot fail
	return string(text)
}

// recorded is the spec in the annotation of an object, empty if there is none.
func recorded(it *object) (was spec, known bool) {
	return was, json.Unmarshal([]byte(it.GetAnnotations()[settled]), &was) == nil
}
