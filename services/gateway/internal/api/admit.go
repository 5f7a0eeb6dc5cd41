package api

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// envelope is how many bytes stand before a message in all protocols but
// Connect's own for calls with one answer: its flags and its length.
const envelope = 5

// tenantKey is the key of the caller's tenant in a call's context.
type tenantKey struct{}

// tenantOf names the tenant that admit has found.
func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// admit lets those in who have a key, with a body that is bounded. Connect reads,
// inflates and decodes a body before it asks an interceptor or a method, so
// whoever is refused is refused here.
func (s *Server) admit(next http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	refuse := func(w http.ResponseWriter, r *http.Request, err error) {
		leaveBody(w, r)
		_ = writer.Write(w, r, rpc.ConnectError(err)) // a client that is gone needs no answer
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, err := s.Keys.Tenant(r.Header)
		if err != nil {
			refuse(w, r, err)
			return
		}
		body := &boundedBody{ReadCloser: r.Body, limit: s.MaxBytes, left: s.MaxBytes, leave: func() { leaveBody(w, r) }}
		if enveloped(r) {
			body.prefix, body.left = make([]byte, 0, envelope), s.MaxBytes+envelope
		}
		if r.ContentLength > int64(body.left) {
			refuse(w, r, body.tooLarge())
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant))
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// leaveTime is how long the server goes on taking what a refused caller sends. A
// connection that is closed under a sender is reset, and then the answer is lost.
const leaveTime = time.Second

// leaveBody leaves the rest of the body unread. Over HTTP/1 the server would wait,
// even before it answers, for a rest that may never come; over HTTP/2 it does not.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(leaveTime)) // where it is not supported, there is no wait
	}
}

// enveloped reports whether messages have a prefix in the request's protocol.
func enveloped(r *http.Request) bool {
	kind := strings.ToLower(r.Header.Get("Content-Type"))
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// boundedBody ends a body that is too large with an error that Connect passes on
// as it stands. Its own says RESOURCE_EXHAUSTED, with no reason, and only after it
// has read a body to its end. Each call has one message, so the first prefix tells.
type boundedBody struct {
	io.ReadCloser
	limit  int    // of the message
	left   int    // bytes that may still come
	prefix []byte // what has come of the prefix; its capacity is 0 where there is none
	leave  func()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	seen := p[:min(n, cap(b.prefix)-len(b.prefix))]
	if len(seen) > 0 {
		b.prefix = append(b.prefix, seen...)
	}
	b.left -= n
	if b.left < 0 || b.promised() > uint64(b.limit) {
		b.leave()
		return 0, readError(b.tooLarge())
	}
	return n, err
}

// promised is the length that the prefix gives the message, 0 until it has come.
func (b *boundedBody) promised() uint64 {
	if len(b.prefix) < envelope {
		return 0
	}
	return uint64(binary.BigEndian.Uint32(b.prefix[1:]))
}

func (b *boundedBody) tooLarge() *fault.Fault {
	return fault.New(fault.TooLarge, "BODY_TOO_LARGE", "a request may have %d bytes; send less, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES", b.limit)
}

// readError is the Connect error of a fault, with the fault in it: where Connect
// reads inside the interceptors, they look for one.
func readError(f *fault.Fault) error {
	out := connect.NewError(connect.Code(rpc.Code(f.Kind)), inside{f})
	if told, ok := errors.AsType[*connect.Error](rpc.ConnectError(f)); ok {
		for _, detail := range told.Details() {
			out.AddDetail(detail)
		}
	}
	return out
}

// inside reads as the fault's detail.
type inside struct{ fault *fault.Fault }

func (i inside) Error() string { return i.fault.Detail }
func (i inside) Unwrap() error { return i.fault }
