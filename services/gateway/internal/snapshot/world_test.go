package snapshot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/snapshot"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// record is one of the log: a chunk, the end of a run, or a marker.
type record struct {
	sequence, prev int64
	chunk          *eventv1.Chunk
	terminal       string // the run that ended
	marker         bool
	at             int64
	anew           bool
	run            string
}

// moment is everything that stands at one time. What it holds is not changed any
// more.
type moment struct {
	session  *statev1.Session
	runs     []*statev1.Run
	messages []*eventv1.Message
	calls    []*statev1.Call
	log      []record
	floor    int64 // retention has taken everything up to here
	began    int64 // the log was begun anew here
	away     bool  // the log cannot be read
}

func (m *moment) clone() *moment {
	c := *m
	c.session = proto.CloneOf(m.session)
	c.runs = nil
	for _, r := range m.runs {
		c.runs = append(c.runs, proto.CloneOf(r))
	}
	c.calls = nil
	for _, call := range m.calls {
		c.calls = append(c.calls, proto.CloneOf(call))
	}
	c.messages, c.log = slices.Clone(m.messages), slices.Clone(m.log)
	return &c
}

// dump is the log for people.
func (m *moment) dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "steps %d (%d told, up to %d)", m.session.GetStepCount(), m.session.GetStreamStep(), m.session.GetStreamSequence())
	for _, r := range m.log {
		switch {
		case r.marker:
			fmt.Fprintf(&b, ", %d rewound to %d", r.sequence, r.at)
		case r.chunk != nil:
			fmt.Fprintf(&b, ", %d %s %s/%d", r.sequence, r.chunk.Type(), r.run, r.chunk.GetStep())
		default:
			fmt.Fprintf(&b, ", %d end of %s", r.sequence, r.run)
		}
	}
	return b.String()
}

func (m *moment) current() *statev1.Run {
	if len(m.runs) == 0 {
		return nil
	}
	return m.runs[len(m.runs)-1]
}

// reads answers each kind of read as of another moment, as it happens when the world
// goes on while a snapshot is made.
type reads struct {
	statev1.SessionServiceClient
	statev1.RunServiceClient
	streamv1.StreamServiceClient
	state, messages, log *moment
	page                 int // the largest page of the log and of the conversation
	asked                int // how often the session was read
	// later is the log from its second page on; nil for the same.
	later *moment
}

func (r *reads) GetSession(_ context.Context, _ *statev1.GetSessionRequest, _ ...grpc.CallOption) (*statev1.GetSessionResponse, error) {
	if r.asked++; r.asked == 2 { // all that comes later sees what was there last
		r.state, r.messages = r.log, r.log
	}
	return &statev1.GetSessionResponse{Session: r.state.session, CurrentRun: r.state.current(), Calls: r.state.calls}, nil
}

func (r *reads) ListMessages(_ context.Context, q *statev1.ListMessagesRequest, _ ...grpc.CallOption) (*statev1.ListMessagesResponse, error) {
	all := r.messages.messages
	out := &statev1.ListMessagesResponse{Total: int64(len(all))}
	end := min(int64(len(all)), q.GetOffset()+min(int64(q.GetLimit()), int64(r.page)))
	for i := q.GetOffset(); i < end; i++ {
		out.Messages = append(out.Messages, &statev1.StoredMessage{Ordinal: i, Message: all[i]})
	}
	out.HasMore = end < out.GetTotal()
	return out, nil
}

func (r *reads) GetRun(_ context.Context, q *statev1.GetRunRequest, _ ...grpc.CallOption) (*statev1.GetRunResponse, error) {
	return &statev1.GetRunResponse{Run: &statev1.Run{RunId: q.GetRunId(), MessageId: "msg-" + q.GetRunId()}}, nil
}

func (r *reads) ListRuns(_ context.Context, q *statev1.ListRunsRequest, _ ...grpc.CallOption) (*statev1.ListRunsResponse, error) {
	out := &statev1.ListRunsResponse{}
	for _, run := range slices.Backward(r.state.runs) {
		if q.GetBeforeTurn() == 0 || run.GetTurn() < q.GetBeforeTurn() {
			out.Runs = append(out.Runs, run)
		}
	}
	return out, nil
}

