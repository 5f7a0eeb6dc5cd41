package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	tenant = "acme"
	agent  = "worker"
	roots  = 8 // each with one child

	// callLimit bounds one attempt, patience all attempts of a request.
	callLimit = 20 * time.Second
	patience  = 3 * time.Minute
	retry     = 20 * time.Millisecond
)

// sessions are the ids of all sessions. A child follows its root.
var sessions = func() (ids []string) {
	for i := range roots {
		ids = append(ids, fmt.Sprintf("root-%d", i), fmt.Sprintf("root-%d/child", i))
	}
	return ids
}()

// world is the service under test and the observations of its clients.
type world struct {
	*testing.T
	ctx     context.Context //nolint:containedctx // a world is one test: it ends when everything has to be over
	proxies []*harness.Proxy
	conns   [][]*grpc.ClientConn // by replica
	closing atomic.Bool          // no new work begins
	zombies sync.WaitGroup
	ids     atomic.Int64
	ticks   atomic.Int64 // the clients' logical clock: a lower tick ended earlier

	mu      sync.Mutex
	history history
}

// client is the service on one replica.
type client struct {
	statev1.RunServiceClient
	statev1.SessionServiceClient
	statev1.WorkServiceClient
	statev1.CallServiceClient
}

// client returns a random connection to a random replica.
func (w *world) client() client {
	conns := w.conns[rand.IntN(len(w.conns))]
	conn := conns[rand.IntN(len(conns))]
	return client{
		statev1.NewRunServiceClient(conn), statev1.NewSessionServiceClient(conn),
		statev1.NewWorkServiceClient(conn), statev1.NewCallServiceClient(conn),
	}
}

// id returns a unique id.
func (w *world) id(prefix string) string { return fmt.Sprintf("%s-%d", prefix, w.ids.Add(1)) }

// observe records an observation of a client.
func (w *world) observe(note func(*history)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	note(&w.history)
}

// attempt sends a request until it succeeds or is refused permanently. unsure means that an earlier unanswered
// attempt may have been written.
func attempt[A any](w *world, send func(context.Context, client) (A, error)) (answer A, unsure bool, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for {
		answer, err = once(ctx, w.client(), send)
		kind := fault.KindOf(err)
		if err == nil || kind != fault.Unavailable && kind != fault.Exhausted {
			return answer, unsure, err
		}
		unsure = unsure || kind == fault.Unavailable
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return answer, true, errors.Join(errNoAnswer, err)
		}
	}
}

var errNoAnswer = errors.New("no answer in time")

func once[A any](ctx context.Context, c client, send func(context.Context, client) (A, error)) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return send(ctx, c)
}

// refused fails the test unless the refusal has one of the expected reasons.
func (w *world) refused(what string, err error, reasons ...string) {
	if err == nil {
		return
	}
	for _, reason := range reasons {
		if fault.ReasonOf(err) == reason {
			return
		}
	}
	if w.ctx.Err() == nil {
		w.Errorf("%s: %v (%s)", what, err, fault.ReasonOf(err))
	}
}

func pick[T any](from []T) T { return from[rand.IntN(len(from))] }

func chance(percent int) bool { return rand.IntN(100) < percent }

// history records the observations of the clients.
type history struct {
	starts   []start
	claims   []claim
	commits  []commit
	submits  []submit
	versions map[string]map[int64]string // by session and version: the write with that version
	acked    map[string]int64            // by session: the highest version in a response
	faults   map[string]int              // refusals by reason
	reads    int
}

// fate is the outcome of a write from its client's view.
type fate int

const (
	refused fate = iota // not written
	lost                // written completely or not at all
	acked               // written
)

// fateOf returns the fate of a request from the result of attempt.
func fateOf(unsure bool, err error) fate {
	switch {
	case err == nil:
		return acked
	case unsure:
		return lost
	default:
		return refused
	}
}

type start struct {
	session, key, run string
	fate              fate
}

type claim struct {
	session, run string
	epoch        int64
	told         int64 // the tick of its arrival at the executor
}

type commit struct {
	session, run string
	epoch        int64
	step         int32
	messages     []string          // ids, in their order
	log          []string          // items of the state's log
	consumed     map[string]string // answers read by the step, by call
	fate         fate
	begun        int64 // the tick of its first attempt
}

type submit struct {
	session, call, payload string
	outcome                statev1.SubmitCallResponse_Outcome
}

// wrote records the version of a write.
func (h *history) wrote(t *testing.T, session string, version int64, what string) {
	if h.versions[session] == nil {
		h.versions[session] = map[int64]string{}
	}
	if other := h.versions[session][version]; other != "" && other != what {
		t.Errorf("session %s: %s and %s were both told version %d", session, other, what, version)
	}
	h.versions[session][version] = what
	h.acked[session] = max(h.acked[session], version)
}
