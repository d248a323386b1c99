package driver

import (
	"reflect"
	"testing"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

type disk struct {
	Size int `json:"size"`
}

type spec struct {
	Image string            `json:"image" ostler:"fixed"`
	Disks []disk            `json:"disks" ostler:"fixed"`
	Tags  map[string]string `json:"tags"`
}

func (s spec) Check() Violations {
	return Violations{}.Unless(s.Image != "", "image", "must name an image")
}

func paths(violations []*pb.FieldViolation) (paths []string) {
	for _, it := range violations {
		paths = append(paths, it.Path)
	}
	return paths
}

func TestAWrongSpecNamesItsFields(t *testing.T) {
	for text, want := range map[string][]string{
		`{"image": "i", "disks": [{"size": 1}]}`:   nil,
		`{"disks": [], "colour": "red"}`:           {"image", "colour"},
		`{"image": 1}`:                             {"image"},
		`{"image": "i", "disks": [{"size": "x"}]}`: {"disks.size"},
		`[]`:   {""},
		`oops`: {""},
		``:     {""},
	} {
		op := &pb.OperationContext{MachineClass: &pb.ClassContent{ProviderSpecJson: text}}
		_, err := ParseSpec[spec](op)
		if len(want) == 0 {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		failed, ok := err.(*Error)
		if !ok || failed.Detail.Code != InvalidArgument || !reflect.DeepEqual(paths(failed.Detail.Violations), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOnlyAChangeOfWhatIsFixedReplacesMachines(t *testing.T) {
	const old = `{"image": "a", "disks": [{"size": 1}], "tags": {"k": "v"}}`
	digest := Validate[spec](&pb.ValidateClassRequest{ProviderSpecJson: old}).FixedSpecSha256
	if digest == "" {
		t.Fatal("no digest")
	}
	for text, want := range map[string][]string{
		`{"tags": {"k": "w"}, "disks": [{"size": 1}], "image": "a"}`: nil,
		`{"image": "b", "disks": [{"size": 1}]}`:                     {"image"},
		`{"image": "b", "disks": [{"size": 2}]}`:                     {"disks", "image"},
	} {
		said := Validate[spec](&pb.ValidateClassRequest{ProviderSpecJson: text, OldProviderSpecJson: old})
		same := said.FixedSpecSha256 == digest
		if !reflect.DeepEqual(said.NotHotUpdatablePaths, want) || said.ChangeIsHotUpdatable != (want == nil) || same != (want == nil) {
			t.Errorf("%s: %v", text, said)
		}
	}
}

type place struct {
	Region string `ostler:"fixed"`
}

type Zoned struct {
	Zone string `json:"zone,omitempty"`
	Note string `json:"-"`
}

// nested has its tags everywhere but at the top, and fields that json does not name.
type nested struct {
	place
	*Zoned `ostler:"fixed"`
	Root   struct {
		Size int `json:"size" ostler:"fixed"`
		IOPS int `json:"iops"`
	} `json:"root"`
	Disks []*struct {
		Size int `ostler:"fixed"`
	} `json:"disks"`
	Labels map[string]place `json:"labels"`
	CPU    int              `json:",omitempty" ostler:"fixed"`
	Memory int              `ostler:"fixed"`
	secret string           `ostler:"fixed"`
}

func (nested) Check() Violations { return nil }

func TestWhatIsFixedInsideAFieldOrHasNoNameInJSONIsFixed(t *testing.T) {
	const old = `{"Region": "eu", "zone": "a", "root": {"size": 1, "iops": 2}, "disks": [{"Size": 1}], "labels": {"k": {"Region": "x"}}, "CPU": 1, "Memory": 1}`
	for text, want := range map[string][]string{
		`"root": {"size": 1, "iops": 3}`:   nil,
		`"root": {"size": 2, "iops": 2}`:   {"root.size"},
		`"Region": "us"`:                   {"Region"},
		`"zone": "b"`:                      {"zone"},
		`"disks": []`:                      {"disks[0].Size"},
		`"disks": [{"Size": 1}, {}]`:       {"disks[1].Size"},
		`"labels": {"k": {"Region": "y"}}`: {"labels[k].Region"},
		`"CPU": 2`:                         {"CPU"},
		`"Memory": 2`:                      {"Memory"},
	} {
		// Of two members of one name the last counts.
		spec := old[:len(old)-1] + ", " + text + "}"
		said := Validate[nested](&pb.ValidateClassRequest{ProviderSpecJson: spec, OldProviderSpecJson: old})
		same := said.FixedSpecSha256 == Validate[nested](&pb.ValidateClassRequest{ProviderSpecJson: old}).FixedSpecSha256
		if !reflect.DeepEqual(said.NotHotUpdatablePaths, want) || said.ChangeIsHotUpdatable != (want == nil) || same != (want == nil) {
			t.Errorf("%s: %v", text, said)
		}
	}
}

func TestVolumesOfOtherDriversHaveNoID(t *testing.T) {
	said, err := VolumeIDs(&pb.GetVolumeIdsRequest{PvSpecsJson: []string{
		`{"csi": {"driver": "mine", "volumeHandle": "v-1"}}`, `{"csi": {"driver": "other", "volumeHandle": "v-2"}}`, `{"nfs": {}}`,
	}}, "mine")
	if err != nil || !reflect.DeepEqual(said.VolumeIds, []string{"v-1", "", ""}) {
		t.Error(said, err)
	}
}

func TestWhatAnUpdateInPlaceChangedDoesNotStandInTheWay(t *testing.T) {
	old, new := spec{Image: "a", Disks: []disk{{1}}}, spec{Image: "b", Disks: []disk{{2}}}
	for last, want := range map[string][]string{
		``:                                       {"disks", "image"},
		`{"image": "a", "disks": [{"size": 1}]}`: {"disks", "image"},
		`{"image": "b", "disks": [{"size": 1}]}`: {"disks"},
		`{"image": "b", "disks": [{"size": 2}]}`: nil,
	} {
		if got := InTheWay(old, new, last); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s: %v", last, got)
		}
	}
}
