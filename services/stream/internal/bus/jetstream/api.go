package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// The requests here are sent by hand: the client library's stream handle keeps
// what it was told without a lock, and must not be shared by goroutines.

// Codes of the server's answers.
const (
	apiAccountResources  = 10002
	apiNotAvailable      = 10008
	apiInsufficient      = 10023
	apiNoMessage         = 10037
	apiStorage           = 10047
	apiNoStream          = 10059
	apiWrongLast         = 10071 // another record is the last one
	apiStoreFailed       = 10077
	apiWrongLastInFlight = 10164 // another record is being written
)

// apiError is what the server says when it refuses.
type apiError struct {
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return strconv.Itoa(e.ErrCode) + " " + e.Description }

func isCode(err error, code int) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.ErrCode == code
}

// api sends a request to the JetStream API, whose leader answers it, and reads
// the answer. A refusal is an *apiError.
func (b *Bus) api(ctx context.Context, method string, request []byte, answer any) error {
	m, err := b.nc.RequestWithContext(ctx, "$JS.API."+method, request)
	if err != nil {
		return err
	}
	return readAnswer(m, method, answer)
}

// askAgain is how long a question waits before it is asked again.
const askAgain = time.Second

// ask is api for a question: it is asked again and again until ctx ends. Servers that
// take a dead one for their leader drop what only the leader answers, and say nothing
// of it; the next leader answers the first question that it hears.
func (b *Bus) ask(ctx context.Context, method string, question []byte, answer any) error {
	m, err := b.inbox.askAgain(ctx, "$JS.API."+method, question, askAgain)
	if err != nil {
		return err
	}
	return readAnswer(m, method, answer)
}

func readAnswer(m *nats.Msg, method string, answer any) error {
	var refusal struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &refusal); err != nil {
		return fmt.Errorf("answer to %s: %w", method, err)
	}
	if refusal.Error != nil {
		return refusal.Error
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("answer to %s: %w", method, err)
	}
	return nil
}

// state is where a partition stands, as one server says it.
type state struct {
	First    uint64           `json:"first_seq"`
	Last     uint64           `json:"last_seq"`
	Subjects map[string]int64 `json:"subjects"` // records of the subjects asked for

	began  uint64 // where the partition was made, or begun anew
	leader string // the server that says it; "" when there is one only
}

// halfRenewed reports whether a renewal was cut short: what is stored before
// began is yet to be removed.
func (s state) halfRenewed() bool { return s.First < s.began }

// look returns where the partition stands. With a subject it also counts its
// records, after it has looked at the rest.
func (b *Bus) look(ctx context.Context, partition int, subject string) (state, error) {
	var request []byte
	if subject != "" {
		request = fmt.Appendf(nil, `{"subjects_filter":%q}`, subject)
	}
	var body struct {
		State  state `json:"state"`
		Config struct {
			First    uint64            `json:"first_seq"`
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	name := b.names.stream(partition)
	if err := b.ask(ctx, "STREAM.INFO."+name, request, &body); err != nil {
		return state{}, bus.Unavailable("look at "+name, err)
	}
	answer := body.State
	answer.began = max(body.Config.First, beganOf(body.Config.Metadata), 1)
	answer.leader = body.Cluster.Leader
	return answer, nil
}

// purge removes what the partition has before the sequence: the records that
// match the filter, or all with "". A sequence above the last record becomes
// that of the next one then. Repeating it is safe.
func (b *Bus) purge(ctx context.Context, partition int, filter string, before uint64) error {
	if before <= 1 {
		return nil // to the server, 0 would mean everything
	}
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	request := fmt.Appendf(nil, `{"seq":%d}`, before)
	if filter != "" {
		request = fmt.Appendf(nil, `{"seq":%d,"filter":%q}`, before, filter)
	}
	name := b.names.stream(partition)
	var ignored struct{}
	if err := b.api(ctx, "STREAM.PURGE."+name, request, &ignored); err != nil {
		return bus.Unavailable(fmt.Sprintf("remove what %s has before %d", name, before), err)
	}
	return nil
}

// remove removes one record, if it is still there.
func (b *Bus) remove(ctx context.Context, partition int, sequence uint64) error {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	name := b.names.stream(partition)
	var ignored struct{}
	err := b.api(ctx, "STREAM.MSG.DELETE."+name, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, sequence), &ignored)
	if err == nil {
		return nil
	}
	// The server has several answers for a record that has gone; look instead.
	lookErr := b.ask(ctx, "STREAM.MSG.GET."+name, fmt.Appendf(nil, `{"seq":%d}`, sequence), &ignored)
	if isCode(lookErr, apiNoMessage) {
		return nil
	}
	return bus.Unavailable(fmt.Sprintf("remove record %d of %s", sequence, name), err)
}
