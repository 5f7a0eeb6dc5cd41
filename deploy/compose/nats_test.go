package compose_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/services/stream"
)

// patience bounds every wait of a test.
const patience = 3 * time.Minute

// natsPassword begins like a number, which NATS would not take for a text without the quotes of compose.yaml.
const natsPassword = "12e4567890"

func TestMain(m *testing.M) {
	if err := os.Setenv("NATS_PASSWORD", `"`+natsPassword+`"`); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var nodes = []string{"nats-1", "nats-2", "nats-3"}

// parsing serializes NATS's flag parsing, which writes a package variable.
var parsing sync.Mutex

// optionsOf parses a container's arguments as NATS does.
func optionsOf(t *testing.T, name string) *server.Options {
	t.Helper()
	node := load(t).Services[name]
	if !slices.Contains(node.Volumes, "./nats.conf:/etc/nats/nats.conf:ro") {
		t.Fatalf("%s has the volumes %v, and not its configuration", name, node.Volumes)
	}
	var args []string
	for _, arg := range node.Command {
		args = append(args, strings.ReplaceAll(arg, "/etc/nats/nats.conf", "nats.conf"))
	}
	parsing.Lock()
	defer parsing.Unlock()
	unexpected := func() { t.Errorf("%s: %v makes NATS print and exit", name, args) }
	o, err := server.ConfigureOptions(flag.NewFlagSet(name, flag.ContinueOnError), args, unexpected, unexpected, unexpected)
	if err != nil {
		t.Fatalf("%s: NATS does not take %v: %v", name, args, err)
	}
	return o
}

func TestEveryNodeKeepsACopyOfItsOwn(t *testing.T) {
	t.Parallel()
	config := stream.Defaults()
	var routes []string
	for _, name := range nodes {
		routes = append(routes, "nats://"+name+":6222")
	}
	for _, name := range nodes {
		o := optionsOf(t, name)
		if o.ServerName != name || o.Cluster.Name == "" || o.Cluster.Host != "0.0.0.0" || o.Cluster.Port != 6222 {
			t.Errorf("%s: got the name %q in the cluster %q at %s:%d", name, o.ServerName, o.Cluster.Name, o.Cluster.Host, o.Cluster.Port)
		}
		if !o.JetStream || !slices.Contains(load(t).Services[name].Volumes, name+":"+o.StoreDir) {
			t.Errorf("%s: got JetStream %v in %s, want it on a volume of its own", name, o.JetStream, o.StoreDir)
		}
		var got []string
		for _, r := range o.Routes {
			got = append(got, r.String())
		}
		if !slices.Equal(got, routes) {
			t.Errorf("%s: got the routes %v, want %v", name, got, routes)
		}
		if most := int64(config.Partitions) * config.PartitionBytes; o.JetStreamMaxStore < most {
			t.Errorf("%s: got room for %d bytes, and the partitions may hold %d", name, o.JetStreamMaxStore, most)
		}
		if int(o.MaxPayload) < config.ChunkBytes+4<<10 {
			t.Errorf("%s: got messages of %d bytes, and chunks have %d", name, o.MaxPayload, config.ChunkBytes)
		}
	}
}

func TestTheStreamServiceUsesAllNodes(t *testing.T) {
	t.Parallel()
	environment := load(t).Services["stream"].Environment
	var urls []string
	for _, name := range nodes {
		urls = append(urls, fmt.Sprintf("nats://stream:${NATS_PASSWORD}@%s:%d", name, optionsOf(t, name).Port))
	}
	if got, want := environment["HOLDFAST_STREAM_NATS_URL"], strings.Join(urls, ","); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := environment["HOLDFAST_STREAM_REPLICAS"], fmt.Sprint(len(nodes)); got != want {
		t.Errorf("got %s copies, want %s", got, want)
	}
}

func TestTheNodesFormAClusterAndSayThatTheyAreHealthy(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, len(nodes))
	var urls []string
	var running []*server.Server
	for _, name := range nodes {
		ns, err := server.NewServer(onLoopback(t, name, ports))
		if err != nil {
			t.Fatal(err)
		}
		ns.Start()
		t.Cleanup(func() {
			ns.Shutdown()
			ns.WaitForShutdown()
		})
		running = append(running, ns)
	}
	for i, ns := range running {
		if !ns.ReadyForConnections(patience) {
			t.Fatalf("%s is not ready", nodes[i])
		}
		urls = append(urls, ns.ClientURL())
		mustGetHealthy(t, ns, nodes[i])
	}
	for name, option := range map[string]nats.Option{
		"nobody": nil, "stream with another password": nats.UserInfo("stream", "another"), "another user": nats.UserInfo("gateway", natsPassword),
	} {
		if nc, err := nats.Connect(urls[0], option); !errors.Is(err, nats.ErrAuthorization) {
			nc.Close()
			t.Errorf("NATS lets %s in: %v", name, err)
		}
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.UserInfo("stream", natsPassword))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: len(nodes)}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", nil); err != nil {
		t.Fatal(err)
	}
}

// onLoopback returns a node's options with addresses of this machine.
func onLoopback(t *testing.T, name string, ports map[string]int) *server.Options {
	t.Helper()
	o := optionsOf(t, name)
	o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
	o.HTTPHost, o.HTTPPort = "127.0.0.1", server.RANDOM_PORT
	o.StoreDir = t.TempDir()
	o.Cluster.Host, o.Cluster.Port = "127.0.0.1", ports[name]
	o.NoSigs, o.NoLog = true, true
	var routes []*url.URL
	for _, r := range o.Routes {
		routes = append(routes, &url.URL{Scheme: r.Scheme, Host: fmt.Sprintf("127.0.0.1:%d", ports[r.Hostname()])})
	}
	o.Routes = routes
	return o
}

// freePorts returns a port for each node, outside of the kernel's range and of other test processes.
func freePorts(t *testing.T, count int) map[string]int {
	t.Helper()
	ports := map[string]int{}
	for len(ports) < count {
		port := 5_000 + rand.IntN(5_000) //nolint:gosec // not a secret
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer listener.Close()
		ports[nodes[len(ports)]] = port
	}
	return ports
}

// mustGetHealthy repeats the container's health check until it succeeds.
func mustGetHealthy(t *testing.T, ns *server.Server, name string) {
	t.Helper()
	check := load(t).Services[name].Healthcheck.Test
	asked, err := url.Parse(check[len(check)-1])
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("127.0.0.1:%d", optionsOf(t, name).HTTPPort); asked.Host != want {
		t.Errorf("%s: the health check asks %s, and the node listens at %s", name, asked.Host, want)
	}
	asked.Host = ns.MonitorAddr().String()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		answer, err := http.Get(asked.String())
		if err == nil {
			_ = answer.Body.Close()
		}
		if err == nil && answer.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not healthy: %v, %v", name, answer, err)
		}
	}
}
