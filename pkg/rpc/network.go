package rpc

import (
	"context"
	"errors"
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
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return Sockets(l), nil
}

func (tcp) DialContext(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Control: limitUnacknowledged}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return Socket(conn), nil
}

// memoryBuffer is the buffer of a memory connection per direction in bytes: a few HTTP/2 frames, so neither side
// waits for the scheduler at each frame.
const memoryBuffer = 64 << 10

// Memory is a network inside the process. Any name is an address, and only users of the same Memory can connect.
// It works inside a testing/synctest bubble.
type Memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener

	// piping lets one connection be made at a time. Each starts two timers that fire at once. In a synctest bubble,
	// two goroutines with such timers crash the race detector of Go 1.26.
	piping sync.Mutex
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
	l := &memoryListener{network: m, address: memoryAddr(address), dialed: make(chan net.Conn), closed: make(chan struct{})}
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
		return nil, fmt.Errorf("dial memory address %q: it has no listener", address)
	}
	client, server, err := m.pipe()
	if err != nil {
		return nil, fmt.Errorf("dial memory address %q: %w", address, err)
	}
	select {
	case l.dialed <- server:
		return client, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.closed:
		err = net.ErrClosed
	}
	return nil, fmt.Errorf("dial memory address %q: %w", address, errors.Join(err, client.Close(), server.Close()))
}

// pipe returns the ends of a new connection.
func (m *Memory) pipe() (client, server net.Conn, err error) {
	m.piping.Lock()
	defer m.piping.Unlock()
	l := bufconn.Listen(memoryBuffer)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		server, err = l.Accept()
	}()
	client, dialErr := l.Dial()
	if dialErr != nil {
		_ = l.Close() // ends Accept
	}
	<-accepted
	return client, server, errors.Join(dialErr, err)
}

type memoryListener struct {
	network *Memory
	address memoryAddr
	dialed  chan net.Conn
	closed  chan struct{}
	close   sync.Once
}

// Accept fails with net.ErrClosed after Close, as a TCP listener does.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialed:
		return conn, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept on memory address %q: %w", string(l.address), net.ErrClosed)
	}
}

func (l *memoryListener) Close() error {
	l.close.Do(func() {
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, string(l.address))
		close(l.closed)
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return l.address }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }
