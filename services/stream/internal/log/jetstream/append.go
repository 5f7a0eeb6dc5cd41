package jetstream

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// A message is published under the first subject. The server republishes it under the second one once it is
// stored. Notifications are not stored, and have the third.
//
//	holdfast.append.<partition>.<tenant>.<root>.<session>
//	holdfast.stored.<partition>.<tenant>.<root>.<session>
//	holdfast.notify.<partition>.<tenant>.<root>.<session>

func streamName(partition int) string    { return fmt.Sprintf("holdfast-live-%02d", partition) }
func appendSubject(partition int) string { return fmt.Sprintf("holdfast.append.%02d.", partition) }
func storedSubject(partition int) string { return fmt.Sprintf("holdfast.stored.%02d.", partition) }
func notifySubject(partition int) string { return fmt.Sprintf("holdfast.notify.%02d.", partition) }

// filter returns the subject of a scope's messages.
func filter(partition int, s log.Scope) string {
	session := "*"
	if !s.Family {
		session = token(s.Session)
	}
	return appendSubject(partition) + token(s.Tenant) + "." + token(s.Root) + "." + session
}

// token encodes an id as one valid token of a subject. Three ids of 256 bytes stay below the 4,096 bytes of a
// NATS control line.
func token(id string) string {
	if !strings.ContainsFunc(id, isEscaped) {
		return id
	}
	return strings.ReplaceAll(url.QueryEscape(id), ".", "%2E")
}

// isEscaped reports whether the character is escaped in a token.
func isEscaped(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '~'
}

// streamOf parses the end of a subject: tenant, root and session.
func streamOf(subject string) (log.Stream, error) {
	parts := strings.Split(subject, ".")
	if len(parts) < 3 {
		return log.Stream{}, fmt.Errorf("subject %q names no session", subject)
	}
	parts = parts[len(parts)-3:]
	for i, part := range parts {
		id, err := url.QueryUnescape(part)
		if err != nil {
			return log.Stream{}, fmt.Errorf("subject %q: %w", subject, err)
		}
		parts[i] = id
	}
	return log.Stream{Tenant: parts[0], Root: parts[1], Session: parts[2]}, nil
}

// A payload begins with the fields needed by the rules, so they are known without decoding the body:
//
//	version  epoch      last       body
//	1 byte   8 bytes    8 bytes    records
const (
	version     = 2
	prefixBytes = 1 + 8 + 8
)

func encode(m *log.Message) []byte {
	b := make([]byte, 0, prefixBytes+len(m.Body))
	b = append(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Epoch)) //nolint:gosec // decode reverses it
	b = binary.BigEndian.AppendUint64(b, uint64(m.Last))  //nolint:gosec // likewise
	return append(b, m.Body...)
}

// decode decodes a stored message. The subject may be the published or the republished one.
func decode(subject string, offset uint64, payload []byte) (log.Stream, *log.Message, error) {
	stream, err := streamOf(subject)
	if err != nil {
		return stream, nil, err
	}
	if len(payload) < prefixBytes || payload[0] != version {
		return stream, nil, fmt.Errorf("message %d is not one of this version", offset)
	}
	return stream, &log.Message{
		Offset:  offset,
		Session: stream.Session,
		Epoch:   int64(binary.BigEndian.Uint64(payload[1:])), //nolint:gosec // encode reverses it
		Last:    int64(binary.BigEndian.Uint64(payload[9:])), //nolint:gosec // likewise
		Body:    payload[prefixBytes:],
	}, nil
}

// The leader of a replicated partition may refuse an append shortly after it has acknowledged another one of the
// subject, usually for some microseconds. The pause between two attempts doubles from the first to the last.
const (
	firstInFlightPause = 250 * time.Microsecond
	lastInFlightPause  = 5 * time.Millisecond
)

// Append implements log.Writer.
func (l *Log) Append(ctx context.Context, s log.Stream, expected uint64, m *log.Message) (uint64, error) {
	p := l.partitionOf(s)
	message := &nats.Msg{
		Subject: filter(p.number, log.Scope{Stream: s}),
		Header:  nats.Header{headerExpected: []string{strconv.FormatUint(expected, 10)}},
		Data:    encode(m),
	}
	for pause := firstInFlightPause; ; pause = min(2*pause, lastInFlightPause) {
		reply, err := l.publish(ctx, message)
		if errors.Is(err, nats.ErrNoResponders) && l.restore(ctx, p) {
			return 0, log.ErrConflict // the expected message is gone
		}
		if err != nil {
			return 0, log.Unavailable("append", err)
		}
		sequence, err := readAcknowledgement(reply.Data)
		if err == nil || !isCode(err, codeInFlight) {
			return sequence, appendError(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, log.Unavailable("append", err)
		}
	}
}

// appendError classifies the answer to an append; nil for an acknowledgement.
func appendError(err error) error {
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
	default:
		return log.Unavailable("append", e)
	}
}

// receive receives the stored messages in the order of the server.
func (p *partition) receive(m *nats.Msg) {
	offset := number(m.Header, headerSequence)
	if offset == 0 {
		return // not from the log
	}
	p.mu.Lock()
	next := offset == p.received+1
	p.received = offset
	p.mu.Unlock()
	if next && !p.feed.HasFollowers() {
		return
	}
	stream, message, err := decode(m.Subject, offset, m.Data)
	if !next || err != nil { // a follower that reads the stored message receives the error
		p.breakFeed()
	}
	if err == nil {
		p.feed.Deliver(stream, message)
	}
}

// Notify implements log.Writer.
func (l *Log) Notify(_ context.Context, s log.Stream) error {
	subject := notifySubject(l.partitionOf(s).number) + token(s.Tenant) + "." + token(s.Root) + "." + token(s.Session)
	if err := l.nc.Publish(subject, nil); err != nil {
		return log.Unavailable("notify", err)
	}
	return nil
}

// receiveNotification passes on a notification of the server.
func (p *partition) receiveNotification(m *nats.Msg) {
	if stream, err := streamOf(m.Subject); err == nil {
		p.feed.Deliver(stream, &log.Message{Session: stream.Session})
	}
}

// Erase implements log.Writer.
func (l *Log) Erase(ctx context.Context, s log.Stream) error {
	if s.Root != "" {
		p := l.partitionOf(s)
		return l.purge(ctx, p, filter(p.number, log.Scope{Stream: s, Family: s.Session == ""}))
	}
	var errs []error
	for _, p := range l.partitions {
		errs = append(errs, l.purge(ctx, p, appendSubject(p.number)+token(s.Tenant)+".>"))
	}
	return errors.Join(errs...)
}

// purge removes the messages of a subject. A missing partition has none.
func (l *Log) purge(ctx context.Context, p *partition, subject string) error {
	question, err := json.Marshal(map[string]string{"filter": subject})
	if err != nil {
		return err
	}
	ctx, cancel := l.requestContext(ctx)
	defer cancel()
	if _, err := l.call(ctx, "STREAM.PURGE."+p.name, question); err != nil && !isMissing(err) {
		return log.Unavailable("erase", err)
	}
	return nil
}
