// A control plane on this machine: etcd, kube-apiserver and kube-controller-manager, from their own Go modules, with roles and
// the definitions of a folder. For the tests with kubectl, tests/bench, and whoever wants to see the core on the real thing.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

type settings struct {
	data       string
	listen     string
	repository string
	apiserver  string
	manager    string
}

func main() {
	// Each part is a process of its own, as in a cluster: this executable once more.
	if len(os.Args) > 1 && parts[os.Args[1]] != nil {
		part(os.Args[1], os.Args[2:])
	}
	var o settings
	flag.StringVar(&o.data, "data", "", "where everything is kept, kubeconfig and logs too; by default a new folder that is removed at the end")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:16443", "where kubectl and the core find it; etcd and the manager have the next two ports")
	flag.StringVar(&o.repository, "repository", "../..", "whose definitions are installed: deploy/crds")
	flag.StringVar(&o.apiserver, "apiserver", "", "more flags of kube-apiserver, such as --etcd-compaction-interval=30s")
	flag.StringVar(&o.manager, "manager", "", "more flags of kube-controller-manager")
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
	in := func(name string) string { return filepath.Join(o.data, name) }
	port := make([]string, 3)
	address, err := net.ResolveTCPAddr("tcp", o.listen)
	if err != nil {
		return err
	}
	for i := range port {
		port[i] = fmt.Sprint(address.Port + i)
	}
	if err := secrets(in); err != nil {
		return err
	}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)

	etcd, err := start(in, "etcd", "http://127.0.0.1:"+port[1], in("etcd"))
	if err != nil {
		return err
	}
	defer etcd.stop()
	flags := append([]string{
		"--etcd-servers=http://127.0.0.1:" + port[1],
		"--bind-address=" + address.IP.String(), "--advertise-address=" + address.IP.String(), "--secure-port=" + port[0],
		"--cert-dir=" + o.data, "--client-ca-file=" + in("ca.crt"), "--token-auth-file=" + in("tokens.csv"), "--enable-bootstrap-token-auth",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + in("ca.key"), "--service-account-signing-key-file=" + in("ca.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged",
		// Watches end with the server, not a minute later.
		"--shutdown-watch-termination-grace-period=1s",
	}, strings.Fields(o.apiserver)...)
	server, err := start(in, "kube-apiserver", flags...)
	if err != nil {
		return err
	}
	defer func() { server.stop() }()
	if err := kubeconfig(in, o.listen); err != nil {
		return err
	}
	kubectl := func(command string) ([]byte, error) {
		return exec.CommandContext(stop, "kubectl", append(strings.Fields(command), "--kubeconfig="+in("kubeconfig"))...).CombinedOutput()
	}
	if err := answers(stop, server, kubectl); err != nil {
		return err
	}
	flags = append([]string{
		"--kubeconfig=" + in("kubeconfig"), "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file=" + in("ca.key"), "--root-ca-file=" + in("apiserver.crt"),
		"--cluster-signing-cert-file=" + in("ca.crt"), "--cluster-signing-key-file=" + in("ca.key"),
		"--bind-address=127.0.0.1", "--secure-port=" + port[2],
		// Kubelets that tests simulate post no status, and their pods must not go for it.
		"--controllers=*,bootstrapsigner,tokencleaner,-node-lifecycle-controller",
	}, strings.Fields(o.manager)...)
	manager, err := start(in, "kube-controller-manager", flags...)
	if err != nil {
		return err
	}
	defer manager.stop()
	for _, command := range []string{"apply --server-side --filename=" + filepath.Join(o.repository, "deploy/crds"), "wait --for=condition=Established crds --all"} {
		if told, err := kubectl(command); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", command, err, told)
		}
	}
	fmt.Printf("kubectl --kubeconfig %s get machines\nready\n", in("kubeconfig"))
	for {
		select {
		case <-stop.Done():
			return nil
		case <-etcd.ended:
			return etcd.failure()
		case <-manager.ended:
			return manager.failure()
		case <-server.ended:
			return server.failure()
		case <-again:
			server.stop()
			next, err := start(in, "kube-apiserver", server.flags...)
			if err != nil {
				return err
			}
			server = next
			if err := answers(stop, server, kubectl); err != nil {
				return err
			}
			fmt.Println("started anew")
		}
	}
}

// secrets are made once: one key signs certificates of kubelets and tokens of service accounts, and who has the token is an administrator.
func secrets(in func(string) string) error {
	if err := os.MkdirAll(in(""), 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(in("tokens.csv")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "realapi"}, key)
	if err != nil {
		return err
	}
	of, err := cert.EncodeCertificates(ca)
	if err != nil {
		return err
	}
	token := rand.Text() + ",admin,admin,system:masters\n"
	for _, file := range []struct {
		name string
		text []byte
	}{{"ca.key", pem}, {"ca.crt", of}, {"tokens.csv", []byte(token)}} {
		if err := os.WriteFile(in(file.name), file.text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func kubeconfig(in func(string) string, listen string) error {
	tokens, err := os.ReadFile(in("tokens.csv"))
	if err != nil {
		return err
	}
	token, _, _ := strings.Cut(string(tokens), ",")
	config := api.NewConfig()
	config.Clusters["real"] = &api.Cluster{Server: "https://" + listen, CertificateAuthority: in("apiserver.crt")}
	config.AuthInfos["admin"] = &api.AuthInfo{Token: token}
	config.Contexts["real"] = &api.Context{Cluster: "real", AuthInfo: "admin", Namespace: "default"}
	config.CurrentContext = "real"
	return clientcmd.WriteToFile(*config, in("kubeconfig"))
}

// answers waits until the server does.
func answers(stop context.Context, server *process, kubectl func(string) ([]byte, error)) error {
	for {
		select {
		case <-stop.Done():
			return stop.Err()
		case <-server.ended:
			return server.failure()
		case <-time.After(200 * time.Millisecond):
			if _, err := kubectl("get --raw /readyz"); err == nil {
				return nil
			}
		}
	}
}

// process is a part that runs, with its output in a file.
type process struct {
	command *exec.Cmd
	flags   []string
	log     string
	ended   chan struct{}
}

func start(in func(string) string, name string, flags ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{exec.Command(self, append([]string{name}, flags...)...), flags, in(name + ".log"), make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.command.Stdout, p.command.Stderr = log, log
	// Its own group: an interrupt of the terminal reaches this process, which ends them in order.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) stop() {
	p.command.Process.Signal(syscall.SIGTERM)
	<-p.ended
}

func (p *process) failure() error {
	return fmt.Errorf("%s has ended: %v; see %s", filepath.Base(p.log), p.command.ProcessState, p.log)
}
