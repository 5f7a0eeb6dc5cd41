package natstest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Solo is one server with JetStream behind a front, so its address survives restarts. One goroutine may use it
// at a time.
type Solo struct {
	front  *link
	server *server.Server // nil while stopped
}

// NewSolo returns a stopped server. It ends with the test.
func NewSolo(t *testing.T) *Solo {
	t.Helper()
	s := &Solo{front: newLink(t)}
	t.Cleanup(s.Stop)
	return s
}

// StartSolo starts a server with the content of the directory.
func StartSolo(t *testing.T, directory string) *Solo {
	t.Helper()
	s := NewSolo(t)
	s.Start(t, directory)
	return s
}

// URL returns the client address.
func (s *Solo) URL() string { return "nats://" + s.front.address() }

// Start starts the stopped server with the content of the directory.
func (s *Solo) Start(t *testing.T, directory string) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: directory, NoSigs: true, NoLog: true,
		Cluster: server.ClusterOpts{NoAdvertise: true}, // clients must use the front
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	s.server = ns
	if !ns.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	s.front.forward(ns.Addr().String())
}

// Stop stops a running server.
func (s *Solo) Stop() {
	if s.server == nil {
		return
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
	s.server = nil
	s.front.disconnect()
}
