package main

import (
	"context"

	"github.com/ironcore-dev/machine-controller-manager-provider-ironcore-metal/pkg/client"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// withoutApply gives the provider a client for an API server that has no server-side apply:
// an object that is applied is created, or merged with the one that is there.
func withoutApply(clients *client.Provider, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	plain, err := ctrl.NewWithWatch(config, ctrl.Options{Scheme: clients.GetClientScheme()})
	if err != nil {
		return err
	}
	clients.SetClient(interceptor.NewClient(plain, interceptor.Funcs{
		Patch: func(ctx context.Context, to ctrl.WithWatch, object ctrl.Object, patch ctrl.Patch, options ...ctrl.PatchOption) error {
			if patch.Type() != types.ApplyPatchType {
				return to.Patch(ctx, object, patch, options...)
			}
			content, err := patch.Data(object)
			if err != nil {
				return err
			}
			if err = to.Create(ctx, object); !errors.IsAlreadyExists(err) {
				return err
			}
			return to.Patch(ctx, object, ctrl.RawPatch(types.MergePatchType, content))
		},
	}))
	return nil
}
