package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Limits of a page of history. The server stops after the record that crosses
// pageBytes.
const (
	pageRecords = 256
	pageBytes   = 512 << 10
)

// A copy of a partition that is behind the leader is asked again after
// lagPause, so often. Then the leader is asked itself, for leaderRecords at most,
// since it gives one at a time.
const (
	lagAttempts   = 25
	lagPause      = 10 * time.Millisecond
	leaderRecords = 64
)

var errHole = errors.New("messages of an answer are missing")

// History implements bus.Reader.
//
// Any copy of the partition may answer a direct get, also one that lags behind.
// So when there is more than one, the leader is asked for the last record first,
// and a copy until it has that one. Where the leader has nothing, a copy that has
// something lags, too: the stream was purged, or the partition begun anew. A copy
// may lag for long when its server was away, and a server that has a copy asks no
// other for its clients: then the leader gives the page, slowly. What was removed
// from the middle may be shown for a moment by a copy that lags.
func (b *Bus) History(ctx context.Context, s bus.Scope, after uint64) (bus.Page, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	p := b.partitionOf(s.Stream)
	filter := b.names.filter(p.number, s)
	if b.options.Replicas == 1 {
		return b.page(ctx, p, filter, after, pageRecords)
	}
	for range lagAttempts {
		last, err := b.last(ctx, p, filter)
		if err != nil {
			return bus.Page{}, err
		}
		page, err := b.page(ctx, p, filter, after, pageRecords)
		if err != nil || page.More || agree(page, last, after) {
			return page, err
		}
		select {
		case <-ctx.Done():
			return bus.Page{}, bus.Unavailable("read history", ctx.Err())
		case <-time.After(lagPause):
		}
	}
	return b.leaderPage(ctx, p, filter, after)
}

// leaderPage reads a page from the leader, record by record.
func (b *Bus) leaderPage(ctx context.Context, p *partition, filter string, after uint64) (bus.Page, error) {
	var page bus.Page
	bytes := 0
	for {
		r, err := b.first(ctx, p, filter, after+1)
		if err != nil {
			return bus.Page{}, err
		}
		if r == nil {
			return page, nil
		}
		if len(page.Records) == leaderRecords || bytes >= pageBytes {
			page.More = true
			return page, nil
		}
		page.Records = append(page.Records, r)
		bytes += len(r.Payload)
		after = r.Sequence
	}
}

// agree reports whether the copy that gave the last page after the cursor has
// what the leader, asked before, says is the last record.
func agree(page bus.Page, last *chunklog.Record, after uint64) bool {
	n := len(page.Records)
	if n == 0 {
		return last == nil || last.Sequence <= after
	}
	return last != nil && page.Records[n-1].Sequence >= last.Sequence
}

// page asks for one batch of records that match the filter.
func (b *Bus) page(ctx context.Context, p *partition, filter string, after uint64, count int) (bus.Page, error) {
	request := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, after+1, filter, count, pageBytes)
	var c collector
	err := b.inbox.ask(ctx, "$JS.API.DIRECT.GET."+b.names.stream(p.number), request, count+1, c.take)
	if err != nil {
		return bus.Page{}, bus.Unavailable("read "+b.names.stream(p.number), err)
	}
	if c.corrupt != nil {
		return bus.Page{}, fmt.Errorf("read %s: %w", b.names.stream(p.number), c.corrupt)
	}
	return c.page, nil
}

// collector makes a page of the messages of a batch. Each says the sequence of
// the one before, and the last what it ends with, so a lost one is seen.
type collector struct {
	page    bus.Page
	last    uint64
	corrupt error
}

func (c *collector) take(m *nats.Msg) (done bool, err error) {
	p := parser{header: m.Header}
	switch p.value(headerCode) {
	case "":
		return false, c.add(m, &p)
	case "204": // the end of the batch
		c.page.More = p.sequence(headerPending) > 0
		if p.sequence(headerLastSequence) != c.last {
			return true, errHole
		}
		return true, p.err
	case "404": // no record
		return true, nil
	case noResponders:
		return true, nats.ErrNoResponders
	}
	return true, fmt.Errorf("the server answers %s %s", p.value(headerCode), p.value("Description"))
}

func (c *collector) add(m *nats.Msg, p *parser) error {
	sequence := p.sequence(headerSequence)
	if p.err != nil {
		return p.err
	}
	if p.sequence(headerLastSequence) != c.last {
		return errHole
	}
	c.last = sequence
	record, corrupt := decode(m.Header, p.value(headerSubject), sequence, m.Data)
	if corrupt != nil {
		c.corrupt = corrupt // the batch goes on to its end
	} else {
		c.page.Records = append(c.page.Records, record)
	}
	return nil
}

// Last implements bus.Writer.
func (b *Bus) Last(ctx context.Context, s bus.Stream) (*chunklog.Record, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	p := b.partitionOf(s)
	return b.last(ctx, p, b.names.subject(p.number, s))
}

// last asks the leader, which has every acknowledged record, for the last one
// that matches the filter; nil when there is none.
func (b *Bus) last(ctx context.Context, p *partition, filter string) (*chunklog.Record, error) {
	return b.one(ctx, p, fmt.Appendf(nil, `{"last_by_subj":%q}`, filter))
}

// first asks the leader for the first record that matches the filter and is not
// before the sequence; nil when there is none.
func (b *Bus) first(ctx context.Context, p *partition, filter string, from uint64) (*chunklog.Record, error) {
	return b.one(ctx, p, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, max(from, 1), filter))
}

// one asks the leader for one record; nil when it has none.
func (b *Bus) one(ctx context.Context, p *partition, request []byte) (*chunklog.Record, error) {
	name := b.names.stream(p.number)
	var body struct {
		Message struct {
			Subject  string `json:"subject"`
			Sequence uint64 `json:"seq"`
			Headers  []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	err := b.ask(ctx, "STREAM.MSG.GET."+name, request, &body)
	if isCode(err, apiNoMessage) {
		return nil, nil
	}
	if err != nil {
		return nil, bus.Unavailable("look at a record of "+name, err)
	}
	header, err := nats.DecodeHeadersMsg(body.Message.Headers)
	if err != nil {
		return nil, fmt.Errorf("headers of record %d: %w", body.Message.Sequence, err)
	}
	return decode(header, body.Message.Subject, body.Message.Sequence, body.Message.Data)
}
