package main

import (
	"context"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// parts are the commands of a control plane, by name.
var parts = map[string]func() *cobra.Command{
	"etcd":                    etcd,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": manager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// part runs one, and ends this process with it.
func part(name string, args []string) {
	command := parts[name]()
	command.SetArgs(args)
	os.Exit(cli.Run(command))
}

// etcd takes its address and its folder.
func etcd() *cobra.Command {
	return &cobra.Command{Use: "etcd ADDRESS FOLDER", Args: cobra.ExactArgs(2), RunE: func(_ *cobra.Command, args []string) error {
		clients, err := url.Parse(args[0])
		if err != nil {
			return err
		}
		config := embed.NewConfig()
		config.Dir, config.LogLevel = args[1], "warn"
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
		anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
		config.ListenPeerUrls, config.AdvertisePeerUrls = anywhere, anywhere
		config.InitialCluster = config.InitialClusterFromName(config.Name)
		config.QuotaBackendBytes = 8 << 30
		store, err := embed.StartEtcd(config)
		if err != nil {
			return err
		}
		defer store.Close()
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
		select {
		case <-stop:
			return nil
		case err := <-store.Err():
			return err
		}
	}}
}
