// Package abuse attacks a gateway from the same machine, with bounded numbers of connections and bytes. Each
// attack ends when the gateway has cut it, or with its context.
package abuse

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Target is the attacked gateway.
type Target struct {
	Address string
	Key     string // an API key, for attackers who are customers
}

// Attack is a kind of hostile client.
type Attack struct {
	Name string
	// Connections is how many connections the attack opens, for a benchmark.
	Connections int
	// one attacks over a connection and reports whether the gateway has cut or refused it.
	attack func(ctx context.Context, t Target, conn net.Conn) bool
}

// Run attacks over n connections and returns how many of them the gateway has cut or refused.
func (a Attack) Run(ctx context.Context, t Target, n int) (cut int) {
	var count atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			conn, err := dial(ctx, t.Address)
			if err != nil {
				if ctx.Err() == nil { // the gateway's backlog is full
					count.Add(1)
				}
				return
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
			if a.attack(ctx, t, conn) {
				count.Add(1)
			}
		})
	}
	wg.Wait()
	return int(count.Load())
}

// receiveBuffer is small, so the gateway soon has to wait for a client that does not read.
const receiveBuffer = 4 << 10

func dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, receiveBuffer)
		})
		return errors.Join(err, failed)
	}}
	return d.DialContext(ctx, "tcp", address)
}

// isCut reports whether the error of a connection is its end at the gateway's side.
func isCut(err error) bool {
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
}

// drip sends a byte of a text that never ends at a time, until the connection is cut or ctx ends.
func drip(ctx context.Context, conn net.Conn, text string) bool {
	answer := make(chan bool, 1) // of the only reader
	go func() {
		_, err := io.Copy(io.Discard, conn)
		answer <- err == nil || isCut(err)
	}()
	tick := time.NewTicker(dripEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return isCut(err)
		}
		select {
		case <-tick.C:
		case cut := <-answer:
			return cut
		case <-ctx.Done():
			return false
		}
	}
}

const dripEvery = 50 * time.Millisecond

// refused sends a request and reports whether the gateway answers with an error of the client, or ends the
// connection.
func refused(conn net.Conn, send func(io.Writer) error) bool {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = send(conn) // the gateway may end the connection meanwhile
	}()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		_ = conn.Close()
		<-sent
		return isCut(err)
	}
	_ = answer.Body.Close()
	_ = conn.Close()
	<-sent
	return answer.StatusCode >= 400 && answer.StatusCode < 500
}
