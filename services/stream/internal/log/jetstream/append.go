package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// The leader of a partition with several copies refuses a message for a moment after it has
// acknowledged another one of the subject, mostly some microseconds. So the pause between two
// attempts doubles from the first to the last.
const (
	firstInFlightPause = 250 * time.Microsecond
	lastInFlightPause  = 5 * time.Millisecond
)

// Append implements log.Writer.
func (l *Log) Append(ctx context.Context, s log.Stream, expected uint64, m *log.Message) (uint64, error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	p := l.partitionOf(s)
	message := &nats.Msg{
		Subject: filter(p.number, log.Scope{Stream: s}),
		Header:  nats.Header{headerExpected: []string{strconv.FormatUint(expected, 10)}},
		Data:    encode(m),
	}
	for pause := firstInFlightPause; ; pause = min(2*pause, lastInFlightPause) {
		reply, err := l.nc.RequestMsgWithContext(ctx, message)
		if errors.Is(err, nats.ErrNoResponders) && l.restore(ctx, p) {
			return 0, log.ErrConflict // what was expected is not there any more
		}
		if err != nil {
			return 0, log.Unavailable("append", err)
		}
		acknowledged, err := readAnswer(reply.Data)
		if !isCode(err, codeInFlight) {
			return acknowledged.Sequence, refusal(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, log.Unavailable("append", err)
		}
	}
}

// refusal classifies the answer to an append; nil for an acknowledgement.
func refusal(err error) error {
	e, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case !refused:
		return log.Unavailable("append", err)
	}
	switch e.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence:
		return log.ErrConflict
	case codeAccountResources, codeInsufficient, codeStorage, codeStoreFailed:
		return fmt.Errorf("append: %w: %w", e,
			fault.New(fault.Exhausted, "LOG_FULL", "the live log has no room; readers read the step when it is committed"))
	}
	return log.Unavailable("append", e)
}
