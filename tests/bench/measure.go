package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	ostler = "ostler"
	mcm    = "mcm"
	// longest is how long one step may take.
	longest = 4 * time.Hour
)

// agents are the programs of a side, as API servers count them.
var agents = map[string][]string{
	ostler: {"ostler-server", "ostler-driver-fake"},
	mcm:    {machineController, controllerManager},
}

// limits of the requests of each client.
type limits struct{ qps, burst string }

// measure runs one side once: everything without limits, and then, on another API server if it is ours, with them.
func measure(o options, side string, results *table) error {
	// Ostler has no limit unless it is told one; upstream always has.
	free := limits{}
	if side == mcm {
		free = limits{"1000", "2000"}
	}
	err := with(o, side, free, func(w *world) error {
		if err := w.single(o.single, results); err != nil {
			return err
		}
		for _, size := range o.sizes {
			if err := w.many(size, fmt.Sprint(size), true, results); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || o.limited == 0 {
		return err
	}
	return with(o, side, limits{"20", "30"}, func(w *world) error {
		return w.many(o.limited, fmt.Sprintf("%d, qps 20, burst 30", o.limited), o.kubeconfig != "", results)
	})
}

// world is one side on one API server.
type world struct {
	side    string
	api     *api
	failed  chan error
	server  *process
	parts   []*process
	starts  []func() (*process, error)
	counter int
	// sets: machines at the same time are those of one MachineSet.
	sets bool
}

func with(o options, side string, l limits, do func(*world) error) error {
	directory, err := os.MkdirTemp("", "bench-"+side)
	if err != nil {
		return err
	}
	if !o.keep {
		defer os.RemoveAll(directory)
	} else {
		fmt.Fprintln(os.Stderr, side, directory)
	}
	w := &world{side: side, failed: make(chan error, 1000), sets: o.sets && o.scale == 0}
	kubeconfig := o.kubeconfig
	if kubeconfig == "" {
		if w.server, kubeconfig, err = serve(directory, o.bin); err != nil {
			return err
		}
		defer w.server.end()
	}
	if w.api, err = connect(kubeconfig); err != nil {
		return err
	}
	if o.distance > 0 {
		if kubeconfig, err = remote(kubeconfig, directory, o.distance); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := w.api.prepare(ctx); err != nil {
		return err
	}
	if err := w.start(directory, o.bin, kubeconfig, l); err != nil {
		return err
	}
	defer func() {
		for _, part := range w.parts {
			part.end()
		}
	}()
	go w.api.join(ctx, o.join, w.failed)
	// The first machine waits for caches and election, and is not counted.
	if _, _, err := w.life([]string{"first"}, true); err != nil {
		return err
	}
	return do(w)
}

// start runs the controllers and the driver of the side.
func (w *world) start(directory, bin, kubeconfig string, l limits) error {
	add := func(path, name, ready string, args []string, env ...string) error {
		begin := func() (*process, error) { return start(directory, path, name, ready, args, env...) }
		part, err := begin()
		if err == nil {
			w.parts, w.starts = append(w.parts, part), append(w.starts, begin)
		}
		return err
	}
	var ports [2]int
	for at := range ports {
		port, err := freePort()
		if err != nil {
			return err
		}
		ports[at] = port
	}
	var rate []string
	if l.qps != "" {
		rate = []string{"--kube-api-qps=" + l.qps, "--kube-api-burst=" + l.burst}
	}
	if w.side == mcm {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		for at, name := range []string{machineController, controllerManager} {
			args := append([]string{
				"--control-kubeconfig=" + kubeconfig, "--target-kubeconfig=" + kubeconfig, "--namespace=" + namespace,
				fmt.Sprintf("--port=%d", ports[at]), "--leader-elect=false", "--kube-api-content-type=application/json", "--v=0",
			}, rate...)
			if err := add(self, name, "", args); err != nil {
				return err
			}
		}
		return nil
	}
	token := filepath.Join(directory, "token")
	if err := os.WriteFile(token, []byte("a token of the bench"), 0o600); err != nil {
		return err
	}
	args := append([]string{
		"--kubeconfig", kubeconfig, "--drivers-listen", fmt.Sprintf("127.0.0.1:%d", ports[0]),
		"--metrics-listen", fmt.Sprintf("127.0.0.1:%d", ports[1]), "--driver-token", "fake.ostler.dev=" + token,
	}, rate...)
	if err := add(filepath.Join(bin, "ostler-server"), "ostler-server", "ready", args); err != nil {
		return err
	}
	endpoint := fmt.Sprintf("OSTLER_ENDPOINT=http://127.0.0.1:%d", ports[0])
	return add(filepath.Join(bin, "ostler"), "ostler-driver", "", []string{"driver", "fake"}, endpoint, "OSTLER_TOKEN_FILE="+token)
}

// life has machines made and, if so wanted, deleted again, and says how long each took.
func (w *world) life(names []string, down bool) (up, gone time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	began := time.Now()
	create := func() error {
		if w.isSet(names) {
			return w.api.set(ctx, names[0], len(names))
		}
		return forEach(names, func(name string) error { return w.api.create(ctx, name) })
	}
	if err := w.api.follow(ctx, len(names), create, runs, w.failed); err != nil {
		return 0, 0, fmt.Errorf("%d up: %w", len(names), err)
	}
	up = time.Since(began)
	if !down {
		return up, 0, nil
	}
	gone, err = w.down(names)
	return up, gone, err
}

func (w *world) down(names []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	began := time.Now()
	remove := func() error {
		if w.isSet(names) {
			return w.api.set(ctx, names[0], 0)
		}
		return forEach(names, func(name string) error {
			return w.api.machines.Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	if err := w.api.follow(ctx, len(names), remove, isGone, w.failed); err != nil {
		return 0, fmt.Errorf("%d down: %w", len(names), err)
	}
	took := time.Since(began)
	if w.isSet(names) {
		return took, w.api.sets.Delete(ctx, names[0], metav1.DeleteOptions{})
	}
	return took, nil
}

// isSet says whether machines are those of one set, which has the name of the first.
func (w *world) isSet(names []string) bool { return w.sets && len(names) > 1 }

func (w *world) names(count int) []string {
	w.counter++
	names := make([]string, count)
	for at := range names {
		names[at] = fmt.Sprintf("m%d-%05d", w.counter, at)
	}
	return names
}

func (w *world) single(times int, results *table) error {
	for range times {
		up, gone, err := w.life(w.names(1), true)
		if err != nil {
			return err
		}
		results.add("1 machine, apply to Running, s", w.side, up.Seconds())
		results.add("1 machine, delete to gone, s", w.side, gone.Seconds())
	}
	return nil
}

// many is the life of many machines at the same time.
func (w *world) many(size int, what string, down bool, results *table) error {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	before, err := w.api.writes(ctx)
	if err != nil {
		return err
	}
	cpu, server := w.cpu(), w.serverCPU()
	names := w.names(size)
	up, _, err := w.life(names, false)
	if err != nil {
		return err
	}
	results.add(what+" up, s", w.side, up.Seconds())
	w.memory(what+" running", results)
	if !down {
		return nil
	}
	gone, err := w.down(names)
	if err != nil {
		return err
	}
	results.add(what+" down, s", w.side, gone.Seconds())
	after, err := w.api.writes(ctx)
	if err != nil {
		return err
	}
	each := func(value float64) float64 { return value / float64(size) }
	results.add(what+": CPU of the controllers per life, ms", w.side, each(w.cpu()-cpu)*1000)
	results.add(what+": CPU of the API server per life, ms", w.side, each(w.serverCPU()-server)*1000)
	if after == nil {
		return nil
	}
	sum, events := 0.0, 0.0
	kinds := map[string]float64{}
	for _, agent := range w.agents(after) {
		for resource, count := range after[agent] {
			count -= before[agent][resource]
			sum += count
			kinds[resource] += count
			if resource == "events" || strings.HasPrefix(resource, "events.") {
				events += count
			}
		}
	}
	results.add(what+": accepted writes of the controllers per life", w.side, each(sum))
	results.add(what+": of them events", w.side, each(events))
	for resource, count := range kinds {
		if each(count) >= 0.05 {
			results.add(what+": writes of "+resource, w.side, each(count))
		}
	}
	return nil
}

// agents are those of the side; where the API server tells none apart, what all clients did.
func (w *world) agents(counts map[string]map[string]float64) []string {
	if _, together := counts[""]; together {
		return []string{""}
	}
	return agents[w.side]
}

// again ends one of the processes in an orderly way, and starts it anew.
func (w *world) again(at int) error {
	w.parts[at].end()
	part, err := w.starts[at]()
	if err == nil {
		w.parts[at] = part
	}
	return err
}

func (w *world) memory(when string, results *table) {
	for _, part := range w.parts {
		results.add(fmt.Sprintf("%s: memory of %s, MiB", when, part.name), w.side, part.resident())
	}
	if w.server != nil {
		results.add(when+": memory of the API server, MiB", w.side, w.server.resident())
	}
}

// serverCPU is what the API server used; of one that is not ours, what it says itself, without its database.
func (w *world) serverCPU() float64 {
	if w.server == nil {
		return w.api.cpu(context.Background())
	}
	return w.server.cpu()
}

func (w *world) cpu() float64 {
	sum := 0.0
	for _, part := range w.parts {
		sum += part.cpu()
	}
	return sum
}
