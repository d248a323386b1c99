package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is longer than anything takes here that works.
const patience = 2 * time.Minute

// process is one that the bench started.
type process struct {
	name    string
	command *exec.Cmd
}

// start runs a program, its output into a file; if ready is given, until a line begins with it.
func start(directory, path, name, ready string, args []string, env ...string) (*process, error) {
	file := filepath.Join(directory, name+".log")
	log, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := &exec.Cmd{Path: path, Args: append([]string{name}, args...), Stdout: log, Stderr: log, Env: append(os.Environ(), env...)}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{name, command}
	if ready == "" {
		return p, nil
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if says(file, ready) {
			return p, nil
		}
		if command.Process.Signal(syscall.Signal(0)) != nil {
			break
		}
	}
	p.end()
	return nil, fmt.Errorf("%s did not get ready: see %s", name, file)
}

func says(file, ready string) bool {
	log, err := os.Open(file)
	if err != nil {
		return false
	}
	defer log.Close()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ready) {
			return true
		}
	}
	return false
}

// end asks the process to end, and waits for it.
func (p *process) end() {
	p.command.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		p.command.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		p.command.Process.Kill()
		<-ended
	}
}

// cpu is the time that processors worked for the process, in seconds.
func (p *process) cpu() float64 {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// resident is the memory that the process has, in MiB.
func (p *process) resident() float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	for _, line := range strings.Split(string(status), "\n") {
		if value, is := strings.CutPrefix(line, "VmRSS:"); is {
			kib, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib / 1024
		}
	}
	return 0
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
