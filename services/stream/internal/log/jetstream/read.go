package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// A copy of a partition that is behind its leader is asked again after lagPause, so often.
const (
	lagAttempts = 100
	lagPause    = 20 * time.Millisecond
)

var (
	errHole    = errors.New("messages of an answer are missing")
	errLagging = errors.New("the copy of the partition that answers is behind its leader")
)

// Last implements log.Writer.
func (l *Log) Last(ctx context.Context, s log.Stream) (*log.Message, error) {
	ctx, cancel := l.link.request(ctx)
	defer cancel()
	return l.last(ctx, l.partitionOf(s), log.Scope{Stream: s})
}

// last asks the leader, which has every acknowledged message, for the last one of the scope;
// nil when there is none.
func (l *Log) last(ctx context.Context, p *partition, s log.Scope) (*log.Message, error) {
	var body struct {
		Message struct {
			Subject  string `json:"subject"`
			Sequence uint64 `json:"seq"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	err := l.ask(ctx, "STREAM.MSG.GET."+p.name, fmt.Appendf(nil, `{"last_by_subj":%q}`, l.names.filter(p.number, s)), &body)
	switch {
	case isCode(err, apiNoMessage), gone(err) && l.restore(ctx, p):
		return nil, nil
	case err != nil:
		return nil, log.Unavailable("look at the end of "+p.name, err)
	}
	stream, err := streamOf(body.Message.Subject)
	if err != nil {
		return nil, err
	}
	return decode(stream.Session, body.Message.Sequence, body.Message.Data)
}

// Page implements log.Reader.
//
// Any copy of the partition may answer a direct get, one that lags behind as well. So when
// there is more than one, the leader is asked for the last message first, and the end of what
// is stored counts only from a copy that has it.
func (l *Log) Page(ctx context.Context, s log.Scope, after uint64, limit int) (log.Page, error) {
	ctx, cancel := l.link.request(ctx)
	defer cancel()
	p := l.partitionOf(s.Stream)
	if l.options.Replicas == 1 {
		return l.page(ctx, p, s, after, limit)
	}
	for range lagAttempts {
		last, err := l.last(ctx, p, s)
		if err != nil {
			return log.Page{}, err
		}
		page, err := l.page(ctx, p, s, after, limit)
		if err != nil || page.More || complete(page, after, last) {
			return page, err
		}
		select {
		case <-ctx.Done():
			return log.Page{}, log.Unavailable("read "+p.name, ctx.Err())
		case <-time.After(lagPause):
		}
	}
	return log.Page{}, log.Unavailable("read "+p.name, errLagging)
}

// complete reports whether a page that is the last one reaches as far as the leader's last
// message.
func complete(page log.Page, after uint64, last *log.Message) bool {
	if last == nil {
		return true
	}
	if n := len(page.Messages); n > 0 {
		after = page.Messages[n-1].Offset
	}
	return after >= last.Offset
}

// page asks one copy for a batch of messages.
func (l *Log) page(ctx context.Context, p *partition, s log.Scope, after uint64, limit int) (log.Page, error) {
	request := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`,
		after+1, l.names.filter(p.number, s), limit, log.PageBytes)
	var c collector
	err := l.askBatch(ctx, "DIRECT.GET."+p.name, request, limit+1, c.take)
	switch {
	case gone(err) && l.restore(ctx, p):
		return log.Page{}, nil
	case err != nil:
		return log.Page{}, log.Unavailable("read "+p.name, err)
	case c.corrupt != nil:
		return log.Page{}, fmt.Errorf("read %s: %w", p.name, c.corrupt)
	}
	return c.page, nil
}

// collector makes a page of the answers to a batched direct get. Each names the sequence of
// the one before, and the last names what it ends with, so a lost one is seen.
type collector struct {
	page    log.Page
	last    uint64
	corrupt error
}

func (c *collector) take(m *nats.Msg) (done bool, err error) {
	switch value(m.Header, headerCode) {
	case "":
		return false, c.add(m)
	case "204": // the end of the batch
		c.page.More = number(m.Header, headerPending) > 0
		if number(m.Header, headerLastSequence) != c.last {
			return true, errHole
		}
		return true, nil
	case "404": // no message
		return true, nil
	case "503":
		return true, nats.ErrNoResponders
	}
	return true, fmt.Errorf("the server answers %s %s", value(m.Header, headerCode), value(m.Header, "Description"))
}

func (c *collector) add(m *nats.Msg) error {
	if number(m.Header, headerLastSequence) != c.last {
		return errHole
	}
	c.last = number(m.Header, headerSequence)
	stream, err := streamOf(value(m.Header, headerSubject))
	if err != nil {
		return err
	}
	message, err := decode(stream.Session, c.last, m.Data)
	if err != nil {
		c.corrupt = err // the batch goes on to its end
		return nil
	}
	c.page.Messages = append(c.page.Messages, message)
	return nil
}
