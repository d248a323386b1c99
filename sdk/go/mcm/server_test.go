package mcm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	upstream "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	corev1 "k8s.io/api/core/v1"

	grpccodes "google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

var cloud = Info{Classes: "Cloud"}

// provider answers what a test says, and keeps the last requests.
type provider struct {
	status, create, initialize, remove, list error
	state                                    string
	unknown                                  bool   // GetMachineStatus returns no response with its error
	hangs                                    bool   // GetMachineStatus ends with its context
	needsID                                  bool   // GetMachineStatus finds nothing without an id
	meanwhile                                func() // what happens while CreateMachine, InitializeMachine or DeleteMachine runs
	machines                                 map[string]string
	created                                  *upstream.CreateMachineRequest
	initialized                              *upstream.InitializeMachineRequest
	read                                     *upstream.GetMachineStatusRequest
	removed                                  *upstream.DeleteMachineRequest
}

// work is an operation that ends with its context.
func (p *provider) work(ctx context.Context) error {
	if p.meanwhile != nil {
		p.meanwhile()
	}
	return ctx.Err()
}

func (p *provider) CreateMachine(ctx context.Context, q *upstream.CreateMachineRequest) (*upstream.CreateMachineResponse, error) {
	p.created = q
	answer := &upstream.CreateMachineResponse{ProviderID: "cloud:///1", NodeName: "node", LastKnownState: p.state}
	return answer, cmp.Or(p.work(ctx), p.create)
}

func (p *provider) InitializeMachine(ctx context.Context, q *upstream.InitializeMachineRequest) (*upstream.InitializeMachineResponse, error) {
	p.initialized = q
	return nil, cmp.Or(p.work(ctx), p.initialize)
}

func (p *provider) DeleteMachine(ctx context.Context, q *upstream.DeleteMachineRequest) (*upstream.DeleteMachineResponse, error) {
	p.removed = q
	return &upstream.DeleteMachineResponse{LastKnownState: p.state}, cmp.Or(p.work(ctx), p.remove)
}

func (p *provider) GetMachineStatus(ctx context.Context, q *upstream.GetMachineStatusRequest) (*upstream.GetMachineStatusResponse, error) {
	p.read = q
	if p.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if p.needsID && q.Machine.Spec.ProviderID == "" {
		return nil, absent()
	}
	if p.unknown {
		return nil, p.status
	}
	return &upstream.GetMachineStatusResponse{ProviderID: "cloud:///1", NodeName: "node"}, p.status
}

func (p *provider) ListMachines(context.Context, *upstream.ListMachinesRequest) (*upstream.ListMachinesResponse, error) {
	return &upstream.ListMachinesResponse{MachineList: p.machines}, p.list
}

func (p *provider) GetVolumeIDs(_ context.Context, q *upstream.GetVolumeIDsRequest) (*upstream.GetVolumeIDsResponse, error) {
	ids := []string{}
	for _, spec := range q.PVSpecs {
		if spec.CSI != nil {
			ids = append(ids, spec.CSI.VolumeHandle)
		}
	}
	return &upstream.GetVolumeIDsResponse{VolumeIDs: ids}, nil
}

func operation() *pb.OperationContext {
	return &pb.OperationContext{
		Target:     &pb.Target{Namespace: "shoot", Name: "m", Uid: "u"},
		Checkpoint: "half",
		Secret:     map[string][]byte{"apiKey": []byte("key")},
		Machine:    &pb.MachineMetadata{Labels: map[string]string{"pool": "a"}, NodeTemplateJson: `{"metadata": {"labels": {"x": "y"}}}`},
		MachineClass: &pb.ClassContent{
			Ref: &pb.ObjectRevision{Namespace: "shoot", Name: "class"}, Provider: "cloud.example.com",
			ProviderSpecJson: `{"image":"i"}`,
			Shape:            &pb.MachineShape{InstanceType: "large", Zone: "z", Capacity: map[string]string{"cpu": "4"}},
		},
	}
}

func absent() error { return status.Error(codes.NotFound, "no VM") }

