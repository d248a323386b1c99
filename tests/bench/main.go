// The bench compares machine-controller-manager (MCM) with Ostler on one API server, in rounds that take turns.
//
// One program, three roles, by the name that it is started with: API servers count requests by the name of the program.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

type options struct {
	rounds     int
	single     int
	sizes      []int
	limited    int
	sets       bool
	bin        string
	kubeconfig string
	keep       bool
	sides      []string
	scale      int
	rest       time.Duration
	down       bool
	clients    int
	join       time.Duration
	distance   time.Duration
}

func main() {
	var err error
	switch filepath.Base(os.Args[0]) {
	case machineController:
		err = runMachineController()
	case controllerManager:
		err = runControllerManager()
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	var sizes, sides string
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each side; they take turns")
	flag.IntVar(&o.single, "single", 3, "lives of one machine in each round")
	flag.StringVar(&sizes, "sizes", "300,1000", "machines at the same time, without limits of requests")
	flag.BoolVar(&o.sets, "sets", false, "the machines at the same time are those of one MachineSet, and not made one by one")
	flag.IntVar(&o.limited, "limited", 300, "machines with --kube-api-qps=20 --kube-api-burst=30; 0 for none")
	flag.StringVar(&o.bin, "bin", "../../target/release", "where ostler and ostler-server are")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "an API server with Ostler's definitions; by default, one of ours for each measurement")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory with logs")
	flag.StringVar(&sides, "sides", "ostler,mcm", "which sides run")
	flag.IntVar(&o.scale, "scale", 0, "instead of the rounds, so many machines of each side: up, at rest, down")
	flag.DurationVar(&o.rest, "rest", 10*time.Minute, "with -scale: how long they are looked at when they run")
	flag.BoolVar(&o.down, "down", true, "with -scale: delete them at the end")
	flag.DurationVar(&o.join, "join", 25*time.Millisecond, "how long after the provider id of a machine its Node appears, and then until the Node is ready")
	flag.DurationVar(&o.distance, "distance", 0, "how much later each request of the controllers gets to the API server, and so each answer back")
	flag.IntVar(&o.clients, "server", 0, "instead of all else, the API server alone: status writes of so many clients, and lists of the pods of a Node")
	flag.Parse()
	for _, size := range strings.Split(sizes, ",") {
		number, err := strconv.Atoi(size)
		if err != nil {
			return err
		}
		o.sizes = append(o.sizes, number)
	}
	o.sides = strings.Split(sides, ",")
	results := newTable()
	if o.clients > 0 {
		if err := server(o, results); err != nil {
			return err
		}
		fmt.Print(results.markdown([]string{"server"}))
		return nil
	}
	if o.scale > 0 {
		for _, side := range o.sides {
			if err := scale(o, side, results); err != nil {
				return fmt.Errorf("%s: %w", side, err)
			}
		}
		fmt.Print(results.markdown(o.sides))
		return nil
	}
	for round := range o.rounds {
		for at := range o.sides {
			// Who begins takes turns, too.
			side := o.sides[(at+round)%len(o.sides)]
			if err := measure(o, side, results); err != nil {
				return fmt.Errorf("round %d of %s: %w", round+1, side, err)
			}
		}
	}
	fmt.Print(results.markdown(o.sides))
	return nil
}
