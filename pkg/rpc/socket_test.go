package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// sockets returns both ends of a connection.
func sockets(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := rpc.TCP().Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err = rpc.TCP().DialContext(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestASocketCarriesMoreThanItsBuffersInBothDirections(t *testing.T) {
	t.Parallel()
	client, server := sockets(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // far above the buffers of the kernel: writes have to wait
	done := make(chan error, 2)
	for _, conn := range []net.Conn{client, server} {
		go func() {
			n, err := conn.Write(sent)
			if err == nil && n != len(sent) {
				err = io.ErrShortWrite
			}
			done <- err
		}()
	}
	for _, conn := range []net.Conn{client, server} {
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("read other bytes than were written, or %v", err)
		}
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestASocketReportsTheEndOfTheConnection(t *testing.T) {
	t.Parallel()
	client, server := sockets(t)
	if n, err := client.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read: got %d, %v", n, err)
	}
	if _, err := server.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if n, err := client.Read(got); string(got[:n]) != "last" || err != nil {
		t.Errorf("got %q, %v, want the last bytes", got[:n], err)
	}
	if n, err := client.Read(got); n != 0 || err != io.EOF { //nolint:errorlint // readers compare with it
		t.Errorf("after the end: got %d, %v, want EOF", n, err)
	}
	if _, err := server.Write(got); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write to a closed socket: got %v, want %v", err, net.ErrClosed)
	}
}

func TestASocketThatItsPeerHasResetFails(t *testing.T) {
	t.Parallel()
	client, server := sockets(t)
	if err := server.(interface{ SetLinger(seconds int) error }).SetLinger(0); err != nil { // Close sends a reset
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := client.Read(make([]byte, 1))
	op, isOp := errors.AsType[*net.OpError](err)
	if !errors.Is(err, syscall.ECONNRESET) || !isOp || op.Op != "read" {
		t.Errorf("got %v, want a read with %v", err, syscall.ECONNRESET)
	}
}

func TestADeadlineAndCloseEndAWaitingRead(t *testing.T) {
	t.Parallel()
	client, server := sockets(t)
	ended := make(chan error, 1)
	read := func() {
		_, err := client.Read(make([]byte, 1))
		ended <- err
	}
	go read()
	if err := client.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	if op, isOp := errors.AsType[*net.OpError](err); !errors.Is(err, os.ErrDeadlineExceeded) || !isOp || op.Op != "read" || !op.Timeout() {
		t.Errorf("got %v, want a read that timed out", err)
	}
	if err := client.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	go read()
	if err := <-ended; err != nil {
		t.Errorf("a read after the deadline was removed: %v", err)
	}
	go read()
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
}
