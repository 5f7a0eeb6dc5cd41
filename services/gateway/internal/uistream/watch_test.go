package uistream_test

import (
	"encoding/json"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// watcher translates a story for a client, as the gateway does.
type watcher struct {
	t   *rapid.T
	s   *story
	c   *client
	tr  *uistream.Translator
	cut func() bool // reports whether the connection breaks before the next part
}

func never() bool { return false }

// watch lets a client of the version follow the story to its end. The client reconnects with a
// replay wherever the connection breaks, and where it cannot drop void parts.
func (s *story) watch(t *rapid.T, major uistream.Major, cut func() bool) *client {
	w := &watcher{t: t, s: s, c: newClient(major), cut: cut}
	w.translate(s.runAt(0))
	w.giveAll(w.tr.Start())
	for i, r := range s.log {
		if !w.follow(i) {
			w.reload(i)
		}
		if r.end != nil && len(r.end.open) > 0 {
			if cut() {
				w.loadPartlyAnswered(i)
			}
			w.answer(r.end)
			w.post(i)
		}
	}
	return w.c
}

// translate starts a new translator.
func (w *watcher) translate(run string) {
	w.tr = uistream.New(w.s.id, w.c.major)
	w.tr.SetMetadata(w.s.runs[run].Metadata())
}

// follow gives the client the record. It reports whether the client received all of it.
func (w *watcher) follow(i int) bool {
	r := w.s.log[i]
	switch {
	case r.chunk != nil:
		return w.take(w.tr.Chunk(r.sequence, r.chunk))
	case r.end != nil:
		if more := w.tr.Pending(r.end.pending(0)); len(more) > 0 {
			w.t.Fatalf("%v is told again", more)
		}
		return w.take(r.end.parts(w.tr))
	}
	parts, ok := w.tr.Rewind(r.at)
	if !ok && w.c.major >= 7 {
		w.t.Fatalf("rewound to %d: the client should be able to take it back", r.at)
	}
	return ok && w.take(parts)
}

// parts are the parts of the run's end.
func (e *runEnd) parts(t *uistream.Translator) []uistream.Part {
	if e.fail != nil {
		return t.Fail(e.fail.GetError())
	}
	return t.Finish(e.how)
}

// take delivers the parts. It reports whether the connection held.
func (w *watcher) take(parts []uistream.Part) bool {
	for _, p := range parts {
		if w.cut() {
			return false
		}
		w.give(p)
	}
	return true
}

func (w *watcher) give(p uistream.Part) {
	text, err := p.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.c.take(text); err != nil {
		w.t.Fatalf("the client refuses %s: %v", text, err)
	}
}

func (w *watcher) giveAll(parts []uistream.Part) {
	for _, p := range parts {
		w.give(p)
	}
}

// reload replays the message up to the record to a reloaded page. Calls answered by then must not
// run.
func (w *watcher) reload(i int) {
	answered := w.s.answered(i)
	w.replay(i, func(id string) bool { return answered[id] })
	if e := w.s.log[i].end; e != nil {
		w.giveAll(w.tr.Pending(e.pending(0)))
		w.giveAll(e.parts(w.tr))
	}
}

func (w *watcher) replay(i int, answered func(string) bool) {
	w.c = newClient(w.c.major)
	w.translate(w.s.runAt(i))
	w.tr.SetAnswered(answered)
	w.giveAll(w.tr.Start())
	for _, r := range withoutVoid(w.s.log[:i+1]) {
		if r.chunk == nil {
			continue
		}
		w.giveAll(w.tr.Chunk(r.sequence, r.chunk))
		if c := r.chunk.GetToolStart(); c.GetAwaitsClient() && slices.Contains(w.c.ran, c.GetToolCallId()) == answered(c.GetToolCallId()) {
			w.t.Fatalf("%s is answered: %v, and the client was asked to run %v", c.GetToolCallId(), answered(c.GetToolCallId()), w.c.ran)
		}
	}
}

// loadPartlyAnswered loads the page when some of the suspended run's calls are answered.
func (w *watcher) loadPartlyAnswered(i int) {
	e := w.s.log[i].end
	answered := w.s.answered(i)
	for _, a := range e.open[:e.answered] {
		answered[a.CallID] = true
	}
	w.replay(i, func(id string) bool { return answered[id] })
	w.giveAll(w.tr.Pending(e.pending(e.answered)))
	w.giveAll(e.parts(w.tr))
	for _, a := range e.open[:e.answered] {
		q := w.c.call(a.CallID)
		if want := a.pendingState(w.c.major); q.State != want {
			w.t.Fatalf("%s is %s, want %s: nobody else could send the answers on", a.CallID, q.State, want)
		}
	}
}

// pendingState is the state of an answered call before a step takes the answer.
func (a *openCall) pendingState(major uistream.Major) string {
	switch {
	case a.ID == "" && a.result.GetSuccess():
		return "output-available"
	case a.ID == "":
		return "output-error"
	case major < 6:
		return "input-available"
	case a.decided && major >= 7:
		return "approval-responded"
	default:
		return "approval-requested"
	}
}

// answer answers calls as the app at the client does.
func (w *watcher) answer(e *runEnd) {
	for _, a := range e.open {
		q := w.c.call(a.CallID)
		switch {
		case !a.answeredHere:
		case a.ID == "" && a.result.GetSuccess():
			q.State, q.Output = "output-available", json.RawMessage(a.result.GetResult())
		case a.ID == "":
			q.State, q.ErrorText = "output-error", a.result.GetError()
		case w.c.major >= 6:
			w.c.respond(q, *a.Approved, a.Reason)
		}
	}
}

// post sends the answers. Chunks that the client has are translated but not sent.
func (w *watcher) post(i int) {
	w.c.connect(false)
	w.translate(w.s.runAt(i + 1))
	w.giveAll(w.tr.Start())
	for _, r := range withoutVoid(w.s.log[:i+1]) {
		if r.chunk != nil {
			w.tr.Chunk(r.sequence, r.chunk)
		}
	}
}

// runAt returns the run of the record.
func (s *story) runAt(i int) string {
	for _, r := range s.log[i:] {
		if r.chunk != nil {
			return r.chunk.GetAgentId()
		}
		if r.end != nil {
			return r.end.run
		}
	}
	return s.runID()
}

// answered returns the calls answered before the record.
func (s *story) answered(i int) map[string]bool {
	ids := map[string]bool{}
	for _, r := range s.log[:i] {
		if r.end == nil {
			continue
		}
		for _, a := range r.end.open {
			ids[a.CallID] = true
		}
	}
	return ids
}

// pending returns the open calls, some of them answered.
func (e *runEnd) pending(some int) []uistream.PendingCall {
	var out []uistream.PendingCall
	for i, a := range e.open {
		out = append(out, a.pending(i < some))
	}
	return out
}
