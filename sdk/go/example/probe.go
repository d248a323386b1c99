package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
)

// resource is what costs money: an instance of this cloud has no parts.
type resource struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	UID       string `json:"uid"`
	ClusterID string `json:"clusterId"`
}

// probe answers `go-driver probe WORD` and ends the program: it shows the suite what is really in the cloud. See
// "Reading the cloud" in ../../conformance/README.md.
func probe() {
	if len(os.Args) < 3 || os.Args[1] != "probe" {
		return
	}
	var answer any
	_, err := inFile(func(c *cloud) error { // also while the cloud answers nobody else
		switch word := os.Args[2]; word {
		case "instances":
			answer = c.find(func(*instance) bool { return true })
		case "resources":
			all := []resource{}
			for _, it := range c.Instances {
				all = append(all, resource{it.ID, "instance", it.UID, it.Cluster})
			}
			answer = all
		case "journal-length":
			answer = c.Changes
		case "add-foreign-tag":
			key, value, _ := strings.Cut(os.Args[4], "=")
			for _, it := range c.find(func(it *instance) bool { return it.ID == os.Args[3] }) {
				it.Tags[key] = value
			}
		case "remove-instance":
			c.remove(func(it *instance) bool { return it.ID == os.Args[3] })
		case "break":
			return breakCloud(os.Args[3:])
		default:
			return fmt.Errorf("probe knows instances, resources, journal-length, add-foreign-tag, remove-instance, break; not %s", word)
		}
		return nil
	})
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answer)
	}
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}

// breakCloud takes the cloud away, `on` or `after N` changes more, or brings it back, `off`.
func breakCloud(how []string) error {
	switch {
	case len(how) == 1 && how[0] == "off":
		if err := os.Remove(cloudFile() + ".outage"); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	case len(how) == 1 && how[0] == "on":
		return breakAfter(0)
	case len(how) == 2 && how[0] == "after":
		changes, err := strconv.Atoi(how[1])
		if err != nil {
			return err
		}
		return breakAfter(changes)
	}
	return errors.New("break takes on, off, or after and a number")
}
