// Package natstest runs NATS servers in the process of a test: one server, or a cluster whose nodes can be
// killed, lose their disks, and be restored from older copies.
//
//	client ──▶ front 0 ──▶ node 0 ──▶ link 0→1 ──▶ node 1
//	                          └────▶ link 0→2 ──▶ node 2   …
//
// Clients and nodes reach a node through links only. A link has a fixed address for the whole test, so a node
// may listen on any free port after a restart.
package natstest

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// patience bounds every wait. Servers elect a leader within nine seconds on an idle machine.
const patience = 2 * time.Minute

// poll is the pause between two polls.
const poll = 20 * time.Millisecond

// Cluster is a cluster of servers with JetStream. One goroutine may use it at a time. Nodes are counted from 0.
type Cluster struct {
	owner  *testing.T
	nodes  []*node
	copies []string // copies of the store directories
}

type node struct {
	server *server.Server // nil while stopped
	store  string
	front  *link   // for clients
	links  []*link // to the routes of the other nodes; nil for itself
}

// Start starts a cluster of n nodes and waits for its leader. The cluster ends with the test.
func Start(t *testing.T, n int) *Cluster {
	t.Helper()
	c := &Cluster{owner: t}
	for range n {
		c.nodes = append(c.nodes, &node{store: t.TempDir(), links: make([]*link, n)})
	}
	for _, from := range c.nodes {
		from.front = newLink(t)
		for i, to := range c.nodes {
			if to != from {
				from.links[i] = newLink(t)
			}
		}
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.shutDown(i)
		}
	})
	for i := range c.nodes {
		c.start(t, i)
	}
	c.Ready(t)
	return c
}

// URL returns the client addresses of the nodes.
func (c *Cluster) URL() string {
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, "nats://"+n.front.address())
	}
	return strings.Join(urls, ",")
}

// NodeURL returns the client address of one node.
func (c *Cluster) NodeURL(i int) string { return "nats://" + c.nodes[i].front.address() }

// Start starts a stopped node with the content of its disk.
func (c *Cluster) Start(t *testing.T, i int) {
	t.Helper()
	c.start(t, i)
}

func (c *Cluster) start(t *testing.T, i int) {
	t.Helper()
	n := c.nodes[i]
	var routes []*url.URL
	for _, l := range n.links {
		if l != nil {
			routes = append(routes, &url.URL{Scheme: "nats-route", Host: l.address()})
		}
	}
	ns, err := server.NewServer(&server.Options{
		ServerName: fmt.Sprint("node-", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
		JetStream: true, StoreDir: n.store, JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 1 << 30,
		// Advertise an unused address, port 1, so that nodes use the links only.
		Cluster: server.ClusterOpts{
			Name: "natstest", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoAdvertise: true, Advertise: "127.0.0.1:1",
		},
		Routes: routes, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatalf("node %d: %v", i, err)
	}
	ns.Start()
	n.server = ns
	if !ns.ReadyForConnections(patience) {
		t.Fatalf("node %d is not ready", i)
	}
	n.front.forward(ns.Addr().String())
	for j, other := range c.nodes {
		if j == i {
			continue
		}
		other.links[i].forward(ns.ClusterAddr().String())
		if other.server != nil {
			n.links[j].forward(other.server.ClusterAddr().String())
		}
	}
}

// isolate disconnects a node from the other nodes and from clients.
func (c *Cluster) isolate(i int) {
	c.nodes[i].front.disconnect()
	for j, other := range c.nodes {
		if j != i {
			c.nodes[i].links[j].disconnect()
			other.links[i].disconnect()
		}
	}
}

func (c *Cluster) shutDown(i int) {
	if ns := c.nodes[i].server; ns != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		c.nodes[i].server = nil
	}
}

// Kill ends a node like kill -9: it disappears for others, and its disk lacks everything that an orderly
// shutdown would write.
func (c *Cluster) Kill(t *testing.T, i int) {
	t.Helper()
	c.isolate(i)
	left := c.copyOf(t, c.nodes[i].store)
	c.shutDown(i)
	c.nodes[i].store = left
}

// RemoveStore replaces the disk of a stopped node by an empty one.
func (c *Cluster) RemoveStore(i int) { c.nodes[i].store = c.owner.TempDir() }

// Snapshot copies the disks of all nodes. There must be no writes meanwhile.
func (c *Cluster) Snapshot(t *testing.T) {
	t.Helper()
	c.copies = nil
	for _, n := range c.nodes {
		c.copies = append(c.copies, c.copyOf(t, n.store))
	}
}

// Restore kills all nodes and restarts them with the copied disks, like a power cut that lost all writes since.
func (c *Cluster) Restore(t *testing.T) {
	t.Helper()
	for i := range c.nodes {
		c.isolate(i)
	}
	for i, n := range c.nodes {
		c.shutDown(i)
		n.store = c.copyOf(t, c.copies[i])
	}
	for i := range c.nodes {
		c.start(t, i)
	}
	c.Ready(t)
}

// copyOf copies a directory in use, without files that disappear meanwhile.
func (c *Cluster) copyOf(t *testing.T, directory string) string {
	t.Helper()
	to := c.owner.TempDir()
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = copyEntry(filepath.Join(to, strings.TrimPrefix(name, directory)), name, entry)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatalf("copy %s: %v", directory, err)
	}
	return to
}

func copyEntry(to, name string, entry fs.DirEntry) error {
	if entry.IsDir() {
		return os.MkdirAll(to, 0o700)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// Ready waits until the running nodes have a leader and the leader knows all of them.
func (c *Cluster) Ready(t *testing.T) {
	t.Helper()
	await(t, "a leader that knows all nodes", func() bool {
		running, known := 0, 0
		for _, n := range c.nodes {
			if n.server != nil {
				running++
				known = max(known, len(n.server.JetStreamClusterPeers()))
			}
		}
		return known == running
	})
}

// Current waits until every running node has all messages of the stream.
func (c *Cluster) Current(t *testing.T, stream string) {
	t.Helper()
	c.Leader(t, stream)
	await(t, "copies of "+stream+" that are up to date", func() bool {
		for _, n := range c.nodes {
			if n.server != nil && !n.server.JetStreamIsStreamCurrent(account, stream) {
				return false
			}
		}
		return true
	})
}

// account is the account of clients without credentials.
const account = "$G"

// Leader returns the leader of the stream, and waits for one.
func (c *Cluster) Leader(t *testing.T, stream string) int {
	t.Helper()
	leader := -1
	await(t, "a leader of "+stream, func() bool {
		for i, n := range c.nodes {
			if n.server != nil && n.server.JetStreamIsStreamLeader(account, stream) {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !done() {
		select {
		case <-time.After(poll):
		case <-deadline.C:
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
