package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// inbox takes the answers to requests that have many. One subscription serves
// them all, so that a request costs no subscription of its own.
type inbox struct {
	nc     *nats.Conn
	prefix string

	mu   sync.Mutex
	next uint64
	open map[string]chan *nats.Msg
}

func openInbox(nc *nats.Conn) (*inbox, error) {
	in := &inbox{nc: nc, prefix: nc.NewInbox() + ".", open: map[string]chan *nats.Msg{}}
	sub, err := nc.Subscribe(in.prefix+"*", in.take)
	if err != nil {
		return nil, fmt.Errorf("open an inbox: %w", err)
	}
	// The channels below bound what is held; the subscription need not.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("open an inbox: %w", err)
	}
	return in, nil
}

func (in *inbox) take(m *nats.Msg) {
	token := strings.TrimPrefix(m.Subject, in.prefix)
	in.mu.Lock()
	answers := in.open[token]
	in.mu.Unlock()
	select {
	case answers <- m:
	default: // nobody asked, or more than was asked for: whoever asked sees the hole
	}
}

// ask sends a request and calls answer for each message that comes, until it
// says that it is the last. At most limit messages are taken.
func (in *inbox) ask(ctx context.Context, subject string, request []byte, limit int, answer func(*nats.Msg) (done bool, err error)) error {
	token, answers := in.register(limit)
	defer in.forget(token)
	if err := in.nc.PublishRequest(subject, in.prefix+token, request); err != nil {
		return err
	}
	for {
		select {
		case m := <-answers:
			if done, err := answer(m); done || err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// noResponders is the code of the answer to a question that nobody hears.
const noResponders = "503"

// answersKept is how many answers to one repeated question are held; the first is read.
const answersKept = 2

// askAgain sends a question with one answer, again after each pause, until an answer
// to one of them comes or ctx ends. nats.ErrNoResponders: nobody hears the subject.
func (in *inbox) askAgain(ctx context.Context, subject string, question []byte, pause time.Duration) (*nats.Msg, error) {
	token, answers := in.register(answersKept)
	defer in.forget(token)
	again := time.NewTicker(pause)
	defer again.Stop()
	for {
		if err := in.nc.PublishRequest(subject, in.prefix+token, question); err != nil {
			return nil, err
		}
		select {
		case m := <-answers:
			if len(m.Data) == 0 && m.Header.Get(headerCode) == noResponders {
				return nil, nats.ErrNoResponders
			}
			return m, nil
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (in *inbox) register(limit int) (string, chan *nats.Msg) {
	answers := make(chan *nats.Msg, limit)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.next++
	token := strconv.FormatUint(in.next, 36)
	in.open[token] = answers
	return token, answers
}

func (in *inbox) forget(token string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.open, token)
}