func detail(t *testing.T, err error) *pb.OperationError {
	t.Helper()
	var failed *driver.Error
	if !errors.As(err, &failed) {
		t.Fatalf("%v is no error of the contract", err)
	}
	return failed.Detail
}

func TestEveryCodeOfAProviderKeepsItsNumber(t *testing.T) {
	for code := codes.Canceled; code <= codes.Uninitialized; code++ {
		failed := detail(t, failure(status.Error(code, "text [with] brackets"), driver.NotKnown, "state"))
		if failed.Code != driver.Code(code) || failed.Message != "text [with] brackets" || failed.Checkpoint != "state" {
			t.Errorf("%v: %v", code, failed)
		}
		left := driver.NotKnown
		if code == codes.Unimplemented {
			left = driver.NotApplied
		}
		if failed.Certainty != left {
			t.Errorf("%v: %v", code, failed.Certainty)
		}
	}
}

func TestOnlyACodeOfMachineControllerManagerCounts(t *testing.T) {
	for text, row := range map[string]struct {
		err  error
		code codes.Code
	}{
		"a wrapped status":           {fmt.Errorf("while creating: %w", status.Error(codes.ResourceExhausted, "x")), codes.ResourceExhausted},
		"the text of a status":       {errors.New(status.Error(codes.Unauthenticated, "x").Error()), codes.Unauthenticated},
		"any text in brackets":       {errors.New("[NotFound] [project]"), codes.Unknown},
		"a status of gRPC":           {grpcstatus.Error(grpccodes.NotFound, "project"), codes.Unknown},
		"a code that is no error":    {status.Error(codes.OK, "x"), codes.Unknown},
		"an error of another origin": {errors.New("eof"), codes.Unknown},
	} {
		if failed := detail(t, failure(row.err, driver.NotKnown, "")); failed.Code != driver.Code(row.code) {
			t.Errorf("%s: %v", text, failed)
		}
	}
}

func TestAQuotaThatIsUsedUpIsNoRefusalOfTheCredentials(t *testing.T) {
	for text, code := range map[string]driver.Code{
		`got 403 instead: {"forbidden": {"code": 403, "message": "Quota exceeded for cores: Requested 2, but already used 20 of 20 cores"}}`: driver.ResourceExhausted,
		"Quota exceeded, too many servers in group":                               driver.ResourceExhausted,
		"the request exceeds the quota for ports":                                 driver.ResourceExhausted,
		"Policy doesn't allow os_compute_api:os-quota-sets:show to be performed.": driver.PermissionDenied,
		"You are not authorized to perform the requested action.":                 driver.PermissionDenied,
	} {
		failed := detail(t, failure(status.Error(codes.PermissionDenied, text), driver.NotKnown, ""))
		if failed.Code != code || failed.ProviderCode != "PermissionDenied" || failed.Message != text {
			t.Errorf("%q: %v", text, failed)
		}
	}
}

func TestALimitForTheRateOfCallsIsNoLackOfCapacity(t *testing.T) {
	for text, row := range map[string]struct {
		code   codes.Code
		reason string
	}{
		"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'": {codes.PermissionDenied, "THROTTLED"},
		"RequestLimitExceeded: Request limit exceeded.":                            {codes.ResourceExhausted, "THROTTLED"},
		"Throttling: Rate exceeded":                                                {codes.ResourceExhausted, "THROTTLED"},
		"got 429: Too Many Requests":                                               {codes.ResourceExhausted, "THROTTLED"},
		"Quota exceeded for cores: Requested 2, but already used 20":               {codes.PermissionDenied, "PROVIDER_ERROR"},
		"InsufficientInstanceCapacity: no m5.large here":                           {codes.ResourceExhausted, "PROVIDER_ERROR"},
	} {
		failed := detail(t, failure(status.Error(row.code, text), driver.NotKnown, ""))
		if failed.Code != driver.ResourceExhausted || failed.Reason != row.reason {
			t.Errorf("%q: %v", text, failed)
		}
	}
}

