// Providers of Cluster API in one process, for tests of the driver: what its core, an infrastructure and a bootstrap provider do
// for standalone Machines. It also shows the suite what is there, and takes the API away from the driver.
//
//	example run DIR        works on the cluster of KUBECONFIG; DIR gets the files for driver and suite
//	example probe WORD …   see "Reading the cloud" in ../../../conformance/README.md; DIR is in CAPI_EXAMPLE
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	log.SetFlags(0)
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // its finalizers are named as those of Cluster API
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	client := &controllers{dynamic.NewForConfigOrDie(config), "default"}
	switch {
	case len(os.Args) == 3 && os.Args[1] == "run":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		if err := serve(config, os.Args[2]); err != nil {
			log.Fatal(err)
		}
		fmt.Println("ready")
		client.run(ctx)
	case len(os.Args) > 2 && os.Args[1] == "probe":
		answer, err := client.probe(context.Background(), os.Getenv("CAPI_EXAMPLE"), os.Args[2:])
		if err != nil {
			log.Fatal(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatal("example run DIR, or example probe WORD")
	}
}

const (
	outage = "outage"
	known  = "the-driver"
)

// serve lets the driver reach the API through a proxy, which the file `outage` in dir ends after so many changes.
func serve(config *rest.Config, dir string) error {
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the transport brings its own
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(os.Stderr, "proxy: ", 0),
	}
	var mu sync.Mutex
	// By TLS: no client sends its token otherwise.
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+known {
			http.Error(w, "who is that", http.StatusUnauthorized)
			return
		}
		mu.Lock()
		left, broken := -1, false
		if text, err := os.ReadFile(filepath.Join(dir, outage)); err == nil {
			left, err = strconv.Atoi(strings.TrimSpace(string(text)))
			broken = err == nil && left == 0
		}
		if !broken && left > 0 && r.Method != http.MethodGet {
			_ = os.WriteFile(filepath.Join(dir, outage), []byte(strconv.Itoa(left-1)), 0o600)
		}
		mu.Unlock()
		if broken {
			http.Error(w, "the cloud is away", http.StatusServiceUnavailable)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, token := range map[string]string{"secret.yaml": known, "bad-secret.yaml": "nobody"} {
		encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
		secret := map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "capi", "namespace": "default"},
			"data": map[string]any{
				"server": encoded(server.URL), "ca.crt": encoded(string(authority)), "token": encoded(token),
				"namespace": encoded("default"), "userData": encoded("I join"),
			},
		}
		written, err := json.Marshal(secret)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), written, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probe does one word of the suite.
func (c *controllers) probe(ctx context.Context, dir string, words []string) (any, error) {
	switch word := words[0]; {
	case word == "instances":
		return c.seen(ctx, true)
	case word == "resources":
		return c.seen(ctx, false)
	case word == "journal-length":
		list, err := c.at(machines).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return strconv.Atoi(list.GetResourceVersion())
	case word == "add-foreign-tag" && len(words) == 3:
		key, value, _ := strings.Cut(words[2], "=")
		return c.patch(ctx, words[1], map[string]any{"labels": map[string]any{key: value}})
	case word == "remove-instance" && len(words) == 2:
		return c.on(ctx, words[1], func(name string) error { return c.at(machines).Delete(ctx, name, metav1.DeleteOptions{}) })
	case word == "break" && len(words) > 1:
		file := filepath.Join(dir, outage)
		switch words[1] {
		case "off":
			return nil, os.RemoveAll(file)
		case "on":
			return nil, os.WriteFile(file, []byte("0"), 0o600)
		}
		return nil, os.WriteFile(file, []byte(words[2]), 0o600)
	}
	return nil, fmt.Errorf("unknown: %s", strings.Join(words, " "))
}

func (c *controllers) patch(ctx context.Context, id string, metadata map[string]any) (any, error) {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	return c.on(ctx, id, func(name string) error {
		_, err := c.at(machines).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
}

// on does something to the machine with a provider id.
func (c *controllers) on(ctx context.Context, id string, do func(name string) error) (any, error) {
	for name, it := range c.all(ctx, machines) {
		if text(it, "spec", "providerID") == id {
			return name, do(name)
		}
	}
	return nil, fmt.Errorf("no machine has provider id %s", id)
}

// seen are the Machines with a provider id or, of everything that a machine is made of, all.
func (c *controllers) seen(ctx context.Context, whole bool) (any, error) {
	found := []map[string]any{}
	kinds := map[string]map[string]*object{"machine": c.all(ctx, machines)}
	userData := c.all(ctx, secrets)
	if !whole {
		kinds["infrastructure"], kinds["config"], kinds["secret"] = c.all(ctx, infras), c.all(ctx, configs), userData
	}
	for kind, all := range kinds {
		if all == nil {
			return nil, fmt.Errorf("cannot list every %s", kind)
		}
		for name, it := range all {
			notes, id, tags := it.GetAnnotations(), text(it, "spec", "providerID"), it.GetLabels()
			if whole && id == "" || notes["ostler.dev/machine-uid"] == "" && !whole {
				continue
			}
			for key, value := range notes {
				if tags == nil {
					tags = map[string]string{}
				}
				tags[key] = value
			}
			one := map[string]any{
				"id": kind + "/" + name, "kind": kind, "providerId": id, "name": notes["ostler.dev/machine-name"],
				"uid": notes["ostler.dev/machine-uid"], "clusterId": notes["ostler.dev/cluster-id"], "tags": tags,
			}
			if whole {
				if secret := userData[text(it, "spec", "bootstrap", "dataSecretName")]; secret != nil {
					one["userData"] = text(secret, "data", "value")
				}
			} else {
				delete(one, "tags")
			}
			found = append(found, one)
		}
	}
	return found, nil
}
