package rpc

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// Network connects services. Implementations are safe for concurrent use.
type Network interface {
	// Listen reserves the address until the listener is closed. It fails if the address is in use.
	Listen(ctx context.Context, address string) (net.Listener, error)
	// DialContext connects to the listener on the address. It fails at once without a listener.
	DialContext(ctx context.Context, address string) (net.Conn, error)
}

// TCP returns the machine's network. An address is "host:port"; port 0 selects a free port, available from the
// listener's Addr.
func TCP() Network { return tcp{} }

type tcp struct{}

func (tcp) Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

func (tcp) DialContext(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}

// memoryBuffer is the buffer of a memory connection per direction in bytes: a few HTTP/2 frames, so neither side
// waits for the scheduler at each frame.
const memoryBuffer = 64 << 10

// Memory is a network inside the process. Any name is an address, and only users of the same Memory can connect.
// It works inside a testing/synctest bubble.
type Memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
}

// NewMemory returns a network without listeners.
func NewMemory() *Memory {
	return &Memory{listeners: map[string]*memoryListener{}}
}

// Listen reserves the name until the listener is closed.
func (m *Memory) Listen(_ context.Context, address string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[address] != nil {
		return nil, fmt.Errorf("listen on memory address %q: already in use", address)
	}
	l := &memoryListener{Listener: bufconn.Listen(memoryBuffer), network: m, address: memoryAddr(address)}
	m.listeners[address] = l
	return l, nil
}

// DialContext connects to the listener on the name. It fails at once without a listener, and otherwise waits for
// Accept until ctx ends. Connections outlive their listener.
func (m *Memory) DialContext(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial memory address %q: nobody listens", address)
	}
	conn, err := l.Listener.DialContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial memory address %q: %w", address, err)
	}
	return conn, nil
}

func (m *Memory) release(l *memoryListener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A second Close of an old listener must not release its successor's name.
	if m.listeners[string(l.address)] == l {
		delete(m.listeners, string(l.address))
	}
}

type memoryListener struct {
	*bufconn.Listener
	network *Memory
	address memoryAddr
}

// Accept fails with net.ErrClosed after Close, as a TCP listener does.
func (l *memoryListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, fmt.Errorf("accept on memory address %q: %w", string(l.address), net.ErrClosed)
	}
	return conn, nil
}

func (l *memoryListener) Close() error {
	l.network.release(l)
	return l.Listener.Close()
}

func (l *memoryListener) Addr() net.Addr { return l.address }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }
