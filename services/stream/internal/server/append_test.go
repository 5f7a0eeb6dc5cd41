package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/memory"
)

func TestAnOldOwnerIsFencedOnEveryReplica(t *testing.T) {
	t.Parallel()
	shared := memory.New(memory.Options{})
	one, two := open(t, shared), open(t, shared)
	old, heir := &writer{replica: one, ref: refOf("s"), epoch: 1}, &writer{replica: two, ref: refOf("s"), epoch: 2}
	old.mustSend(t, old.begin(1, 1, "a"))
	old.mustSend(t, old.continueWith("b"))
	heir.mustSend(t, heir.begin(1, 33, "c"))
	for range 2 { // the first refusal updates the replica's cache
		old.mustBeRefused(t, old.continueWith("d"), "WRITER_FENCED")
		old.mustBeRefused(t, old.check(), "WRITER_FENCED")
		old.mustBeRefused(t, old.begin(1, 2, "d"), "WRITER_FENCED")
		old.mustBeRefused(t, old.commit(1), "WRITER_FENCED")
	}
	heir.mustSend(t, heir.continueWith("e"))
	one.read(t, &streamv2.ReadRequest{Stream: refOf("s"), StoredOnly: true}).expect(t, "s 1.33.1 c", "s 1.33.2 e", "caught up")
}

func TestAnAppendNeedsTheGrantOfItsClaim(t *testing.T) {
	t.Parallel()
	keys, err := grant.Config{Secret: strings.Repeat("s", grant.MinSecret)}.Keys()
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{replica: openWith(t, memory.New(memory.Options{}), keys), ref: childOf("root", "s"), epoch: 2}
	held := grant.Grant{Tenant: "t", Root: "root", Session: "s", Run: "run", Epoch: 2}
	refused := func(name, reason string, signed []byte) {
		t.Helper()
		for _, r := range []*streamv2.AppendRequest{w.begin(1, 1, "a"), w.check(), w.commit(1)} {
			r.Grant = signed
			if _, err := w.Append(t.Context(), r); fault.KindOf(err) != fault.Denied || fault.ReasonOf(err) != reason {
				t.Errorf("%s: got %v, want %s", name, err, reason)
			}
		}
	}
	refused("no grant", "GRANT_MISSING", nil)
	refused("a made-up grant", "GRANT_REFUSED", []byte(strings.Repeat("x", 80)))
	for name, change := range map[string]func(g *grant.Grant){
		"another tenant": func(g *grant.Grant) { g.Tenant = "u" }, "another root": func(g *grant.Grant) { g.Root = "s" },
		"another session": func(g *grant.Grant) { g.Session = "root" }, "an older epoch": func(g *grant.Grant) { g.Epoch = 1 },
		"a method": func(g *grant.Grant) { g.Run = "" },
	} {
		other := held
		change(&other)
		refused(name, "GRANT_REFUSED", keys.Sign(other))
	}
	r := w.begin(1, 1, "a")
	r.Grant = keys.Sign(held)
	w.mustSend(t, r)
	w.read(t, &streamv2.ReadRequest{Stream: w.ref, StoredOnly: true}).expect(t, "s 1.1.1 a", "caught up")
}

func TestARequestMayBeRepeatedAsItIs(t *testing.T) {
	t.Parallel()
	shared := memory.New(memory.Options{})
	one, two := open(t, shared), open(t, shared)
	w := &writer{replica: one, ref: refOf("s"), epoch: 1}
	for _, r := range []func() *streamv2.AppendRequest{
		func() *streamv2.AppendRequest { return w.begin(1, 1, "a", "b") },
		func() *streamv2.AppendRequest { return w.continueWith("c") },
		func() *streamv2.AppendRequest { return w.continueWith("d", "e") },
		func() *streamv2.AppendRequest { return w.continueAndCommit(1, "f", "g") },
		func() *streamv2.AppendRequest { return w.continueAndCommit(2, "h", "i") },
		func() *streamv2.AppendRequest { return w.commit(3) },
	} {
		request := r()
		w.mustSend(t, request)
		for _, h := range []replica{one, two} {
			if _, err := h.Append(t.Context(), request); err != nil {
				t.Errorf("repeated: %v", err)
			}
		}
	}
	one.read(t, &streamv2.ReadRequest{Stream: refOf("s"), StoredOnly: true}).
		expect(t, "s 1.1.1 a b", "s 1.1.3 c", "s 1.1.4 d e", "s 1.1.6 f", "s commits 1",
			"s 2.1.1 g", "s 2.1.2 h", "s commits 2", "s 3.1.1 i", "s commits 3", "caught up")
}

