package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	frameBuffer = 64 << 10
	keptFrame   = 1 << 20 // a larger buffer is not reused for the next message
)

// frames passes on the messages of a child, readable. Each must be one line. The decoder behind it would accept a
// message on many lines, and so an endless one.
type frames struct {
	io.Closer
	in   *bufio.Reader
	fail context.CancelCauseFunc
	line []byte
	rest []byte // the rest of the current message
	err  error  // after the message
}

func newFrames(child io.ReadCloser, fail context.CancelCauseFunc) *frames {
	return &frames{Closer: child, in: bufio.NewReaderSize(child, frameBuffer), fail: fail}
}

func (f *frames) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.rest, f.err = f.next()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// next reads a line and returns its message; nothing for an empty line.
func (f *frames) next() ([]byte, error) {
	if cap(f.line) > keptFrame {
		f.line = nil
	}
	f.line = f.line[:0]
	for {
		piece, err := f.in.ReadSlice('\n')
		f.line = append(f.line, piece...)
		if len(f.line) > maxMessage {
			f.fail(errMessageTooLarge)
			return nil, errMessageTooLarge
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		message := bytes.TrimSpace(f.line)
		switch {
		case len(message) == 0:
			return nil, err
		case json.Valid(message):
			return append(readable(message), '\n'), err
		case err != nil:
			return nil, err // ended within a message
		}
		err = fmt.Errorf("it has written a line that is not JSON to its standard output, which is for messages only: %.100q", message)
		f.fail(err)
		return nil, err
	}
}

// timedWriter fails the session of a child that does not read its input.
type timedWriter struct {
	io.WriteCloser
	limit time.Duration
	fail  context.CancelCauseFunc
}

func (w *timedWriter) Write(p []byte) (int, error) {
	timer := time.AfterFunc(w.limit, func() {
		w.fail(fmt.Errorf("it has not read a message within %v", w.limit))
	})
	defer timer.Stop()
	n, err := w.WriteCloser.Write(p)
	if n == 0 && err != nil {
		err = fmt.Errorf("%w: %w", errUnwritten, err)
	}
	return n, err
}

// errUnwritten means that no byte of a message has reached a child.
var errUnwritten = errors.New("nothing was written")

// delivery is what is known about the way of a call to the server.
type delivery struct {
	written atomic.Bool  // the server may have accepted it
	status  atomic.Int32 // of the HTTP response; 0 without one
}

// deliveryKey is the context key of a call's *delivery.
type deliveryKey struct{}

// deliveryOf returns the delivery of a call. For any other message it returns a new one.
func deliveryOf(ctx context.Context) *delivery {
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		return d
	}
	return &delivery{}
}

// deliveryConnection records which messages may have reached a child.
type deliveryConnection struct{ mcp.Connection }

func (n deliveryConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	err := n.Connection.Write(ctx, message)
	if !errors.Is(err, errUnwritten) {
		deliveryOf(ctx).written.Store(true)
	}
	return err
}