func TestTheIDOfARequestIsNotInTheMessage(t *testing.T) {
	for text, row := range map[string]struct{ message, id string }{
		"EC2: RunInstances, StatusCode: 401, RequestID: 4aLF-x, api error AuthFailure: no": {"EC2: RunInstances, StatusCode: 401, api error AuthFailure: no", "4aLF-x"},
		"Unauthorized: no\n\tstatus code: 401, request id: 7f3c":                           {"Unauthorized: no\n\tstatus code: 401", "7f3c"},
		"a request id is missing": {"a request id is missing", ""},
	} {
		failed := detail(t, failure(status.Error(codes.Internal, text), driver.NotKnown, ""))
		if failed.Message != row.message || failed.ProviderRequestId != row.id {
			t.Errorf("%q: %q %q", text, failed.Message, failed.ProviderRequestId)
		}
	}
}

func TestACreateLooksFirst(t *testing.T) {
	for text, row := range map[string]struct {
		status      error
		creates     bool
		code        driver.Code
		initialized *bool
	}{
		"there":                       {nil, false, 0, nil},
		"there and not initialized":   {status.Error(codes.Uninitialized, ""), false, 0, new(bool)},
		"absent":                      {absent(), true, 0, new(bool)},
		"a provider that cannot look": {status.Error(codes.Unimplemented, ""), true, 0, new(bool)},
		"could not look":              {status.Error(codes.Unavailable, ""), false, driver.Unavailable, nil},
		"no code":                     {errors.New("not found"), false, driver.Unknown, nil},
	} {
		p := &provider{status: row.status}
		answer, err := New(p, cloud).CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation()})
		if (p.created != nil) != row.creates {
			t.Errorf("%s: created %v", text, p.created)
		}
		if row.code != 0 {
			if failed := detail(t, err); failed.Code != row.code || failed.Certainty != driver.NotApplied {
				t.Errorf("%s: %v", text, failed)
			}
		} else if err != nil || answer.Machine.ProviderId != "cloud:///1" || !reflect.DeepEqual(answer.Machine.Initialized, row.initialized) {
			t.Errorf("%s: %v %v", text, answer, err)
		}
	}
}

func TestAFailedCreateIsOfUnknownOutcomeAndKeepsItsState(t *testing.T) {
	p := &provider{status: absent(), create: status.Error(codes.InvalidArgument, "no such image"), state: "disk made"}
	_, err := New(p, cloud).CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation()})
	if failed := detail(t, err); failed.Certainty != driver.NotKnown || failed.Checkpoint != "disk made" {
		t.Error(failed)
	}
}

func TestAProviderIsNotCancelledInTheMiddleAndKeepsItsDeadline(t *testing.T) {
	for verb, do := range map[string]func(context.Context, driver.Driver) (*pb.MachineRecord, error){
		"create": func(ctx context.Context, d driver.Driver) (*pb.MachineRecord, error) {
			answer, err := d.CreateMachine(ctx, &pb.CreateMachineRequest{Context: operation()})
			return answer.GetMachine(), err
		},
		"initialize": func(ctx context.Context, d driver.Driver) (*pb.MachineRecord, error) {
			q := &pb.InitializeMachineRequest{Context: operation(), ProviderId: "cloud:///1"}
			answer, err := d.(driver.Initializer).InitializeMachine(ctx, q)
			return answer.GetMachine(), err
		},
		"delete": func(ctx context.Context, d driver.Driver) (*pb.MachineRecord, error) {
			_, err := d.DeleteMachine(ctx, &pb.DeleteMachineRequest{Context: operation()})
			return &pb.MachineRecord{ProviderId: "cloud:///1"}, err
		},
	} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				p := &provider{status: absent(), meanwhile: cancel}
				if record, err := do(ctx, New(p, cloud)); err != nil || record.GetProviderId() != "cloud:///1" {
					t.Error(record, err)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				p.meanwhile = func() { time.Sleep(time.Minute); synctest.Wait() }
				if _, err := do(ctx, New(p, cloud)); err == nil {
					t.Error("the provider goes on after the time of the operation")
				}
			})
		})
	}
}

