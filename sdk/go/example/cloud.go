package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"ostler.dev/sdk/go/driver"
	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
)

// cloud is the infrastructure of this example: a JSON file.
type cloud struct {
	// Changes counts what changed the cloud.
	Changes   int         `json:"changes"`
	Instances []*instance `json:"instances"`
}

// instance is a server of this cloud. It is tagged in the write that makes it.
type instance struct {
	ID          string            `json:"providerId"`
	Cluster     string            `json:"clusterId"`
	UID         string            `json:"uid"`
	Name        string            `json:"name"`
	Spec        spec              `json:"spec"`
	Tags        map[string]string `json:"tags"`
	UserData    []byte            `json:"userData"`
	ReadyAt     time.Time         `json:"readyAt"`
	Initialized bool              `json:"initialized"`
}

// cloudFile is where the cloud is: CLOUD_FILE, or a file beside the program.
func cloudFile() string {
	if path := os.Getenv("CLOUD_FILE"); path != "" {
		return path
	}
	program, err := os.Executable()
	if err != nil {
		return "cloud.data"
	}
	return filepath.Join(filepath.Dir(program), "cloud.data")
}

// inCloud logs in and runs do on the cloud, alone, and keeps what it changed unless it fails. This cloud refuses every
// key that begins with `invalid`, and answers nothing once it has taken as many changes as `probe break` allows.
func inCloud(apiKey []byte, do func(*cloud) error) error {
	if len(apiKey) == 0 || bytes.HasPrefix(apiKey, []byte("invalid")) {
		return driver.Fail(driver.Unauthenticated, "BAD_KEY", "the cloud refuses the apiKey of the secret")
	}
	left, ends := changesLeft()
	if ends && left == 0 {
		return driver.Fail(driver.Unavailable, "CLOUD_AWAY", "the cloud does not answer").Leaving(driver.NotKnown)
	}
	changed, err := inFile(do)
	if changed && ends {
		err = breakAfter(left - 1)
	}
	return err
}

// changesLeft is how many changes the cloud takes before it answers nothing; false if there is no end to them.
func changesLeft() (int, bool) {
	text, err := os.ReadFile(cloudFile() + ".outage")
	left, wrong := strconv.Atoi(string(text))
	return left, err == nil && wrong == nil
}

func breakAfter(changes int) error {
	return os.WriteFile(cloudFile()+".outage", []byte(strconv.Itoa(changes)), 0o600)
}

// inFile runs do on what is in the file, alone, and says whether that changed it.
func inFile(do func(*cloud) error) (changed bool, err error) {
	path := cloudFile()
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return false, err
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	var c cloud
	if len(before) > 0 {
		if err := json.Unmarshal(before, &c); err != nil {
			return false, err
		}
	}
	if err := do(&c); err != nil {
		return false, err
	}
	if after, err := json.Marshal(c); err != nil || bytes.Equal(before, after) {
		return false, err
	}
	c.Changes++
	after, err := json.Marshal(c)
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(path+".new", after, 0o600); err != nil {
		return false, err
	}
	return true, os.Rename(path+".new", path)
}

// machine is whose instance is looked for.
type machine struct {
	op *pb.OperationContext
	id string // the provider id that the core knows, or empty
}

// mine says whether the instance is tagged with the cluster.
func (m machine) mine(it *instance) bool { return driver.IsOfCluster(m.op, it.Cluster) }

// is says whether the instance is this machine's: by the id if the names fit, else by UID, never in another cluster.
func (m machine) is(it *instance) bool {
	target := m.op.Target
	return m.mine(it) && (it.UID == target.Uid || it.ID == m.id && it.Name == target.Name)
}

// isNot says whether the instance was asked for and is another machine's; or may be this machine's or not, since it has
// its name, a previous cluster id and another UID.
func (m machine) isNot(it *instance) bool {
	named := m.mine(it) && it.Name == m.op.Target.Name
	if m.id != "" {
		return it.ID == m.id && !named
	}
	return named && it.UID != m.op.Target.Uid && it.Cluster != m.op.ClusterId
}

// find returns the instances for which the rule holds.
func (c *cloud) find(rule func(*instance) bool) []*instance {
	found := []*instance{}
	for _, it := range c.Instances {
		if rule(it) {
			found = append(found, it)
		}
	}
	return found
}

// remove deletes the instances for which the rule holds, and says whether there were any.
func (c *cloud) remove(rule func(*instance) bool) bool {
	before := len(c.Instances)
	c.Instances = slices.DeleteFunc(c.Instances, rule)
	return len(c.Instances) < before
}

func (it *instance) state() pb.MachinePowerState {
	if time.Now().Before(it.ReadyAt) {
		return pb.MachinePowerState_MACHINE_POWER_STATE_PENDING
	}
	return pb.MachinePowerState_MACHINE_POWER_STATE_RUNNING
}

// boot is how long this cloud takes to make an instance.
func (s spec) boot() time.Duration { return time.Duration(s.BootSeconds * float64(time.Second)) }

// merge returns all tags; of those in both, the ones of more.
func merge(tags, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, tags)
	maps.Copy(all, more)
	return all
}

// replaceTags takes the old tags away, puts the new ones on, leaves all others, and says whether that changed any.
func (it *instance) replaceTags(old, new map[string]string) bool {
	tags := maps.Clone(it.Tags)
	maps.DeleteFunc(tags, func(key, _ string) bool { _, own := old[key]; return own })
	tags = merge(tags, new)
	changed := !maps.Equal(tags, it.Tags)
	it.Tags = tags
	return changed
}
