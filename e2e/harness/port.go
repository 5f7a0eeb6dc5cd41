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

// Ports are taken from below the range from which the kernel gives ports to
// outgoing connections, so that the port of a killed process is still free
// when the process is started again; and each test process has a block of them
// to itself, so that no other one takes it meanwhile.
const (
	firstPort, lastPort = 10_000, 30_000
	blockSize           = 1000
	// kernelPort is where the kernel's range begins by default.
	kernelPort = 32_768
)

// block is the range of ports of this process.
type block struct {
	first int
	lock  *os.File // held as long as the process lives; nil where there was none to get

	mu    sync.Mutex
	taken int
}

var ports = sync.OnceValue(takeBlock)

// takeBlock takes a block that no other test process has.
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
	// More test processes than blocks: two share one, and look what is free.
	return &block{first: firstPort + os.Getpid()%blocks*blockSize}
}

// lockFile locks a file until the process ends; it fails where another one has it.
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

// kernelRange is the first port that the kernel gives to outgoing connections.
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

// next gives the ports of the block in turn.
func (b *block) next() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken++
	return b.first + b.taken%blockSize
}

// FreeAddress returns a loopback address on which nobody listens, and which
// this process will not give out again soon.
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
