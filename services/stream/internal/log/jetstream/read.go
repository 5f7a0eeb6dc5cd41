package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// A replica of a partition behind its leader is queried again after lagPause, up to lagAttempts times.
const (
	lagAttempts = 100
	lagPause    = 20 * time.Millisecond
)

var (
	errMissingAnswers = errors.New("messages of an answer are missing")
	errLagging        = errors.New("the copy of the partition that answers is behind its leader")
)

// Last implements log.Writer.
func (l *Log) Last(ctx context.Context, s log.Stream) (*log.Message, error) {
	ctx, cancel := l.requestContext(ctx)
	defer cancel()
	return l.last(ctx, l.partitionOf(s), log.Scope{Stream: s})
}

// last returns the scope's last message from the leader, which has every acknowledged message; nil for none.
func (l *Log) last(ctx context.Context, p *partition, s log.Scope) (*log.Message, error) {
	got, err := l.call(ctx, "STREAM.MSG.GET."+p.name, fmt.Appendf(nil, `{"last_by_subj":%q}`, filter(p.number, s)))
	switch {
	case isCode(err, jetstream.JSErrCodeMessageNotFound), isMissing(err) && l.restore(ctx, p):
		return nil, nil
	case err != nil:
		return nil, log.Unavailable("read the end of "+p.name, err)
	}
	_, m, err := decode(got.Message.Subject, got.Message.Sequence, got.Message.Data)
	return m, err
}

// Page implements log.Reader.
//
// Any replica of the partition may answer a direct get, including one that lags. With several replicas, Page
// first asks the leader for the last message, and accepts the end of the log only from a replica with this
// message.
func (l *Log) Page(ctx context.Context, s log.Scope, after uint64, limit int) (log.Page, error) {
	ctx, cancel := l.requestContext(ctx)
	defer cancel()
	p := l.partitionOf(s.Stream)
	for range lagAttempts {
		var last *log.Message
		var err error
		if l.options.Replicas > 1 {
			if last, err = l.last(ctx, p, s); err != nil || last == nil { // a replica that lags may still have erased messages
				return log.Page{}, err
			}
		}
		page, err := l.page(ctx, p, s, after, limit)
		if err != nil || page.More || last == nil {
			return page, err
		}
		reached := after
		if n := len(page.Messages); n > 0 {
			reached = page.Messages[n-1].Offset
		}
		if reached >= last.Offset {
			return page, nil
		}
		select {
		case <-ctx.Done():
			return log.Page{}, log.Unavailable("read "+p.name, ctx.Err())
		case <-time.After(lagPause):
		}
	}
	return log.Page{}, log.Unavailable("read "+p.name, errLagging)
}

// page reads a batch of messages from one replica.
func (l *Log) page(ctx context.Context, p *partition, s log.Scope, after uint64, limit int) (log.Page, error) {
	question := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`,
		after+1, filter(p.number, s), limit, log.PageBytes)
	c := collector{answers: make(chan *nats.Msg, limit+1)}
	err := l.collect(ctx, "DIRECT.GET."+p.name, question, &c)
	switch {
	case isMissing(err) && l.restore(ctx, p):
		return log.Page{}, nil
	case err != nil:
		return log.Page{}, log.Unavailable("read "+p.name, err)
	case c.corrupt != nil:
		return log.Page{}, fmt.Errorf("read %s: %w", p.name, c.corrupt)
	}
	return c.page, nil
}

// collect sends a request with several answers and collects them.
func (l *Log) collect(ctx context.Context, method string, question []byte, c *collector) error {
	inbox := l.nc.NewInbox()
	subscription, err := l.nc.ChanSubscribe(inbox, c.answers)
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }() // fails on a closed connection
	if err := l.nc.PublishRequest("$JS.API."+method, inbox, question); err != nil {
		return err
	}
	for {
		select {
		case m := <-c.answers:
			if done, err := c.add(m); done || err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// collector builds a page from the answers to a batched direct get. Each answer names the previous sequence, and
// the last one names the end, so a lost answer is noticed.
type collector struct {
	answers chan *nats.Msg
	page    log.Page
	last    uint64
	corrupt error
}

func (c *collector) add(m *nats.Msg) (done bool, err error) {
	code := m.Header.Get(headerCode)
	if (code == "" || code == "204") && number(m.Header, headerLastSequence) != c.last {
		return true, errMissingAnswers
	}
	switch code {
	case "":
		c.last = number(m.Header, headerSequence)
		_, message, err := decode(m.Header.Get(headerSubject), c.last, m.Data)
		if err != nil {
			c.corrupt = err   // continue to the end of the batch
			return false, nil //nolint:nilerr // the caller returns c.corrupt
		}
		c.page.Messages = append(c.page.Messages, message)
		return false, nil
	case "204": // the end of the batch
		c.page.More = number(m.Header, headerPending) > 0
		return true, nil
	case "404": // no message
		return true, nil
	case "503":
		return true, nats.ErrNoResponders
	}
	return true, fmt.Errorf("the server answers %s %s", code, m.Header.Get("Description"))
}

// NATS headers. Messages have no headers of ours.
const (
	headerExpected     = "Nats-Expected-Last-Subject-Sequence"
	headerSubject      = "Nats-Subject"
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerPending      = "Nats-Num-Pending"
	headerCode         = "Status"
)

// number returns a numeric header, or 0.
func number(h nats.Header, name string) uint64 {
	n, err := strconv.ParseUint(h.Get(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// callTimeout is how long a request waits before it is repeated. Servers that take a dead server for their
// leader drop requests for the leader silently.
const callTimeout = 1500 * time.Millisecond

// call repeats a request to the JetStream API, which the leader answers, until an answer arrives or ctx ends. It
// does not use the client library's stream handle, because the handle caches answers without a lock and
// goroutines must not share it.
func (l *Log) call(ctx context.Context, method string, question []byte) (answer, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, callTimeout)
		m, err := l.nc.RequestWithContext(attempt, "$JS.API."+method, question)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return answer{}, err
		}
		return readAnswer(m.Data)
	}
}

// answer is the server's answer to an append, to a get of the last message, or to a stream info request.
type answer struct {
	Error    *jetstream.APIError `json:"error"`
	Sequence uint64              `json:"seq"`
	Message  struct {
		Subject  string `json:"subject"`
		Sequence uint64 `json:"seq"`
		Data     []byte `json:"data"`
	} `json:"message"`
	State struct {
		Last uint64 `json:"last_seq"`
	} `json:"state"`
}

// readAnswer returns a refusal as *jetstream.APIError.
func readAnswer(data []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("answer of the server: %w", err)
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}

// Error codes of the server without a name in the client library.
const (
	codeAccountResources = 10002
	codeInsufficient     = 10023
	codeStorage          = 10047
	codeStoreFailed      = 10077
	codeInFlight         = 10164 // another append to the subject is in flight
)

func isCode(err error, code jetstream.ErrorCode) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && e.ErrorCode == code
}