func TestACreateThatIsCancelledBeforeTheProviderIsAskedMakesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &provider{status: absent()}
	_, err := New(p, cloud).CreateMachine(ctx, &pb.CreateMachineRequest{Context: operation()})
	if failed := detail(t, err); p.created != nil || failed.Code != driver.Canceled || failed.Certainty != driver.NotApplied {
		t.Error(p.created, failed)
	}
}

func TestAProviderGetsWhatMachineControllerManagerGivesIt(t *testing.T) {
	p := &provider{status: absent()}
	d := New(p, cloud)
	bootstrap := &pb.BootstrapData{UserData: []byte("#cloud-config")}
	if _, err := d.CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation(), Bootstrap: bootstrap}); err != nil {
		t.Fatal(err)
	}
	machine, class, secret := p.created.Machine, p.created.MachineClass, p.created.Secret
	if machine.Name != "m" || machine.Namespace != "shoot" || machine.Labels["pool"] != "a" ||
		machine.Status.LastKnownState != "half" || machine.Spec.NodeTemplateSpec.Labels["x"] != "y" || machine.Spec.Class.Name != "class" {
		t.Error(machine)
	}
	cpu := class.NodeTemplate.Capacity[corev1.ResourceCPU]
	if class.Provider != "Cloud" || string(class.ProviderSpec.Raw) != `{"image":"i"}` || cpu.String() != "4" || class.NodeTemplate.Zone != "z" {
		t.Error(class)
	}
	if string(secret.Data["apiKey"]) != "key" || string(secret.Data[userData]) != "#cloud-config" {
		t.Error(secret)
	}
	initialize := &pb.InitializeMachineRequest{Context: operation(), ProviderId: "cloud:///1", Bootstrap: bootstrap}
	if _, err := d.(driver.Initializer).InitializeMachine(t.Context(), initialize); err != nil {
		t.Fatal(err)
	}
	if string(p.initialized.Secret.Data[userData]) != "#cloud-config" || p.initialized.Machine.Spec.ProviderID != "cloud:///1" {
		t.Error(p.initialized)
	}
	// Most providers refuse a Secret without user data.
	p.status = nil
	if _, err := d.(driver.StatusGetter).GetMachineStatus(t.Context(), &pb.GetMachineStatusRequest{Context: operation()}); err != nil {
		t.Fatal(err)
	}
	if text := string(p.read.Secret.Data[userData]); text == "" || text == "#cloud-config" {
		t.Error(text)
	}
}

// Without an id a list cannot tell a whole instance from one whose creation was cut off: such a provider finishes that
// one when it is asked to create again. With an id its creation has ended.
func TestAProviderThatCannotReadOneIsAskedForAllOnlyWithAnID(t *testing.T) {
	unimplemented := status.Error(codes.Unimplemented, "")
	for text, row := range map[string]struct {
		id       string
		machines map[string]string
		list     error
		code     driver.Code
	}{
		"no id":          {"", map[string]string{"a": "m", "b": "n"}, nil, driver.Unimplemented},
		"listed":         {"a", map[string]string{"a": "m", "b": "n"}, nil, 0},
		"not listed":     {"a", map[string]string{"b": "n"}, nil, driver.NotFound},
		"listed twice":   {"a", map[string]string{"a": "m", "b": "m"}, nil, driver.OutOfRange},
		"could not list": {"a", nil, status.Error(codes.Unavailable, ""), driver.Unavailable},
		"cannot list":    {"a", nil, unimplemented, driver.Unimplemented},
	} {
		p := &provider{status: unimplemented, machines: row.machines, list: row.list}
		q := &pb.GetMachineStatusRequest{Context: operation(), ProviderId: row.id}
		answer, err := New(p, cloud).(driver.StatusGetter).GetMachineStatus(t.Context(), q)
		if row.code == 0 {
			if err != nil || answer.Machine.ProviderId != "a" || answer.Machine.MachineUid != "" {
				t.Errorf("%s: %v %v", text, answer, err)
			}
		} else if failed := detail(t, err); failed.Code != row.code {
			t.Errorf("%s: %v", text, failed)
		}
	}
}

