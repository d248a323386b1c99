package main

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	discovery "k8s.io/api/apidiscovery/v2"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// front is what clients see: both servers as one.
type front struct {
	listener   net.Listener
	kubeconfig string
	core       *backend
	custom     atomic.Pointer[backend]
	requests   *log.Logger
	// Who has this token is an administrator.
	token string
}

// backend is one of the servers, with the rights of an administrator.
type backend struct {
	*httputil.ReverseProxy
	transport http.RoundTripper
	address   *url.URL
	discovery http.Handler
}

func toward(access *rest.Config, discovery http.Handler) (*backend, error) {
	address, err := url.Parse(access.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(access)
	if err != nil {
		return nil, err
	}
	return &backend{address: address, transport: transport, discovery: discovery, ReverseProxy: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(address) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			// A client that has gone is no error.
			if r.Context().Err() == nil {
				log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}}, nil
}

func listen(o settings, core *rest.Config, custom *custom) (*front, error) {
	f := &front{kubeconfig: filepath.Join(o.data, "kubeconfig"), token: rand.Text()}
	// An earlier run had these, too: its clients go on.
	if earlier, err := clientcmd.BuildConfigFromFlags("", filepath.Join(o.data, "kubeconfig")); err == nil {
		f.token = earlier.BearerToken
	}
	if o.requests != "" {
		file, err := os.Create(o.requests)
		if err != nil {
			return nil, err
		}
		f.requests = log.New(file, "", 0)
	}
	var err error
	if f.core, err = toward(core, nil); err != nil {
		return nil, err
	}
	if err := f.serve(custom); err != nil {
		return nil, err
	}
	certificates := filepath.Join(o.data, "certificates")
	certificate, key, err := cert.GenerateSelfSignedCertKeyWithFixtures("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil, certificates)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["realapi"] = &clientcmdapi.Cluster{Server: "https://" + o.listen, CertificateAuthorityData: certificate}
	config.AuthInfos["administrator"] = &clientcmdapi.AuthInfo{Token: f.token}
	config.Contexts["realapi"] = &clientcmdapi.Context{Cluster: "realapi", AuthInfo: "administrator"}
	config.CurrentContext = "realapi"
	if err := clientcmd.WriteToFile(*config, f.kubeconfig); err != nil {
		return nil, err
	}
	if f.listener, err = net.Listen("tcp", o.listen); err != nil {
		return nil, err
	}
	server := &http.Server{Handler: f, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ErrorLog: log.New(io.Discard, "", 0)}
	go server.ServeTLS(f.listener, "", "")
	return f, nil
}

// serve has custom resources served by this server from now on.
func (f *front) serve(custom *custom) error {
	server, err := toward(custom.access, custom.groups)
	if err == nil {
		f.custom.Store(server)
	}
	return err
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen, began := &watched{ResponseWriter: w}, time.Now()
	defer func() {
		if f.requests != nil {
			f.requests.Printf("%s %d %d %s %s %s", began.Format(time.RFC3339Nano), time.Since(began).Milliseconds(), seen.code, r.Method, r.URL.RequestURI(), r.UserAgent())
		}
	}()
	authorization := r.Header.Get("Authorization")
	r.Header.Del("Authorization")
	switch path := r.URL.Path; {
	case authorization != "Bearer "+f.token:
		http.Error(seen, "the token of the kubeconfig is needed", http.StatusUnauthorized)
	case path == "/apis" || path == "/openapi/v3":
		f.both(seen, r)
	case path == "/metrics" || isCustom(groupOf(path)):
		f.custom.Load().ServeHTTP(seen, r)
	default:
		f.core.ServeHTTP(seen, r)
	}
}

// watched remembers the code of an answer.
type watched struct {
	http.ResponseWriter
	code int
}

func (w *watched) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets the proxy flush.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// groupOf is the API group of a path, if it has one.
func groupOf(path string) string {
	path = strings.TrimPrefix(path, "/openapi/v3")
	rest, is := strings.CutPrefix(path, "/apis/")
	if !is {
		return ""
	}
	group, _, _ := strings.Cut(rest, "/")
	return group
}

// isCustom are all groups but those of Kubernetes, and that of the definitions.
func isCustom(group string) bool {
	return group == "apiextensions.k8s.io" || strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// both answers with what both servers have, each its own groups: an APIGroupList has them in groups, an
// APIGroupDiscoveryList in items, and the index of OpenAPI in paths.
func (f *front) both(w http.ResponseWriter, r *http.Request) {
	answer, kind, err := f.core.get(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	custom := f.custom.Load()
	if paths, is := answer["paths"].(map[string]any); is {
		more, _, err := custom.get(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		maps.DeleteFunc(paths, func(path string, _ any) bool { return isCustom(groupOf("/" + path)) })
		for path, index := range more["paths"].(map[string]any) {
			if isCustom(groupOf("/" + path)) {
				paths[path] = index
			}
		}
	} else if groups, is := answer["groups"].([]any); is {
		answer["groups"] = slices.DeleteFunc(groups, func(group any) bool { return isCustom(group.(map[string]any)["name"].(string)) })
		for _, each := range custom.groups(r) {
			group := meta.APIGroup{Name: each.Name}
			for _, version := range each.Versions {
				group.Versions = append(group.Versions, meta.GroupVersionForDiscovery{GroupVersion: each.Name + "/" + version.Version, Version: version.Version})
			}
			group.PreferredVersion = group.Versions[0]
			answer["groups"] = append(answer["groups"].([]any), group)
		}
	} else if groups, is := answer["items"].([]any); is {
		answer["items"] = slices.DeleteFunc(groups, func(group any) bool {
			return isCustom(group.(map[string]any)["metadata"].(map[string]any)["name"].(string))
		})
		for _, each := range custom.groups(r) {
			answer["items"] = append(answer["items"].([]any), each)
		}
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	json.NewEncoder(w).Encode(answer)
}

// get has the server answer, and reads the answer.
func (b *backend) get(r *http.Request) (answer map[string]any, kind string, err error) {
	asked := r.Clone(r.Context())
	asked.URL.Scheme, asked.URL.Host, asked.RequestURI = b.address.Scheme, b.address.Host, ""
	asked.Header.Del("Accept-Encoding")
	asked.Header.Del("If-None-Match")
	got, err := b.transport.RoundTrip(asked)
	if err != nil {
		return nil, "", err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("%s says %s", r.URL.Path, got.Status)
	}
	return answer, got.Header.Get("Content-Type"), json.NewDecoder(got.Body).Decode(&answer)
}

// groups are those that the server of custom resources serves.
func (b *backend) groups(r *http.Request) []discovery.APIGroupDiscovery {
	asked := r.Clone(r.Context())
	asked.Header = http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}
	answer := httptest.NewRecorder()
	b.discovery.ServeHTTP(answer, asked)
	var list discovery.APIGroupDiscoveryList
	json.NewDecoder(answer.Body).Decode(&list)
	return list.Items
}
