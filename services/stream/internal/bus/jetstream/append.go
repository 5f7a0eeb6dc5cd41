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
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Append implements bus.Writer.
func (b *Bus) Append(ctx context.Context, s bus.Stream, expected uint64, r *chunklog.Record) (uint64, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	p := b.partitionOf(s)
	m := &nats.Msg{Subject: b.names.subject(p.number, s), Header: encode(r, expected), Data: r.Payload}
	pause := firstInFlightPause
	for began := time.Now(); ; {
		answer, err := b.nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, appendError(err)
		}
		sequence, err := acknowledged(answer)
		if !isCode(err, apiWrongLastInFlight) {
			return sequence, err
		}
		if time.Since(began) > inFlightPatience {
			return 0, b.stuck(ctx, p, m.Subject, expected, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, bus.Unavailable("append", err)
		}
		pause = min(2*pause, lastInFlightPause)
	}
}

// The leader of a common partition refuses a record while it takes another one
// of the subject for in flight. It does so for a moment after it has acknowledged
// that one, mostly some microseconds, so the pause between two attempts doubles from
// the first to the last; and until it is leader no more when a purge to above the end has
// overtaken it (seen in nats-server 2.15.1: the entry is skipped, and its mark
// stays).
const (
	firstInFlightPause = 250 * time.Microsecond
	lastInFlightPause  = 5 * time.Millisecond
	inFlightPatience   = 3 * time.Second
)

// stuck says why a record was refused for so long. Others who write the subject
// all the time are no reason to do something: then another record is the last.
func (b *Bus) stuck(ctx context.Context, p *partition, subject string, expected uint64, refused error) error {
	last, err := b.lastSequence(ctx, p, subject)
	switch {
	case err != nil:
		return err
	case last != expected:
		return bus.ErrConflict
	}
	b.freeInFlight(ctx, p)
	return bus.Unavailable("append", refused)
}

// freeInFlight has the partition choose a leader, which knows of nothing in
// flight; once for all who find it stuck at about one time.
func (b *Bus) freeInFlight(ctx context.Context, p *partition) {
	if !p.freeing.CompareAndSwap(false, true) {
		return
	}
	defer p.freeing.Store(false)
	if time.Since(time.Unix(0, p.freed.Load())) < inFlightPatience {
		return
	}
	p.freed.Store(time.Now().UnixNano())
	name := b.names.stream(p.number)
	b.log.Warn("NATS takes a record for in flight that is not; the partition gets another leader", "partition", name)
	var ignored struct{}
	if err := b.api(ctx, "STREAM.LEADER.STEPDOWN."+name, nil, &ignored); err != nil {
		b.log.Warn("the partition did not get another leader", "partition", name, "error", err)
	}
}

// acknowledged reads what the server says to a record.
func acknowledged(answer *nats.Msg) (uint64, error) {
	if sequence := plainSequence(answer.Data); sequence > 0 {
		return sequence, nil
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

// plainSequence reads an acknowledgement that says no more than the stream and the
// sequence, as nearly all do; 0 for anything else. One comes for each record.
func plainSequence(answer []byte) uint64 {
	rest, begins := bytes.CutPrefix(answer, []byte(`{"stream":"`))
	_, rest, named := bytes.Cut(rest, []byte(`"`))
	rest, numbered := bytes.CutPrefix(bytes.TrimLeft(rest, ", "), []byte(`"seq":`))
	digits, ends := bytes.CutSuffix(rest, []byte("}"))
	if !begins || !named || !numbered || !ends {
		return 0
	}
	sequence, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return sequence
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
	case apiWrongLast:
		return bus.ErrConflict
	case apiWrongLastInFlight:
		return e
	case apiAccountResources, apiInsufficient, apiStorage, apiStoreFailed:
		return fmt.Errorf("append: %w: %w", e,
			fault.New(fault.Exhausted, "LOG_FULL", "the chunk log has no room; readers load from the state service meanwhile"))
	case apiNotAvailable:
		return bus.Unavailable("append", e)
	}
	return fmt.Errorf("append: %w", e)
}
