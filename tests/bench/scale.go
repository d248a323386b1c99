package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// changes of one machine, to see what one costs.
const changes = 100

// scale has many machines made, looks at them at rest, starts the controllers anew, and deletes the machines if so
// wanted. Nodes have no heartbeats: what is measured is what the controllers do by themselves.
func scale(o options, side string, results *table) error {
	return with(o, side, limits{}, func(w *world) error {
		names, what := w.names(o.scale), fmt.Sprint(o.scale)
		busy, server := w.cpu(), w.serverCPU()
		up, _, err := w.life(names, false)
		if err != nil {
			return err
		}
		results.add(what+" up, s", side, up.Seconds())
		results.add(what+" up: CPU of the controllers, s", side, w.cpu()-busy)
		results.add(what+" up: CPU of the API server, s", side, w.serverCPU()-server)
		w.memory(what+" running", results)

		busy, server = w.cpu(), w.serverCPU()
		time.Sleep(o.rest)
		share := func(cpu float64) float64 { return 100 * cpu / o.rest.Seconds() }
		results.add(fmt.Sprintf("%s at rest for %s: CPU of the controllers, %% of one", what, o.rest), side, share(w.cpu()-busy))
		results.add(fmt.Sprintf("%s at rest for %s: CPU of the API server, %% of one", what, o.rest), side, share(w.serverCPU()-server))
		w.memory(fmt.Sprintf("%s at rest for %s", what, o.rest), results)
		if err := w.change(names[0], what, results); err != nil {
			return err
		}

		if side == ostler {
			began := time.Now()
			if err := w.again(0); err != nil {
				return err
			}
			results.add(what+": start of the core until it leads, s", side, time.Since(began).Seconds())
			results.add(what+": CPU of the core until then, s", side, w.parts[0].cpu())
			w.memory(what+", core started anew", results)
		}
		if !o.down {
			return nil
		}
		busy, server = w.cpu(), w.serverCPU()
		gone, err := w.down(names)
		if err != nil {
			return err
		}
		results.add(what+" down, s", side, gone.Seconds())
		results.add(what+" down: CPU of the controllers, s", side, w.cpu()-busy)
		results.add(what+" down: CPU of the API server, s", side, w.serverCPU()-server)
		return nil
	})
}

// change annotates one machine again and again, with pauses, and says what one time costs the controllers.
func (w *world) change(name, what string, results *table) error {
	const pause = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	before := w.cpu()
	time.Sleep(changes * pause)
	idle := w.cpu() - before
	before = w.cpu()
	for change := range changes {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"bench":"%d"}}}`, change)
		if _, err := w.api.machines.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	results.add(what+": CPU of the controllers for a change of one, ms", w.side, (w.cpu()-before-idle)/changes*1000)
	return nil
}
