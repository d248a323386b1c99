// The machine-controller-manager provider of ironcore-metal, unmodified, as an Ostler driver: servers are claimed with
// ServerClaims in the cluster that METAL_KUBECONFIG names. With METAL_WITHOUT_APPLY=true that cluster needs no server-side
// apply.
package main

import (
	"context"
	"log"
	"os"

	"github.com/ironcore-dev/machine-controller-manager-provider-ironcore-metal/pkg/client"
	"github.com/ironcore-dev/machine-controller-manager-provider-ironcore-metal/pkg/cmd"
	"github.com/ironcore-dev/machine-controller-manager-provider-ironcore-metal/pkg/metal"

	"ostler.dev/sdk/go/mcm"
)

func main() {
	kubeconfig := os.Getenv("METAL_KUBECONFIG")
	clients, namespace, err := client.NewProviderAndNamespace(context.Background(), kubeconfig)
	if err == nil && os.Getenv("METAL_WITHOUT_APPLY") == "true" {
		err = withoutApply(clients, kubeconfig)
	}
	if err != nil {
		log.Fatal(err)
	}
	mcm.Main(metal.NewDriver(clients, namespace, cmd.NodeNamePolicyServerClaimName),
		mcm.Info{Provider: "ironcore-metal.ostler.dev", Classes: "ironcore-metal", Version: "0.2.0", FindsByName: true})
}
