package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Append implements bus.Writer.
func (b *Bus) Append(ctx context.Context, s bus.Stream, expected uint64, r *chunklog.Record) (uint64, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	p := b.partitionOf(s)
	answer, err := b.nc.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: b.names.subject(p.number, s),
		Header:  encode(r, expected),
		Data:    r.Payload,
	})
	if err != nil {
		return 0, appendError(err)
	}
	var ack struct {
		Sequence uint64    `json:"seq"`
		Error    *apiError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return 0, appendError(fmt.Errorf("acknowledgement: %w", err))
	}
	if ack.Error != nil {
		return 0, refusal(ack.Error)
	}
	return ack.Sequence, nil
}

// appendError tells a request that was never sent from one whose answer was
// lost.
func appendError(err error) error {
	for _, unsent := range []error{
		nats.ErrNoResponders, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed,
		nats.ErrConnectionReconnecting, nats.ErrConnectionDraining,
	} {
		if errors.Is(err, unsent) {
			return bus.Unavailable("append", err)
		}
	}
	return bus.Unavailable("append", errors.Join(bus.ErrUnknown, err))
}

func refusal(e *apiError) error {
	switch e.ErrCode {
	case apiWrongLast, apiWrongLastInFlight:
		return bus.ErrConflict
	case apiAccountResources, apiInsufficient, apiStorage, apiStoreFailed:
		return fmt.Errorf("append: %w: %w", e,
			fault.New(fault.Exhausted, "LOG_FULL", "the chunk log has no room; readers load from the state service meanwhile"))
	case apiNotAvailable:
		return bus.Unavailable("append", e)
	}
	return fmt.Errorf("append: %w", e)
}
