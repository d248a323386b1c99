// The machine-controller-manager provider of Azure, unmodified, as an Ostler driver.
package main

import (
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/access"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/provider"

	pb "ostler.dev/sdk/go/gen/ostler/driver/v1alpha1"
	"ostler.dev/sdk/go/mcm"
)

// Azure compares its ids without regard to capitals, and not all of its programs write the same ones.
var info = mcm.Info{
	Provider: "azure.ostler.dev", Classes: "Azure", Version: "0.21.0", FindsByName: true,
	ProviderIDs: pb.ProviderIdComparison_PROVIDER_ID_COMPARISON_CASE_INSENSITIVE,
}

func main() {
	mcm.Main(provider.NewDefaultDriver(access.NewDefaultAccessFactory()), info)
}
