package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// The requests here are sent by hand: the client library's stream handle caches answers
// without a lock, and must not be shared by goroutines.

// Codes of the server's answers.
const (
	apiAccountResources  = 10002
	apiNotAvailable      = 10008
	apiInsufficient      = 10023
	apiNoMessage         = 10037
	apiStorage           = 10047
	apiNoStream          = 10059
	apiWrongLast         = 10071 // another message is the last one
	apiStoreFailed       = 10077
	apiWrongLastInFlight = 10164 // another message is being written
)

// apiError is the refusal of a server.
type apiError struct {
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return strconv.Itoa(e.ErrCode) + " " + e.Description }

func isCode(err error, code int) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.ErrCode == code
}

// askPatience is how long a question waits before it is sent again. Servers that take a
// dead one for their leader drop what only the leader answers, and report nothing.
const askPatience = 1500 * time.Millisecond

// ask sends a question to the JetStream API, whose leader answers it, until there is an
// answer or ctx ends. A refusal is an *apiError.
func (l *Log) ask(ctx context.Context, method string, question []byte, answer any) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, askPatience)
		m, err := l.nc.RequestWithContext(attempt, "$JS.API."+method, question)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		return readAnswer(m.Data, method, answer)
	}
}

// askBatch sends a question that has at most limit answers, and calls take for each until it
// reports the last.
func (l *Log) askBatch(ctx context.Context, method string, question []byte, limit int, take func(*nats.Msg) (done bool, err error)) error {
	answers := make(chan *nats.Msg, limit)
	inbox := l.nc.NewInbox()
	sub, err := l.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails when the connection is closed
	if err := l.nc.PublishRequest("$JS.API."+method, inbox, question); err != nil {
		return err
	}
	for {
		select {
		case m := <-answers:
			if done, err := take(m); done || err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func readAnswer(data []byte, method string, answer any) error {
	var refusal struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(data, &refusal); err != nil {
		return fmt.Errorf("answer to %s: %w", method, err)
	}
	if refusal.Error != nil {
		return refusal.Error
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("answer to %s: %w", method, err)
	}
	return nil
}

// lastStored returns the sequence of the last message of a partition.
func (l *Log) lastStored(ctx context.Context, p *partition) (uint64, error) {
	ctx, cancel := l.link.request(ctx)
	defer cancel()
	var info struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	err := l.ask(ctx, "STREAM.INFO."+p.name, nil, &info)
	return info.State.Last, err
}
