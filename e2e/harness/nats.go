package harness

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// askLimit bounds one request to a NATS system. leaderLimit is how long a stream may have no leader.
const (
	askLimit    = 5 * time.Second
	leaderLimit = 3 * time.Minute
)

// NATS is a NATS system with JetStream. Its servers are processes on loopback. One goroutine may use it at a
// time.
type NATS struct {
	t     testing.TB
	nodes []*natsNode
}

type natsNode struct {
	*Process
	store  string
	frozen bool
}

// StartNATS starts one server or a cluster and waits until it can store streams. It ends with the test. options
// are lines for each server's configuration.
func StartNATS(t testing.TB, nodes int, options ...string) *NATS {
	t.Helper()
	n := &NATS{t: t}
	dir := t.TempDir()
	var routes []string
	for range nodes {
		routes = append(routes, FreeAddress(t))
	}
	for i := range nodes {
		n.nodes = append(n.nodes, newNode(t, dir, i, routes, options))
	}
	t.Cleanup(func() {
		for _, node := range n.nodes {
			node.cleanup()
		}
	})
	for _, node := range n.nodes {
		node.StartOnly()
	}
	n.WaitReady()
	return n
}

func newNode(t testing.TB, dir string, i int, routes, options []string) *natsNode {
	t.Helper()
	name := fmt.Sprintf("n%d", i)
	address, monitor := FreeAddress(t), FreeAddress(t)
	store := filepath.Join(dir, name)
	lines := append([]string{
		"server_name: " + name,
		fmt.Sprintf("listen: %q", address),
		fmt.Sprintf("http: %q", monitor),
		fmt.Sprintf("jetstream { store_dir: %q, max_memory_store: 16M, max_file_store: 16G }", store),
	}, options...)
	if len(routes) > 1 {
		lines = append(lines, fmt.Sprintf("cluster { name: e2e, listen: %q, routes: [%s] }", routes[i], quoted("nats-route://", routes)))
	}
	return &natsNode{store: store, Process: &Process{
		Name:    "nats-" + name,
		Address: address,
		t:       t,
		path:    Binary(t, "nats-server"),
		args:    []string{"--config", writeFile(t, dir, name+".conf", strings.Join(lines, "\n")+"\n")},
		env:     baseEnv(),
		ready:   ok("http://" + monitor + "/healthz"),
	}}
}

func quoted(prefix string, addresses []string) string {
	var all []string
	for _, a := range addresses {
		all = append(all, fmt.Sprintf("%q", prefix+a))
	}
	return strings.Join(all, ", ")
}

// URL returns the addresses of all servers.
func (n *NATS) URL() string {
	var all []string
	for _, node := range n.nodes {
		all = append(all, "nats://"+node.Address)
	}
	return strings.Join(all, ",")
}

// Nodes returns the number of servers.
func (n *NATS) Nodes() int { return len(n.nodes) }

// Node returns the process of a server.
func (n *NATS) Node(i int) *Process { return n.nodes[i].Process }

// StoreDir returns the store folder of a server.
func (n *NATS) StoreDir(i int) string { return n.nodes[i].store }

// Kill kills a running or frozen server (SIGKILL).
func (n *NATS) Kill(i int) {
	n.t.Helper()
	n.nodes[i].Kill()
	n.nodes[i].frozen = false
}

// Start starts a killed server and does not wait for it.
func (n *NATS) Start(i int) {
	n.t.Helper()
	n.nodes[i].StartOnly()
}

// Freeze pauses a server (SIGSTOP).
func (n *NATS) Freeze(i int) {
	n.t.Helper()
	n.nodes[i].Freeze()
	n.nodes[i].frozen = true
}

// Thaw resumes a frozen server.
func (n *NATS) Thaw(i int) {
	n.t.Helper()
	n.nodes[i].Thaw()
	n.nodes[i].frozen = false
}

