package api

import (
	"cmp"
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
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// envelope is the size of the prefix of a message (flags and length), in all protocols but
// Connect's unary one.
const envelope = 5

// tenantOf returns the tenant of the caller.
func tenantOf(ctx context.Context) string {
	caller, _ := auth.From(ctx)
	return caller.Tenant
}

// admit admits the request by the scope of its method, and bounds its body. Connect reads, inflates and decodes a body
// before it calls an interceptor or a method, so refusals must happen here.
func (s *Server) admit(next http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	refuse := func(w http.ResponseWriter, r *http.Request, err error) {
		abandonBody(w, r)
		_ = writer.Write(w, r, rpc.ConnectError(err)) // the client may have closed the connection
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := s.Callers.Admit(r, neededBy(r))
		if err != nil {
			refuse(w, r, err)
			return
		}
		reservation := s.Bodies.Reserve(caller.Tenant)
		defer reservation.Release()
		body := &boundedBody{
			ReadCloser:  r.Body,
			reservation: reservation,
			limit:       s.MaxBytes,
			remaining:   s.MaxBytes,
			leave:       func() { abandonBody(w, r) },
		}
		if enveloped(r) {
			w.Header().Set("Cache-Control", "no-cache, no-transform") // the answer may be a stream; middleware that compresses would hold it back
			body.prefix, body.remaining = make([]byte, 0, envelope), s.MaxBytes+envelope
		}
		if r.ContentLength > int64(body.remaining) {
			refuse(w, r, body.tooLarge())
			return
		}
		r = auth.Admitted(r, caller)
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// neededBy returns the scope needed for the method of a request. Discovery needs Read, and so do unknown methods, which
// are refused later.
func neededBy(r *http.Request) auth.Scope {
	return cmp.Or(auth.ScopeOf(strings.TrimPrefix(r.URL.Path, "/"+agentv1connect.AgentServiceName+"/")), auth.Read)
}

// abandonTimeout is how long the server still reads from a refused caller. If the connection is closed
// while the caller sends, it is reset and the answer is lost.
const abandonTimeout = time.Second

// abandonBody leaves the rest of the body unread. Over HTTP/1 the server would otherwise wait for the
// rest before it answers.
func abandonBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(abandonTimeout)) // if not supported, the server does not wait
	}
}

// enveloped reports whether the protocol of the request puts a prefix before messages.
func enveloped(r *http.Request) bool {
	kind := strings.ToLower(r.Header.Get("Content-Type"))
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// boundedBody fails the read of too large a body with BODY_TOO_LARGE, which Connect passes
// on. Connect's own limit says RESOURCE_EXHAUSTED without a reason, and only after it has read the
// whole body. Each call has one message, so its prefix has the size.
type boundedBody struct {
	io.ReadCloser
	reservation *httpapi.Reservation
	limit       int    // of the message
	remaining   int    // bytes until the limit
	prefix      []byte // read part of the prefix; capacity 0 for protocols without one
	leave       func()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	seen := p[:min(n, cap(b.prefix)-len(b.prefix))]
	if len(seen) > 0 {
		b.prefix = append(b.prefix, seen...)
	}
	b.remaining -= n
	if b.remaining < 0 || b.messageLength() > uint64(b.limit) {
		b.leave()
		return 0, readError(b.tooLarge())
	}
	if err := b.reservation.Grow(int64(b.limit - b.remaining)); err != nil {
		b.leave()
		if full, ok := fault.From(err); ok {
			err = readError(full)
		}
		return 0, err
	}
	return n, err
}

// messageLength returns the message length in the prefix; 0 before the prefix is complete.
func (b *boundedBody) messageLength() uint64 {
	if len(b.prefix) < envelope {
		return 0
	}
	return uint64(binary.BigEndian.Uint32(b.prefix[1:]))
}

func (b *boundedBody) tooLarge() *fault.Fault {
	return fault.New(fault.TooLarge, "BODY_TOO_LARGE", "a request may have at most %d bytes; send less, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES", b.limit).
		WithSizes(0, int64(b.limit))
}

// readError returns the Connect error of a fault, with the fault in it for the interceptors.
func readError(f *fault.Fault) error {
	out := connect.NewError(connect.Code(rpc.Code(f.Kind)), faultError{f})
	if encoded, ok := errors.AsType[*connect.Error](rpc.ConnectError(f)); ok {
		for _, detail := range encoded.Details() {
			out.AddDetail(detail)
		}
	}
	return out
}

// faultError is an error with the fault's detail as its text.
type faultError struct{ fault *fault.Fault }

func (i faultError) Error() string { return i.fault.Detail }
func (i faultError) Unwrap() error { return i.fault }
