package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// cloud is the infrastructure of this example: a JSON file beside the program.
type cloud struct {
	// Changes counts what changed the cloud.
	Changes   int         `json:"changes"`
	Instances []*instance `json:"instances"`
	// Left is how many changes the cloud takes before it answers nothing, if that has an end.
	Left *int `json:"left,omitempty"`
}

type instance struct {
	ID          string            `json:"providerId"`
	Name        string            `json:"name"`
	Tags        map[string]string `json:"tags"`
	UserData    []byte            `json:"userData"`
	Initialized bool              `json:"initialized"`
}

func (it *instance) has(tags map[string]string) bool {
	for key, value := range tags {
		if it.Tags[key] != value {
			return false
		}
	}
	return true
}

var errAway = errors.New("the cloud does not answer")

// inCloud runs do on the cloud, alone, and keeps what it changed unless it fails.
func inCloud(do func(*cloud) error) error {
	return inFile(func(c *cloud) error {
		if c.Left != nil && *c.Left == 0 {
			return errAway
		}
		before, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if err := do(c); err != nil {
			return err
		}
		if after, err := json.Marshal(c); err != nil || bytes.Equal(before, after) {
			return err
		}
		c.Changes++
		if c.Left != nil {
			*c.Left--
		}
		return nil
	})
}

func inFile(do func(*cloud) error) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(program), "cloud.data")
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var c cloud
	if len(text) > 0 {
		if err := json.Unmarshal(text, &c); err != nil {
			return err
		}
	}
	if err := do(&c); err != nil {
		return err
	}
	if text, err = json.Marshal(c); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// probe answers `PROGRAM probe WORD` and ends the program: "Reading the cloud" in ../../../conformance/README.md.
func probe() {
	if len(os.Args) < 3 || os.Args[1] != "probe" {
		return
	}
	var answer any
	err := inFile(func(c *cloud) error {
		switch word := os.Args[2]; {
		case word == "instances":
			answer = append([]*instance{}, c.Instances...)
		case word == "journal-length":
			answer = c.Changes
		case word == "remove-instance" && len(os.Args) > 3:
			c.Changes++
			c.Instances = slices.DeleteFunc(c.Instances, func(it *instance) bool { return it.ID == os.Args[3] })
		case word == "break" && len(os.Args) > 3 && os.Args[3] == "off":
			c.Left = nil
		case word == "break" && len(os.Args) > 3:
			left, _ := strconv.Atoi(os.Args[len(os.Args)-1]) // `break on` is 0
			c.Left = &left
		default:
			return errors.New("probe knows instances, journal-length, remove-instance, break")
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