func TestACreateThatWasCutOffIsFinishedByItsProvider(t *testing.T) {
	for text, row := range map[string]struct {
		status error
		info   Info
	}{
		"cannot read":                       {status.Error(codes.Unimplemented, ""), cloud},
		"cannot read without an id":         {absent(), Info{Classes: "Cloud", FindsByName: true}},
		"cannot read, and says FindsByName": {status.Error(codes.Unimplemented, ""), Info{Classes: "Cloud", FindsByName: true}},
	} {
		p := &provider{status: row.status, machines: map[string]string{"cloud:///1": "m"}}
		answer, err := New(p, row.info).CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation()})
		if err != nil || p.created == nil || answer.Machine.ProviderId != "cloud:///1" {
			t.Errorf("%s: %v %v", text, answer, err)
		}
	}
}

// metal-stack and equinix-metal say NotFound, and delete nothing, as long as spec.providerID is empty.
func TestAProviderThatFindsNothingWithoutAnIDGetsThatOfTheList(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "")
	for text, row := range map[string]struct {
		machines map[string]string
		list     error
		code     driver.Code // of the read; 0: it is found
		creates  bool
		outcome  pb.DeletionOutcome // 0: the deletion fails, too
	}{
		"listed":         {map[string]string{"cloud:///1": "m", "b": "n"}, nil, 0, false, pb.DeletionOutcome_DELETION_OUTCOME_DELETED},
		"not listed":     {map[string]string{"b": "n"}, nil, driver.NotFound, true, pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT},
		"listed twice":   {map[string]string{"a": "m", "b": "m"}, nil, driver.OutOfRange, false, 0},
		"could not list": {nil, unavailable, driver.Unavailable, false, 0},
		"cannot list":    {nil, status.Error(codes.Unimplemented, ""), driver.NotFound, true, pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT},
	} {
		p := &provider{needsID: true, machines: row.machines, list: row.list}
		d := New(p, cloud)
		found, err := d.(driver.StatusGetter).GetMachineStatus(t.Context(), &pb.GetMachineStatusRequest{Context: operation()})
		if row.code == 0 {
			if err != nil || found.Machine.ProviderId != "cloud:///1" || found.Machine.NodeName != "node" {
				t.Errorf("%s: %v %v", text, found, err)
			}
		} else if failed := detail(t, err); failed.Code != row.code {
			t.Errorf("%s: %v", text, failed)
		}
		if _, err = d.CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation()}); (p.created != nil) != row.creates {
			t.Errorf("%s: created %v, %v", text, p.created, err)
		}
		gone, err := d.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: operation()})
		if row.outcome == 0 {
			if failed := detail(t, err); p.removed != nil || failed.Code != row.code {
				t.Errorf("%s: %v %v", text, p.removed, failed)
			}
			continue
		}
		id := ""
		if row.code == 0 {
			id = "cloud:///1"
		}
		if err != nil || gone.Outcome != row.outcome || p.removed.Machine.Spec.ProviderID != id {
			t.Errorf("%s: %v %v %v", text, gone, err, p.removed)
		}
	}
}

func TestWhatIsListedIsReadByItsID(t *testing.T) {
	p := &provider{status: absent(), unknown: true, machines: map[string]string{"cloud:///1": "m"}}
	// What a failed creation left, such as a network card, is listed under the name, too.
	answer, err := New(p, cloud).CreateMachine(t.Context(), &pb.CreateMachineRequest{Context: operation()})
	if err != nil || p.created == nil || p.read.Machine.Spec.ProviderID != "cloud:///1" {
		t.Error(answer, err, p.read)
	}
}

func TestADeletionOfAProviderThatFindsByNameNeedsNoList(t *testing.T) {
	p := &provider{status: absent(), list: status.Error(codes.Unavailable, "")}
	d := New(p, Info{Classes: "Cloud", FindsByName: true})
	answer, err := d.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: operation()})
	if err != nil || answer.Outcome != pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT {
		t.Error(answer, err)
	}
}

