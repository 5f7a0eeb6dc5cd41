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

// request is one request on a socket.
type request struct {
	*connection
	*frame
	ctx       context.Context //nolint:containedctx // until abort or the end of the request
	abort     context.CancelFunc
	finishing bool // only its last frames are pending; guarded by the connection's mu
}

// serve executes the request and delivers the answer. An abort ends only the delivery.
func (r *request) serve() {
	stream, release, err := r.Streams.Open(r.ctx, httpapi.ProtocolChatWebSocket)
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

// open executes the request. It releases the frame, because a delivery may take long.
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

// deliver writes the exchange. If it cannot be finished, it ends the socket, so that the client
// resumes.
func (r *request) deliver(ctx context.Context, exchange *chat.Exchange) {
	err := exchange.Deliver(ctx, &output{request: r, effects: exchange.Effects()})
	if err == nil || r.ctx.Err() != nil {
		return
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.end(err)
}

// fail ends the request with an error. If the whole socket ends, it writes nothing, because the
// client would take the error for final.
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

// writeLast writes the last frame of the request, unless the request was ended before.
func (r *request) writeLast(text []byte) {
	if r.finish(r) {
		_ = r.write(text) // an error has ended the socket
	}
}

// write writes a frame. An error ends the socket.
func (r *request) write(text []byte) error {
	err := r.conn.Write(text)
	if err != nil {
		r.end(err)
	}
	return err
}

// output encodes a message as frames. It writes nothing under the id of an ended request.
type output struct {
	*request
	effects  chat.Effects
	waiting  [][]byte
	sequence int
	done     bool
}

// Begin implements chat.Output.
func (o *output) Begin() { o.waiting = append(o.waiting, encodeStart(o.RequestID, o.effects)) }

// Part implements chat.Output. It ignores the sequences of records, because a resume sends a
// message from its start.
func (o *output) Part(_ chat.Cursor, part []byte) {
	o.waiting = append(o.waiting, encodeChunk(o.RequestID, o.sequence, part))
	o.sequence++
}

// Done implements chat.Output.
func (o *output) Done(chat.Cursor) {
	o.waiting = append(o.waiting, encodeReply(typeEnd, o.RequestID))
	o.done = true
}

// Flush implements chat.Output.
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

// Beat implements chat.Output. The connection pings the client instead.
func (o *output) Beat() error { return nil }