// faulty is a log whose next append returns no answer.
type faulty struct {
	log.Log

	store bool // the message is stored
	fail  bool
	looks int
}

func (f *faulty) Append(ctx context.Context, s log.Stream, expected uint64, m *log.Message) (uint64, error) {
	if !f.fail {
		return f.Log.Append(ctx, s, expected, m)
	}
	f.fail = false
	if f.store {
		if _, err := f.Log.Append(ctx, s, expected, m); err != nil {
			return 0, err
		}
	}
	return 0, log.Unavailable("append", errors.New("no answer"))
}

func (f *faulty) Last(ctx context.Context, s log.Stream) (*log.Message, error) {
	f.looks++
	return f.Log.Last(ctx, s)
}

func TestAnAppendWithoutAnAnswerIsStoredOnceByItsRepetition(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]bool{"it was stored": true, "it was lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &faulty{Log: memory.New(memory.Options{}), store: store}
			w := &writer{replica: open(t, l), ref: refOf("s"), epoch: 1}
			w.mustSend(t, w.begin(1, 1, "a"))
			l.fail = true
			r := w.continueWith("b")
			if _, err := w.Append(t.Context(), r); fault.ReasonOf(err) != "LOG_UNAVAILABLE" {
				t.Fatalf("got %v, want LOG_UNAVAILABLE", err)
			}
			w.mustSend(t, r)
			w.mustSend(t, w.continueWith("c"))
			w.read(t, &streamv2.ReadRequest{Stream: refOf("s"), StoredOnly: true}).expect(t, "s 1.1.1 a", "s 1.1.2 b", "s 1.1.3 c", "caught up")
		})
	}
}

func TestARememberedTailSavesTheLookAndACheckAsksTheLog(t *testing.T) {
	t.Parallel()
	l := &faulty{Log: memory.New(memory.Options{})}
	w := &writer{replica: open(t, l), ref: refOf("s"), epoch: 1}
	w.mustSend(t, w.begin(1, 1, "a"))
	for range 10 {
		w.mustSend(t, w.continueWith("b"))
	}
	if l.looks != 0 {
		t.Errorf("eleven appends looked %d times, want none", l.looks)
	}
	if _, err := w.Append(t.Context(), w.check()); err != nil || l.looks != 1 {
		t.Errorf("a check got %v after %d looks, want success after 1", err, l.looks)
	}
}

// largeRecords returns records after the first chunk of an attempt, too large together.
func largeRecords(w *writer, count int) (records []*streamv2.Record) {
	for i := range count {
		records = append(records, w.request(at(1, 1, int32(i+2)), []string{strings.Repeat("x", recordBytes/count)}).GetRecords()...) //nolint:gosec // few
	}
	return records
}

