package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Ports lie below the kernel's range for outgoing connections, so the port of a killed process stays free until
// its restart. Each test process reserves a block of ports, so other test processes do not take it meanwhile.
const (
	firstPort, lastPort = 10_000, 30_000
	blockSize           = 1000
	// kernelPort is the default start of the kernel's range.
	kernelPort = 32_768
)

// block is the port range of this process.
type block struct {
	first int
	lock  *os.File // held for the life of the process; nil if no block was free

	mu    sync.Mutex
	taken int
}

var ports = sync.OnceValue(takeBlock)

// takeBlock reserves a block of ports.
func takeBlock() *block {
	end := min(lastPort, kernelRange())
	blocks := max(1, (end-firstPort)/blockSize)
	for i := range blocks {
		at := (os.Getpid() + i) % blocks
		b := &block{first: firstPort + at*blockSize}
		var err error
		if b.lock, err = lockFile(filepath.Join(os.TempDir(), fmt.Sprint("holdfast-e2e-ports-", b.first))); err == nil {
			return b
		}
	}
	// More test processes than blocks: two share one and check for free ports.
	return &block{first: firstPort + os.Getpid()%blocks*blockSize}
}

// lockFile locks a file until the process ends. It fails if another process holds the lock.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// kernelRange returns the first port of the kernel's range for outgoing connections.
func kernelRange() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return kernelPort // not Linux
	}
	var first int
	if fields := strings.Fields(string(text)); len(fields) > 0 {
		first, err = strconv.Atoi(fields[0])
	}
	if err != nil || first == 0 {
		return kernelPort
	}
	return first
}

// next returns the ports of the block in turn.
func (b *block) next() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken++
	return b.first + b.taken%blockSize
}

// FreeAddress returns a free loopback address. This process does not reuse it soon.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range blockSize {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports().next()))
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

// listen listens on a loopback port chosen by the kernel.
func listen(t testing.TB) net.Listener {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen on loopback: %v", err)
	}
	return l
}
