//go:build linux && !race

package rpc

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// socket is not in builds with the race detector: it learns from the standard system calls that a write happens before the
// read of its bytes. See socket_other.go.
func socket(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil { // the connection is closed
		return conn
	}
	c := &directConn{TCPConn: tcp, raw: raw}
	c.in.try, c.out.try = c.in.read, c.out.write
	return c
}

// directConn is a TCP connection that makes raw system calls on its non-blocking socket. Deadlines and Close work as those
// of the TCP connection.
type directConn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is the call in one direction of a connection.
type transfer struct {
	mu    sync.Mutex
	try   func(fd uintptr) (done bool) // read or write, bound once: a call allocates nothing
	bytes []byte                       // of the caller
	n     int                          // how many are transferred
	errno syscall.Errno
}

func (c *directConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := c.in.call(b, c.raw.Read)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, c.opError("read", err)
}

func (c *directConn) Write(b []byte) (int, error) {
	n, err := c.out.call(b, c.raw.Write)
	return n, c.opError("write", err)
}

// call repeats try until it is done, and waits for the socket in between.
func (t *transfer) call(b []byte, wait func(try func(fd uintptr) (done bool)) error) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes, t.n, t.errno = b, 0, 0
	err = wait(t.try)
	t.bytes = nil
	if err == nil && t.errno != 0 {
		err = t.errno
	}
	return t.n, err
}

// read reads the available bytes.
func (t *transfer) read(fd uintptr) (done bool) {
	t.n, t.errno = rawIO(syscall.SYS_READ, fd, t.bytes)
	return t.errno != syscall.EAGAIN
}

// write writes all bytes, or those that the socket takes.
func (t *transfer) write(fd uintptr) (done bool) {
	for t.n < len(t.bytes) {
		var n int
		n, t.errno = rawIO(syscall.SYS_WRITE, fd, t.bytes[t.n:])
		t.n += n
		if t.errno != 0 {
			return t.errno != syscall.EAGAIN
		}
	}
	return true
}

// rawIO reads or writes, and repeats a call that a signal has interrupted.
func rawIO(call, fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))) //nolint:gosec // b is alive
		switch errno {
		case 0:
			return int(n), 0 //nolint:gosec // at most len(b)
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// tcpUserTimeout is TCP_USER_TIMEOUT (tcp(7)).
const tcpUserTimeout = 0x12

// limitUnacknowledged limits how long sent bytes may stay unacknowledged before the connection breaks, as gRPC limits it on
// the TCP connections that it knows.
func limitUnacknowledged(_, _ string, raw syscall.RawConn) (err error) {
	controlErr := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(pingTimeout.Milliseconds())) //nolint:gosec // a descriptor
	})
	return errors.Join(controlErr, err)
}

// opError returns err as a TCP connection returns it.
func (c *directConn) opError(op string, err error) error {
	if err == nil {
		return nil
	}
	if waiting, ok := errors.AsType[*net.OpError](err); ok { // from the wait: closed, or past the deadline
		err = waiting.Err
	} else if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