func TestAMalformedAppendIsRefused(t *testing.T) {
	t.Parallel()
	h := onMemory(t)
	w := &writer{replica: h, ref: refOf("s"), epoch: 1}
	first := func(change func(*streamv2.AppendRequest)) *streamv2.AppendRequest {
		r := w.begin(1, 1, "a")
		change(r)
		return r
	}
	ended := func(change func(*streamv2.Boundary)) *streamv2.AppendRequest {
		r := w.commit(1)
		r.Records[0].Sequence = position.Ended(1)
		r.Records[0].Boundary.RunEnded = text("x")
		r.Records[0].Boundary.End = &streamv2.Terminal{RunId: "run", Outcome: &streamv2.Terminal_End{End: &streamv2.End{Status: streamv2.EndStatus_END_STATUS_COMPLETED}}}
		change(r.Records[0].Boundary)
		return r
	}
	for name, c := range map[string]struct {
		request *streamv2.AppendRequest
		reason  string
	}{
		"no stream":                 {first(func(r *streamv2.AppendRequest) { r.Stream = nil }), "ID_INVALID"},
		"no tenant":                 {first(func(r *streamv2.AppendRequest) { r.Stream = &streamv2.StreamRef{RootSessionId: "s", SessionId: "s"} }), "ID_INVALID"},
		"a control character":       {first(func(r *streamv2.AppendRequest) { r.Stream = refOf("a\nb") }), "ID_INVALID"},
		"a long id":                 {first(func(r *streamv2.AppendRequest) { r.Stream = refOf(strings.Repeat("x", 257)) }), "ID_INVALID"},
		"no epoch":                  {first(func(r *streamv2.AppendRequest) { r.Epoch = 0 }), "RECORD_INVALID"},
		"no run of the attempt":     {first(func(r *streamv2.AppendRequest) { r.Records[0].Attempt.RunId = "" }), "ID_INVALID"},
		"no run of a chunk":         {first(func(r *streamv2.AppendRequest) { r.Records[0].Chunks[0].AgentId = "" }), "CHUNK_INVALID"},
		"a negative step":           {first(func(r *streamv2.AppendRequest) { r.Records[0].Chunks[0].Step = -1 }), "CHUNK_INVALID"},
		"an attempt without chunks": {first(func(r *streamv2.AppendRequest) { r.Records[0].Chunks = nil }), "RECORD_INVALID"},
		"a large record":            {first(func(r *streamv2.AppendRequest) { r.Records[0].Chunks[0] = text(strings.Repeat("x", recordBytes)) }), "RECORD_TOO_LARGE"},
		"a record of nothing":       {first(func(r *streamv2.AppendRequest) { r.Records = append(r.Records, nil) }), "RECORD_INVALID"},
		"a bad chunk further on": {first(func(r *streamv2.AppendRequest) {
			r.Records = append(r.Records, &streamv2.Record{Chunks: []*eventv1.Chunk{{}}})
		}), "CHUNK_INVALID"},
		"records that do not follow":  {first(func(r *streamv2.AppendRequest) { r.Records = append(r.Records, w.continueWith("b").GetRecords()...) }), "RECORD_INVALID"},
		"records large together":      {first(func(r *streamv2.AppendRequest) { r.Records = append(r.Records, largeRecords(w, 2)...) }), "RECORD_TOO_LARGE"},
		"an end that is whole":        {ended(func(*streamv2.Boundary) {}), ""},
		"an end without its chunk":    {ended(func(b *streamv2.Boundary) { b.RunEnded = nil }), "RECORD_INVALID"},
		"an end without its terminal": {ended(func(b *streamv2.Boundary) { b.End = nil }), "RECORD_INVALID"},
		"an end without an outcome":   {ended(func(b *streamv2.Boundary) { b.End.Outcome = nil }), "RECORD_INVALID"},
		"an end without a status":     {ended(func(b *streamv2.Boundary) { b.End.GetEnd().Status = 0 }), "RECORD_INVALID"},
		"an end of no run":            {ended(func(b *streamv2.Boundary) { b.End.RunId = "" }), "ID_INVALID"},
		"a commit of no run":          {ended(func(b *streamv2.Boundary) { b.StepCommitted = &eventv1.Chunk{} }), "CHUNK_INVALID"},
	} {
		if _, err := h.Append(t.Context(), c.request); fault.ReasonOf(err) != c.reason {
			t.Errorf("%s: got %v, want %q", name, err, c.reason)
		}
	}
}
