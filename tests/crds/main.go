// Checks the definitions of deploy/crds as kube-apiserver does when they are applied, with the library that it is made
// of: their schemas are structural, and their CEL rules compile and are cheap enough. Then it has each example of
// deploy/examples validated, and each object of refused.yaml refused for the reason that stands with it.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	kyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Why an object of refused.yaml is refused: a part of the message.
const refusedFor = "test/refused-for"

// The object that it replaces, as JSON, if the reason is about a change.
const replaces = "test/replaces-spec"

// kind is what validates the objects of one kind in one version.
type kind struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crds REPOSITORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(repository string) error {
	kinds, err := definitions(filepath.Join(repository, "deploy/crds"))
	if err != nil {
		return err
	}
	var failed []error
	examples := 0
	err = filepath.WalkDir(filepath.Join(repository, "deploy/examples"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		return each(path, func(object *unstructured.Unstructured) error {
			kind, ours := kinds[object.GroupVersionKind().String()]
			if !ours {
				return nil
			}
			examples++
			if wrong := kind.wrong(object.Object, nil); wrong != nil {
				failed = append(failed, fmt.Errorf("%s: %s is refused: %w", path, object.GetName(), wrong))
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	refused := 0
	err = each(filepath.Join(repository, "tests/crds/refused.yaml"), func(object *unstructured.Unstructured) error {
		kind, ours := kinds[object.GroupVersionKind().String()]
		if !ours {
			return fmt.Errorf("%s: no such kind", object.GroupVersionKind())
		}
		refused++
		var before map[string]any
		if spec := object.GetAnnotations()[replaces]; spec != "" {
			before = object.DeepCopy().Object
			var old map[string]any
			if err := decode([]byte(spec), &old); err != nil {
				return err
			}
			before["spec"] = old
		}
		wrong, want := kind.wrong(object.Object, before), object.GetAnnotations()[refusedFor]
		if wrong == nil || !strings.Contains(wrong.Error(), want) {
			failed = append(failed, fmt.Errorf("%s is to be refused for %q: %v", object.GetName(), want, wrong))
		}
		return nil
	})
	fmt.Printf("%d kinds, %d examples, %d refused objects\n", len(kinds), examples, refused)
	return errors.Join(append(failed, err)...)
}

// definitions reads and validates CustomResourceDefinitions as their creation does.
func definitions(folder string) (map[string]kind, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	kinds := map[string]kind{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var written v1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &written); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		scheme.Default(&written)
		var definition apiextensions.CustomResourceDefinition
		if err := scheme.Convert(&written, &definition, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		// The registry's strategy sets it before it validates.
		for _, version := range definition.Spec.Versions {
			if version.Storage {
				definition.Status.StoredVersions = []string{version.Name}
			}
		}
		if wrong := crds.ValidateCustomResourceDefinition(context.Background(), &definition); len(wrong) > 0 {
			return nil, fmt.Errorf("%s is refused: %w", path, wrong.ToAggregate())
		}
		for _, version := range definition.Spec.Versions {
			kind, err := kindOf(&definition, version.Name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			name := fmt.Sprintf("%s/%s, Kind=%s", definition.Spec.Group, version.Name, definition.Spec.Names.Kind)
			kinds[name] = kind
		}
	}
	return kinds, nil
}

func kindOf(definition *apiextensions.CustomResourceDefinition, version string) (kind, error) {
	given, err := apiextensions.GetSchemaForVersion(definition, version)
	if err != nil {
		return kind{}, err
	}
	structural, err := schema.NewStructural(given.OpenAPIV3Schema)
	if err != nil {
		return kind{}, err
	}
	validator, _, err := validation.NewSchemaValidator(given.OpenAPIV3Schema)
	if err != nil {
		return kind{}, err
	}
	return kind{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// wrong says why an object is refused; unknown fields count, though kube-apiserver only drops them.
func (k kind) wrong(object, before map[string]any) error {
	unknown := pruning.PruneWithOptions(runtime.DeepCopyJSON(object), k.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return fmt.Errorf("unknown fields %v", unknown)
	}
	wrong := validation.ValidateCustomResource(nil, object, k.schema)
	var old any
	if before != nil {
		old = before
	}
	found, _ := k.rules.Validate(context.Background(), nil, k.structural, object, old, celconfig.RuntimeCELCostBudget)
	return append(wrong, found...).ToAggregate()
}

// each reads the objects of a file.
func each(path string, do func(*unstructured.Unstructured) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	documents := kyaml.NewYAMLReader(bufio.NewReader(file))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		object := &unstructured.Unstructured{}
		// As the server does, so that whole numbers are integers.
		if err := decode(document, &object.Object); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if object.GetKind() == "" {
			continue
		}
		if err := do(object); err != nil {
			return err
		}
	}
}

func decode(text []byte, into *map[string]any) error {
	content, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}
