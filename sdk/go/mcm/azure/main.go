// The machine-controller-manager provider of Azure, unmodified, as an Ostler driver.
package main

import (
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/access"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/provider"

	"ostler.dev/sdk/go/mcm"
)

var info = mcm.Info{Provider: "azure.ostler.dev", Classes: "Azure", Version: "0.21.0", FindsByName: true}

func main() {
	mcm.Main(provider.NewDefaultDriver(access.NewDefaultAccessFactory()), info)
}