// WaitReady waits until all servers are ready.
func (n *NATS) WaitReady() {
	n.t.Helper()
	for _, node := range n.nodes {
		node.WaitReady()
	}
}

// Snapshot copies the store of a server as a power cut would leave it.
func (n *NATS) Snapshot(i int) (copied string) {
	n.t.Helper()
	return Snapshot(n.t, n.nodes[i].Process, n.nodes[i].store)
}

// SnapshotAll copies the stores of all running servers as a simultaneous power cut would leave them.
func (n *NATS) SnapshotAll() (copied []string) {
	n.t.Helper()
	for i := range n.nodes {
		n.Freeze(i)
	}
	for i := range n.nodes {
		copied = append(copied, n.copyStore(i))
	}
	for i := range n.nodes {
		n.Thaw(i)
	}
	return copied
}

// copyStore copies the store of a frozen or stopped server.
func (n *NATS) copyStore(i int) (copied string) {
	n.t.Helper()
	copied = filepath.Join(n.t.TempDir(), "copy")
	copyFolder(n.t, copied, n.nodes[i].store)
	return copied
}

// Restore replaces the store of a stopped server by the copy.
func (n *NATS) Restore(i int, copied string) {
	n.t.Helper()
	PutBack(n.t, copied, n.nodes[i].store)
}

// Streams returns the names of all streams, in order.
func (n *NATS) Streams() []string {
	n.t.Helper()
	var names []string
	WaitFor(n.t, leaderLimit, "NATS to list its streams", func() (bool, string) {
		err := n.ask(func(ctx context.Context, js jetstream.JetStream) error {
			names = nil
			list := js.StreamNames(ctx)
			for name := range list.Name() {
				names = append(names, name)
			}
			return list.Err()
		})
		return err == nil && len(names) > 0, fmt.Sprint(names, err)
	})
	slices.Sort(names)
	return names
}

// Stored returns how many messages the streams have ever stored, and how many bytes they hold.
func (n *NATS) Stored() (messages, bytes int64) {
	n.t.Helper()
	err := n.ask(func(ctx context.Context, js jetstream.JetStream) error {
		messages, bytes = 0, 0
		list := js.ListStreams(ctx)
		for info := range list.Info() {
			messages += int64(info.State.LastSeq) //nolint:gosec // far below
			bytes += int64(info.State.Bytes)      //nolint:gosec // likewise
		}
		return list.Err()
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return messages, bytes
}

// Leader returns the index of the server that leads a stream. It waits for a live leader.
func (n *NATS) Leader(stream string) int {
	n.t.Helper()
	leader := 0
	WaitFor(n.t, leaderLimit, "a leader of "+stream, func() (bool, string) {
		name := ""
		err := n.ask(func(ctx context.Context, js jetstream.JetStream) error {
			s, err := js.Stream(ctx, stream)
			if err == nil && s.CachedInfo().Cluster != nil {
				name = s.CachedInfo().Cluster.Leader
			}
			return err
		})
		if len(n.nodes) == 1 {
			return err == nil, fmt.Sprint(err)
		}
		leader = slices.IndexFunc(n.nodes, func(node *natsNode) bool { return node.Name == "nats-"+name })
		return leader >= 0 && n.nodes[leader].Running() && !n.nodes[leader].frozen, fmt.Sprintf("%q, %v", name, err)
	})
	return leader
}

// ask runs a request against the live servers.
func (n *NATS) ask(question func(context.Context, jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	var alive []string
	for _, node := range n.nodes {
		if node.Running() && !node.frozen {
			alive = append(alive, "nats://"+node.Address)
		}
	}
	nc, err := natsgo.Connect(strings.Join(alive, ","), natsgo.Timeout(askLimit), natsgo.IgnoreDiscoveredServers())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return question(ctx, js)
}

// ok returns a probe for status 200 at the URL.
func ok(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		r.Close = true
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		return nil
	}
}
