package driver

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// Spec is a provider spec as a struct. A field with the tag `ostler:"fixed"` cannot change while an instance runs; the tag
// also counts in the structs that it holds, embeds, or has lists and maps of.
type Spec interface {
	// Check says what is wrong with the values.
	Check() Violations
}

// Violations are the wrong fields of a provider spec.
type Violations []*pb.FieldViolation

// Unless adds a violation of the field at path unless it is good. The text says what would be right.
func (v Violations) Unless(good bool, path, text string) Violations {
	if good {
		return v
	}
	return append(v, &pb.FieldViolation{Path: path, Description: text})
}

// read decodes a provider spec and checks it. A field that S does not have is wrong, too: it is a spelling mistake.
func read[S Spec](text string) (S, Violations) {
	var spec S
	var wrongType *json.UnmarshalTypeError
	err := json.Unmarshal([]byte(text), &spec)
	if errors.As(err, &wrongType) && wrongType.Field != "" {
		return spec, Violations{}.Unless(false, wrongType.Field, "cannot be a "+wrongType.Value)
	}
	if err != nil {
		return spec, Violations{}.Unless(false, "", "must be a JSON object")
	}
	strict := json.NewDecoder(strings.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(new(S)); err != nil {
		_, name, _ := strings.Cut(err.Error(), "unknown field ")
		return spec, spec.Check().Unless(false, strings.Trim(name, `"`), "is not known")
	}
	return spec, spec.Check()
}

// ParseSpec reads the provider spec of the class of an operation. It fails with INVALID_ARGUMENT, and names each
// wrong field.
func ParseSpec[S Spec](op *pb.OperationContext) (S, error) {
	spec, wrong := read[S](op.GetMachineClass().GetProviderSpecJson())
	if len(wrong) == 0 {
		return spec, nil
	}
	said := make([]string, len(wrong))
	for i, it := range wrong {
		said[i] = strings.TrimSpace(it.Path + " " + it.Description)
	}
	failed := Fail(InvalidArgument, "BAD_SPEC", "%s", strings.Join(said, ", "))
	failed.Detail.Violations = wrong
	return spec, failed
}

// fixed is the part of a spec that cannot change while an instance runs: path to value.
func fixed(spec Spec) map[string]any {
	part := map[string]any{}
	addFixed(part, "", reflect.ValueOf(spec), false)
	return part
}

// addFixed adds the fields at path that have the tag, or all of them.
func addFixed(part map[string]any, path string, value reflect.Value, all bool) {
	switch value.Kind() {
	case reflect.Pointer:
		addFixed(part, path, value.Elem(), all)
	case reflect.Slice, reflect.Array:
		for i, it := range value.Seq2() {
			addFixed(part, fmt.Sprintf("%s[%v]", path, i), it, all)
		}
	case reflect.Map:
		for key, it := range value.Seq2() {
			addFixed(part, fmt.Sprintf("%s[%v]", path, key), it, all)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			addFixedField(part, path, value.Type().Field(i), value.Field(i), all)
		}
	}
}

// addFixedField names the field as encoding/json does, which flattens embedded structs and fills no unexported field.
func addFixedField(part map[string]any, path string, field reflect.StructField, value reflect.Value, all bool) {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	all = all || field.Tag.Get("ostler") == "fixed"
	kind := field.Type.Kind()
	if kind == reflect.Pointer {
		kind = field.Type.Elem().Kind()
	}
	if field.Anonymous && name == "" && kind == reflect.Struct {
		addFixed(part, path, value, all)
		return
	}
	at := strings.TrimPrefix(path+"."+cmp.Or(name, field.Name), ".")
	switch {
	case !field.IsExported():
	case all:
		part[at] = value.Interface()
	default:
		addFixed(part, at, value, false)
	}
}

// Differing are the paths whose change from one spec to the other stands in the way of a hot update.
func Differing(old, new Spec) []string {
	have, want := fixed(old), fixed(new)
	both := maps.Clone(have)
	maps.Copy(both, want)
	maps.DeleteFunc(both, func(path string, _ any) bool { return reflect.DeepEqual(have[path], want[path]) })
	return slices.Sorted(maps.Keys(both))
}

// InTheWay is Differing without the paths in which lastApplied, that of an UpdateMachineRequest, is as new: an update in
// place of the Node changed those already, whatever the infrastructure shows.
func InTheWay[S Spec](old, new S, lastApplied string) []string {
	paths := Differing(old, new)
	last, unreadable := read[S](lastApplied)
	if len(unreadable) > 0 {
		return paths
	}
	left := Differing(last, new)
	return slices.DeleteFunc(paths, func(path string) bool {
		return !slices.ContainsFunc(left, func(it string) bool {
			return strings.HasPrefix(it, path) || strings.HasPrefix(path, it)
		})
	})
}

// NotHotUpdatable refuses an update because these paths cannot change while the instance runs.
func NotHotUpdatable(paths []string) *Error {
	failed := Fail(FailedPrecondition, "NOT_HOT_UPDATABLE", "cannot change while the instance runs: %s",
		strings.Join(paths, ", "))
	for _, path := range paths {
		violation := &pb.FieldViolation{Path: path, Description: "is fixed when the instance is made"}
		failed.Detail.Violations = append(failed.Detail.Violations, violation)
	}
	return failed
}

// Validate answers ValidateClass for specs of type S.
func Validate[S Spec](q *pb.ValidateClassRequest) *pb.ValidateClassResponse {
	spec, wrong := read[S](q.ProviderSpecJson)
	if len(wrong) > 0 {
		return &pb.ValidateClassResponse{Violations: wrong}
	}
	// Tools name classes by the digest: it must stay the same for the same fixed part. Go sorts the keys of a map.
	answer := &pb.ValidateClassResponse{}
	if part, err := json.Marshal(fixed(spec)); err == nil {
		answer.FixedSpecSha256 = fmt.Sprintf("%x", sha256.Sum256(part))
	}
	if old, unreadable := read[S](q.OldProviderSpecJson); len(unreadable) == 0 {
		answer.NotHotUpdatablePaths = Differing(old, spec)
		answer.ChangeIsHotUpdatable = len(answer.NotHotUpdatablePaths) == 0
	}
	return answer
}

// VolumeIDs answers GetVolumeIds for volumes of one CSI driver: their handles.
func VolumeIDs(q *pb.GetVolumeIdsRequest, csiDriver string) (*pb.GetVolumeIdsResponse, error) {
	answer := &pb.GetVolumeIdsResponse{VolumeIds: make([]string, len(q.PvSpecsJson))}
	for i, text := range q.PvSpecsJson {
		var volume struct {
			CSI struct{ Driver, VolumeHandle string } `json:"csi"`
		}
		if err := json.Unmarshal([]byte(text), &volume); err != nil {
			return nil, Fail(InvalidArgument, "BAD_VOLUME", "volume %d is not a PersistentVolumeSpec", i)
		}
		if volume.CSI.Driver == csiDriver {
			answer.VolumeIds[i] = volume.CSI.VolumeHandle
		}
	}
	return answer, nil
}
