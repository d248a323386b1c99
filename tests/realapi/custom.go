package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/util/wait"
	names "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

// custom is the part of kube-apiserver that serves custom resources.
type custom struct {
	cancel context.CancelFunc
	ended  chan error
	access *rest.Config
	// What it serves, as an APIGroupDiscoveryList: kube-apiserver's aggregator has it from here, too.
	groups http.Handler
}

func startCustom(o settings, etcd, kubeconfig string) (*custom, error) {
	wanted := options.NewCustomResourceDefinitionsServerOptions(io.Discard, os.Stderr)
	flags := pflag.NewFlagSet("custom", pflag.ContinueOnError)
	wanted.AddFlags(flags)
	err := flags.Parse([]string{
		"--etcd-servers=http://" + etcd,
		fmt.Sprintf("--etcd-compaction-interval=%s", o.compaction),
		"--cert-dir=" + filepath.Join(o.data, "certificates"),
		// Namespaces are those of `ostler up`.
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--authentication-skip-lookup",
		// Watches end with the server, not a minute later.
		"--shutdown-watch-termination-grace-period=1s",
		// It does not serve what these need.
		"--enable-priority-and-fairness=false",
		"--disable-admission-plugins=MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook",
	})
	if err != nil {
		return nil, err
	}
	serving := wanted.RecommendedOptions.SecureServing
	if serving.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	serving.BindPort = serving.Listener.Addr().(*net.TCPAddr).Port
	if err := wanted.Complete(); err != nil {
		return nil, err
	}
	if err := wanted.Validate(); err != nil {
		return nil, err
	}
	config, err := wanted.Config()
	if err != nil {
		return nil, err
	}
	config.GenericConfig.OpenAPIConfig = server.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, names.NewDefinitionNamer(apiserver.Scheme))
	made, err := config.Complete().New(server.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := made.GenericAPIServer
	c := &custom{cancel, make(chan error, 1), served.LoopbackClientConfig, served.AggregatedDiscoveryGroupManager}
	go func() { c.ended <- served.PrepareRun().RunWithContext(ctx) }()
	client, err := clientset.NewForConfig(c.access)
	if err != nil {
		return nil, err
	}
	return c, wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-c.ended:
			return false, fmt.Errorf("the server has ended: %w", err)
		default:
			return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
		}
	})
}

func (c *custom) stop() {
	c.cancel()
	<-c.ended
}
