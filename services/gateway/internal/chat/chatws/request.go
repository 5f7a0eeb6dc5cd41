package chatws

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

const tracerName = "github.com/holdfast-run/holdfast/services/gateway"

// request is one request of a socket.
type request struct {
	*connection
	*frame
	ctx       context.Context //nolint:containedctx // the life of the request, which abort ends
	abort     context.CancelFunc
	finishing bool // it is over, and only its last frames are written; guarded by the socket's mu
}

// serve does what the frame asks for and tells what comes of it. An abort ends the
// telling only: what was asked for is done.
func (r *request) serve() {
	stream, release, err := r.Streams.Open(r.ctx)
	if err != nil {
		r.fail(err)
		return
	}
	defer release()
	stream, span := otel.Tracer(tracerName).Start(stream, "chat.ws "+r.Type, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("holdfast.session.id", r.ID)))
	defer span.End()
	exchange, err := r.open(retry.Request(trace.ContextWithSpan(r.connection.ctx, span)))
	switch {
	case err != nil:
		r.fail(err)
	case exchange == nil:
		r.writeLast(encodeReply(typeNoActive, r.RequestID))
	default:
		r.deliver(stream, exchange)
	}
}

// open does what the frame asks for, and keeps nothing of what it brought: the telling
// may take long.
func (r *request) open(ctx context.Context) (*chat.Exchange, error) {
	defer r.release()
	header, err := r.header()
	if err != nil {
		return nil, err
	}
	if r.Type == typeResume {
		run, err := r.runID(header)
		if err != nil {
			return nil, err
		}
		return r.Chat.Reopen(ctx, chat.ReopenRequest{Tenant: r.tenant, SessionID: r.ID, RunID: run, Major: r.major})
	}
	return r.Chat.Open(ctx, chat.Request{Tenant: r.tenant, Major: r.major, Header: header, Body: r.post()})
}

// deliver tells the exchange. One that cannot be told to its end ends the socket, which the
// client takes for a drop.
func (r *request) deliver(ctx context.Context, exchange *chat.Exchange) {
	err := exchange.Deliver(ctx, &output{request: r})
	if err == nil || r.ctx.Err() != nil {
		return
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.end(err)
}

// fail ends the request with an error. Where the whole socket ends the client learns only
// that: it would take the error for final.
func (r *request) fail(err error) {
	switch {
	case r.connection.ctx.Err() != nil:
	case fault.ReasonOf(err) == stopping:
		r.end(err)
	default:
		if fault.KindOf(err) == fault.Internal {
			r.Log.ErrorContext(r.ctx, "request failed", "type", r.Type, "error", err)
		}
		r.writeLast(encodeError(r.RequestID, err))
	}
}

var stopping = fault.ReasonOf(httpapi.Stopping())

// writeLast writes the last frame of the request, unless somebody has ended it before.
func (r *request) writeLast(text []byte) {
	if r.finish(r) {
		_ = r.write(text) // which has ended the socket
	}
}

// write writes a frame. A client that does not take it is gone.
func (r *request) write(text []byte) error {
	err := r.conn.Write(text)
	if err != nil {
		r.end(err)
	}
	return err
}

// output tells a message in frames. Nothing is written under the id of a request that
// somebody has ended.
type output struct {
	*request
	waiting  [][]byte
	sequence int
	done     bool
}

// Begin implements chat.Out.
func (o *output) Begin() { o.waiting = append(o.waiting, encodeReply(typeStart, o.RequestID)) }

// Part implements chat.Out. A resume tells a message from its start, so that the
// sequences of records mean nothing here.
func (o *output) Part(_ int64, part []byte) {
	o.waiting = append(o.waiting, encodeChunk(o.RequestID, o.sequence, part))
	o.sequence++
}

// Done implements chat.Out.
func (o *output) Done() {
	o.waiting = append(o.waiting, encodeReply(typeEnd, o.RequestID))
	o.done = true
}

// Flush implements chat.Out.
func (o *output) Flush() error {
	for i, text := range o.waiting {
		if last := o.done && i == len(o.waiting)-1; last && !o.finish(o.request) || !last && o.ctx.Err() != nil {
			return context.Cause(o.ctx)
		}
		if err := o.write(text); err != nil {
			return err
		}
	}
	o.waiting = nil
	return nil
}

// Beat implements chat.Out; the socket has its own.
func (o *output) Beat() error { return nil }