func (r *reads) List(_ context.Context, q *streamv1.ListRequest, _ ...grpc.CallOption) (*streamv1.ListResponse, error) {
	m := r.log
	if r.later != nil {
		r.log, r.later = r.later, nil
	}
	if m.away {
		return nil, fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "away")
	}
	from := q.GetFromSequence()
	out := &streamv1.ListResponse{NextSequence: from}
	if floor, gone := m.gone(from); gone {
		out.Floor, out.NextSequence, from = floor, floor, floor
	}
	if len(m.log) == 0 && out.GetFloor() == 0 {
		return nil, fault.New(fault.NotFound, "STREAM_NOT_FOUND", "nothing was written")
	}
	held := from
	for _, rec := range m.log {
		if rec.sequence <= out.GetNextSequence() {
			continue
		}
		if len(out.GetRecords()) == r.page {
			out.HasMore = true
			break
		}
		out.NextSequence = rec.sequence
		if rec.marker && rec.told(held, from > 0 || len(out.GetRecords()) > 0) {
			out.Records = slices.DeleteFunc(out.GetRecords(), func(former *streamv1.Record) bool {
				return former.GetSequence() > rec.at && (former.GetChunk() != nil || rec.at == 0)
			})
			held = rec.at
		}
		if !rec.marker || rec.at < from && rec.told(from, from > 0) {
			out.Records = append(out.Records, rec.listed())
		}
		if rec.chunk != nil {
			held = rec.sequence
		}
	}
	return out, nil
}

// gone reports whether a cursor leads nowhere, and where to read on from.
func (m *moment) gone(from int64) (floor int64, gone bool) {
	switch {
	case from+1 < m.began && (from > 0 || len(m.log) > 0):
		return m.began - 1, true
	case from < m.floor:
		return m.floor, true
	}
	return 0, false
}

// told reports whether the marker voids something that a reader holds.
func (r record) told(held int64, given bool) bool {
	switch {
	case r.at >= r.prev, r.anew && held > r.prev:
		return false
	case r.at == 0:
		return given
	}
	return held > r.at
}

func (r record) listed() *streamv1.Record {
	out := &streamv1.Record{Sequence: r.sequence, SessionId: "s"}
	switch {
	case r.chunk != nil:
		out.Record = &streamv1.Record_Chunk{Chunk: r.chunk}
	case r.marker:
		out.Record = &streamv1.Record_Rewound{Rewound: &streamv1.RewoundFrame{Sequence: r.sequence, At: r.at, RunId: r.run, SessionId: "s"}}
	default:
		out.Record = &streamv1.Record_Terminal{Terminal: &streamv1.Terminal{RunId: r.terminal}}
	}
	return out
}

// shown is the answer of GET /snapshot.
type shown struct {
	RunID          *string
	Messages       []uistream.UIMessage
	Offset, Total  int64
	HasMore        bool
	StreamSequence int64
	Status         string
	Version        int64
	CheckpointID   string
	Error          string
	Pending        map[string]json.RawMessage `json:"pendingClientToolCalls"`

	as *moment // how the session was when it was read
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// load makes a snapshot whose reads happen at these moments; later is that of the
// log's second page and of those behind it.
func load(t tester, state, messages, log, later *moment) shown {
	t.Helper()
	return loadFrom(t, &reads{state: state, messages: messages, log: log, later: later, page: 3})
}

func loadFrom(t tester, r *reads) shown {
	t.Helper()
	past := time.Unix(0, 0)
	l := &snapshot.Loader{
		Sessions: &conversation.Reader{Runs: r, Sessions: r},
		Stream:   r,
		Now:      func() time.Time { past = past.Add(time.Hour); return past }, // no patience
	}
	l.Sessions.Policy.Now = l.Now
	out := httptest.NewRecorder()
	request := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/snapshot", RawQuery: "sessionId=s"}}
	if err := l.Snapshot(out, request, "default"); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	var got shown
	if err := json.Unmarshal(out.Body.Bytes(), &got); err != nil {
		t.Fatalf("%s: %v", out.Body, err)
	}
	got.as = r.state
	return got
}

var _ tester = (*testing.T)(nil)
