// Serves the custom resources of a folder as kube-apiserver does, with the library that it is made of and etcd, and all
// else from `ostler up`: one API server for kubectl, the core and tests/bench.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type settings struct {
	data       string
	listen     string
	bin        string
	repository string
	compaction time.Duration
	requests   string
}

func main() {
	var o settings
	flag.StringVar(&o.data, "data", "", "where everything is kept, kubeconfig too; by default a new folder that is removed at the end")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:16443", "where kubectl and the core find it")
	flag.StringVar(&o.bin, "bin", "../../target/release", "where ostler is")
	flag.StringVar(&o.repository, "repository", "../..", "whose definitions are installed: deploy/crds")
	flag.DurationVar(&o.compaction, "compaction", 5*time.Minute, "how often etcd forgets old versions, as --etcd-compaction-interval of kube-apiserver")
	flag.StringVar(&o.requests, "requests", "", "a file for a line of each request: its begin, milliseconds, code, method, path and user agent")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(o settings) error {
	if o.data == "" {
		data, err := os.MkdirTemp("", "realapi")
		if err != nil {
			return err
		}
		defer os.RemoveAll(data)
		o.data = data
	}
	if err := os.MkdirAll(o.data, 0o700); err != nil {
		return err
	}
	ended, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)

	core, err := embedded(ended, o)
	if err != nil {
		return err
	}
	defer core.stop()
	store, err := etcd(o.data)
	if err != nil {
		return err
	}
	defer store.Close()
	custom, err := startCustom(o, store.Clients[0].Addr().String(), core.kubeconfig)
	if err != nil {
		return err
	}
	defer func() { custom.stop() }()
	front, err := listen(o, core.access, custom)
	if err != nil {
		return err
	}
	defer front.listener.Close()
	for _, command := range []string{"apply --server-side --filename=" + filepath.Join(o.repository, "deploy/crds"), "wait --for=condition=Established crds --all"} {
		kubectl := exec.CommandContext(ended, "kubectl", append(strings.Fields(command), "--kubeconfig="+front.kubeconfig)...)
		if told, err := kubectl.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", kubectl, err, told)
		}
	}
	fmt.Printf("kubectl --kubeconfig %s get machines\nready\n", front.kubeconfig)
	for {
		select {
		case <-ended.Done():
			return nil
		case <-core.ended:
			return fmt.Errorf("ostler up has ended: see %s", core.log)
		case <-again:
			// As a kube-apiserver that is started anew: it begins with an empty watch cache.
			custom.stop()
			if custom, err = startCustom(o, store.Clients[0].Addr().String(), core.kubeconfig); err != nil {
				return err
			}
			if err := front.serve(custom); err != nil {
				return err
			}
			fmt.Println("started anew")
		}
	}
}

// up is `ostler up` without core and drivers.
type up struct {
	command    *exec.Cmd
	ended      chan struct{}
	log        string
	kubeconfig string
	access     *rest.Config
}

func embedded(ctx context.Context, o settings) (*up, error) {
	data := filepath.Join(o.data, "ostler")
	core := &up{ended: make(chan struct{}), log: filepath.Join(o.data, "ostler.log"), kubeconfig: filepath.Join(data, "kubeconfig")}
	log, err := os.Create(core.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	core.command = exec.Command(filepath.Join(o.bin, "ostler"), "up", "--core", "none", "--driver", "none", "--data-dir", data, "--api-listen", "127.0.0.1:0")
	core.command.Stdout, core.command.Stderr = log, log
	// Its own group: an interrupt of the terminal ends it last.
	core.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := core.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		core.command.Wait()
		close(core.ended)
	}()
	for ctx.Err() == nil {
		select {
		case <-core.ended:
			return nil, fmt.Errorf("ostler up has ended: see %s", core.log)
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
			if text, _ := os.ReadFile(core.log); bytes.Contains(text, []byte("\nready")) {
				core.access, err = clientcmd.BuildConfigFromFlags("", core.kubeconfig)
				return core, err
			}
		}
	}
	core.stop()
	return nil, ctx.Err()
}

func (core *up) stop() {
	core.command.Process.Signal(syscall.SIGTERM)
	<-core.ended
}

func etcd(data string) (*embed.Etcd, error) {
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config := embed.NewConfig()
	config.Dir, config.LogLevel = filepath.Join(data, "etcd"), "error"
	config.ListenClientUrls, config.AdvertiseClientUrls = anywhere, anywhere
	config.ListenPeerUrls, config.AdvertisePeerUrls = anywhere, anywhere
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	store, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-store.Server.ReadyNotify():
		return store, nil
	case err := <-store.Err():
		return nil, err
	}
}
