package main

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// remote puts the API server at a distance: it listens for clients, passes on what they send and get so much later, and
// returns a kubeconfig that names it.
func remote(kubeconfig, directory string, delay time.Duration) (string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil {
			return "", err
		}
		go accept(listener, server.Host, delay)
		// Certificates have names, no ports.
		cluster.Server = "https://" + listener.Addr().String()
		break
	}
	file := filepath.Join(directory, "remote.kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

func accept(listener net.Listener, server string, delay time.Duration) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		backend, err := net.Dial("tcp", server)
		if err != nil {
			client.Close()
			continue
		}
		go later(backend, client, delay)
		go later(client, backend, delay)
	}
}

// chunk is what came at once, and when it goes on.
type chunk struct {
	data []byte
	due  time.Time
}

// later copies one way. What comes while earlier bytes wait does not wait for them: a distance limits no throughput.
func later(to, from net.Conn, delay time.Duration) {
	under := make(chan chunk, 1024)
	go func() {
		defer to.Close()
		for one := range under {
			time.Sleep(time.Until(one.due))
			if _, err := to.Write(one.data); err != nil {
				from.Close()
			}
		}
	}()
	defer close(under)
	buffer := make([]byte, 64<<10)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			under <- chunk{append([]byte(nil), buffer[:count]...), time.Now().Add(delay)}
		}
		if err != nil {
			if err != io.EOF {
				from.Close()
			}
			return
		}
	}
}
