package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

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
	ctx, cancel := l.link.request(ctx)
	defer cancel()
	p := l.partitionOf(s)
	request := &nats.Msg{
		Subject: l.names.filter(p.number, log.Scope{Stream: s}),
		Header:  nats.Header{headerExpected: []string{strconv.FormatUint(expected, 10)}},
		Data:    encode(m),
	}
	for pause := firstInFlightPause; ; pause = min(2*pause, lastInFlightPause) {
		answer, err := l.nc.RequestMsgWithContext(ctx, request)
		if errors.Is(err, nats.ErrNoResponders) && l.restore(ctx, p) {
			return 0, log.ErrConflict // what was expected is not there any more
		}
		if err != nil {
			return 0, log.Unavailable("append", err)
		}
		offset, err := acknowledged(answer.Data)
		if !isCode(err, apiWrongLastInFlight) {
			return offset, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, log.Unavailable("append", err)
		}
	}
}

// acknowledged reads the answer of the server to a message.
func acknowledged(answer []byte) (uint64, error) {
	if offset := plainOffset(answer); offset > 0 {
		return offset, nil
	}
	var ack struct {
		Sequence uint64    `json:"seq"`
		Error    *apiError `json:"error"`
	}
	if err := json.Unmarshal(answer, &ack); err != nil {
		return 0, log.Unavailable("append", fmt.Errorf("acknowledgement: %w", err))
	}
	if ack.Error != nil {
		return 0, refusal(ack.Error)
	}
	return ack.Sequence, nil
}

// plainOffset reads an acknowledgement that names the stream and the sequence and nothing
// more, as nearly all do; 0 for anything else. One comes for each message.
func plainOffset(answer []byte) uint64 {
	rest, begins := bytes.CutPrefix(answer, []byte(`{"stream":"`))
	_, rest, named := bytes.Cut(rest, []byte(`"`))
	rest, numbered := bytes.CutPrefix(bytes.TrimLeft(rest, ", "), []byte(`"seq":`))
	digits, ends := bytes.CutSuffix(rest, []byte("}"))
	if !begins || !named || !numbered || !ends {
		return 0
	}
	offset, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return offset
}

func refusal(e *apiError) error {
	switch e.ErrCode {
	case apiWrongLast:
		return log.ErrConflict
	case apiWrongLastInFlight:
		return e
	case apiAccountResources, apiInsufficient, apiStorage, apiStoreFailed:
		return fmt.Errorf("append: %w: %w", e,
			fault.New(fault.Exhausted, "LOG_FULL", "the live log has no room; readers read the step when it is committed"))
	}
	return log.Unavailable("append", e)
}
