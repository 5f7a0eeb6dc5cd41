package harness

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports are taken from below the range from which the kernel gives ports to
// outgoing connections, so that the port of a killed process is still free
// when the process is started again.
const (
	firstPort = 15000
	portCount = 15000
	// portStride keeps test processes that run at the same time apart.
	portStride = 97
)

var portsTaken atomic.Int64

// FreeAddress returns a loopback address on which nobody listens, and which
// this process will not give out again soon.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range portCount {
		port := firstPort + (int64(os.Getpid())*portStride+portsTaken.Add(1))%portCount
		address := net.JoinHostPort("127.0.0.1", strconv.FormatInt(port, 10))
		var c net.ListenConfig
		l, err := c.Listen(context.Background(), "tcp", address)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatalf("close the probe of %s: %v", address, err)
		}
		return address
	}
	t.Fatal("no free port on loopback")
	return ""
}

// listen listens on loopback, on a port that the kernel chooses.
func listen(t testing.TB) net.Listener {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen on loopback: %v", err)
	}
	return l
}