func TestADriverWorksOnAsManyMachinesAsMachineControllerManager(t *testing.T) {
	for given, want := range map[uint32]uint32{0: 100, 7: 7} {
		if info := (Info{MaxInFlight: given}).driver(); info.MaxInFlight != want || !info.IdentityByName {
			t.Errorf("%d: %v", given, info)
		}
	}
}

func TestAnInstanceWithoutInitializationIsARecordOnlyIfItHasAnID(t *testing.T) {
	p := &provider{status: status.Error(codes.Uninitialized, "not yet"), unknown: true}
	read := func(id string) (*pb.GetMachineStatusResponse, error) {
		q := &pb.GetMachineStatusRequest{Context: operation(), ProviderId: id}
		return New(p, cloud).(driver.StatusGetter).GetMachineStatus(t.Context(), q)
	}
	if answer, err := read("cloud:///1"); err != nil || answer.Machine.GetInitialized() || answer.Machine.Initialized == nil {
		t.Error(answer, err)
	}
	_, err := read("")
	if failed := detail(t, err); failed.Code != driver.Uninitialized {
		t.Error(failed)
	}
}

func TestADeletionEndsOrGoesOn(t *testing.T) {
	for text, row := range map[string]struct {
		read, err error
		outcome   pb.DeletionOutcome
	}{
		"gone":                        {nil, nil, pb.DeletionOutcome_DELETION_OUTCOME_DELETED},
		"absent":                      {absent(), absent(), pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT},
		"absent, and that is success": {absent(), nil, pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT},
		"gone before it was its turn": {nil, absent(), pb.DeletionOutcome_DELETION_OUTCOME_WAS_ABSENT},
		"not read":                    {status.Error(codes.Unavailable, ""), nil, pb.DeletionOutcome_DELETION_OUTCOME_DELETED},
	} {
		p := &provider{status: row.read, remove: row.err, state: "nic left"}
		answer, err := New(p, cloud).DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: operation()})
		if err != nil || answer.Outcome != row.outcome || answer.Checkpoint != "nic left" {
			t.Errorf("%s: %v %v", text, answer, err)
		}
	}
	p := &provider{remove: status.Error(codes.Internal, "disk in use"), state: "disk left"}
	_, err := New(p, cloud).DeleteMachine(t.Context(), &pb.DeleteMachineRequest{Context: operation()})
	if failed := detail(t, err); failed.Certainty != driver.Partial || failed.Checkpoint != "disk left" {
		t.Error(failed)
	}
}

func TestAReadThatHangsLeavesTimeToDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		q := &pb.DeleteMachineRequest{Context: operation()}
		answer, err := New(&provider{hangs: true}, cloud).DeleteMachine(ctx, q)
		if err != nil || answer.Outcome != pb.DeletionOutcome_DELETION_OUTCOME_DELETED {
			t.Error(answer, err)
		}
	})
}

func TestAListHasNamesAndNoUIDs(t *testing.T) {
	p := &provider{machines: map[string]string{"b": "n", "a": "m"}}
	all, err := New(p, cloud).ListMachines(t.Context(), &pb.ListMachinesRequest{Context: operation()})
	if err != nil || len(all) != 2 || all[0].ProviderId != "a" || all[0].MachineName != "m" || all[0].MachineUid != "" {
		t.Error(all, err)
	}
}

func TestEachVolumeIsNamedInItsPlace(t *testing.T) {
	q := &pb.GetVolumeIdsRequest{PvSpecsJson: []string{`{"nfs": {}}`, `{"csi": {"driver": "d", "volumeHandle": "v"}}`}}
	answer, err := New(&provider{}, cloud).(driver.VolumeNamer).GetVolumeIds(t.Context(), q)
	if err != nil || !reflect.DeepEqual(answer.VolumeIds, []string{"", "v"}) {
		t.Error(answer, err)
	}
}
