package history_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// ending is the final state of a session.
type ending struct {
	session  *statev1.Session
	runs     []*statev1.Run
	messages []string // ids
	log      []string
	unread   map[string]string // unconsumed answers by call
}

// quiet reports whether no run is in progress, and names one otherwise.
func (w *world) quiet() (bool, string) {
	for _, id := range sessions {
		runs, err := w.runs(id)
		if err != nil && fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
			return false, err.Error()
		}
		for _, r := range runs {
			if r.GetCompletedAt() == 0 {
				return false, r.String()
			}
		}
	}
	return true, ""
}

func (w *world) runs(session string) (all []*statev1.Run, err error) {
	for before := int32(0); ; {
		r := &statev1.ListRunsRequest{Tenant: tenant, SessionId: session, BeforeTurn: before, Limit: 200}
		page, _, err := attempt(w, func(ctx context.Context, c client) (*statev1.ListRunsResponse, error) { return c.ListRuns(ctx, r) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetRuns()...)
		if !page.GetHasMore() {
			return all, nil
		}
		before = all[len(all)-1].GetTurn()
	}
}

func (w *world) ending(id string) (e ending) {
	answer, _, err := w.get(id)
	if fault.ReasonOf(err) == "SESSION_NOT_FOUND" {
		return e // never started
	}
	if err == nil {
		e.runs, err = w.runs(id)
	}
	if err != nil {
		w.Fatalf("read session %s: %v", id, err)
	}
	e.session, e.unread = answer.GetSession(), map[string]string{}
	for _, c := range answer.GetCalls() {
		if c.GetSessionId() == id {
			e.unread[c.GetToolCallId()] = payload(c.GetAnswer())
		}
	}
	for more := true; more; {
		r := &statev1.ListMessagesRequest{Tenant: tenant, SessionId: id, Offset: int64(len(e.messages)), Limit: 200}
		page, _, err := attempt(w, func(ctx context.Context, c client) (*statev1.ListMessagesResponse, error) {
			return c.ListMessages(ctx, r)
		})
		if err != nil {
			w.Fatalf("read messages of %s: %v", id, err)
		}
		for _, m := range page.GetMessages() {
			if m.GetOrdinal() != int64(len(e.messages)) {
				w.Errorf("session %s: message %d has the ordinal %d", id, len(e.messages), m.GetOrdinal())
			}
			e.messages = append(e.messages, m.GetMessage().GetId())
		}
		more = page.GetHasMore()
	}
	var state struct{ Log []string }
	if err := json.Unmarshal([]byte(e.session.GetCustomState()), &state); err != nil {
		w.Errorf("session %s: state %s: %v", id, e.session.GetCustomState(), err)
	}
	e.log = state.Log
	return e
}

// check compares the clients' observations with the final state.
func (w *world) check() {
	endings := map[string]ending{}
	for _, id := range sessions {
		endings[id] = w.ending(id)
		w.checkSession(id, endings[id])
	}
	w.checkStarts(endings)
	w.checkClaims()
	w.checkCommits(endings)
	w.checkAnswers(endings)
}

func (w *world) checkSession(id string, e ending) {
	if e.session == nil {
		return
	}
	if int(e.session.GetTurn()) != len(e.runs) || int(e.session.GetMessageCount()) != len(e.messages) {
		w.Errorf("session %s says %d runs and %d messages; there are %d and %d", id, e.session.GetTurn(), e.session.GetMessageCount(), len(e.runs), len(e.messages))
	}
	var steps int32
	for i, r := range e.runs {
		steps += r.GetStepCount()
		if want := int32(len(e.runs) - i); r.GetTurn() != want {
			w.Errorf("session %s: run %s has turn %d, want %d", id, r.GetRunId(), r.GetTurn(), want)
		}
	}
	if steps != e.session.GetStepCount() {
		w.Errorf("session %s has %d steps, its runs %d", id, e.session.GetStepCount(), steps)
	}
	if e.session.GetVersion() < w.history.acked[id] {
		w.Errorf("session %s ends with version %d; a client was told %d", id, e.session.GetVersion(), w.history.acked[id])
	}
	once := map[string]bool{}
	for _, item := range slices.Concat(e.messages, e.log) {
		if once[item] {
			w.Errorf("session %s has %q twice", id, item)
		}
		once[item] = true
	}
}

// checkStarts: a request key names one run, and the run exists. A key refused to all senders names none.
func (w *world) checkStarts(endings map[string]ending) {
	named := map[string]string{}
	best := map[string]fate{}
	for _, s := range w.history.starts {
		best[s.key] = max(best[s.key], s.fate)
		if s.fate != acked {
			continue
		}
		if first := named[s.key]; first != "" && first != s.run {
			w.Errorf("request key %s started %s and %s", s.key, first, s.run)
		}
		named[s.key] = s.run
		if !slices.ContainsFunc(endings[s.session].runs, func(r *statev1.Run) bool { return r.GetRunId() == s.run && r.GetRequestKey() == s.key }) {
			w.Errorf("run %s of session %s was acknowledged and is not there", s.run, s.session)
		}
	}
	for id, e := range endings {
		keys := map[string]bool{}
		for _, r := range e.runs {
			if keys[r.GetRequestKey()] && r.GetRequestKey() != "" {
				w.Errorf("session %s has two runs for the request key %s", id, r.GetRequestKey())
			}
			keys[r.GetRequestKey()] = true
			if fate, sent := best[r.GetRequestKey()]; sent && fate == refused {
				w.Errorf("session %s has the run %s for the request key %s, which was refused", id, r.GetRunId(), r.GetRequestKey())
			}
		}
	}
}

// checkClaims: no two claims of a session share an epoch, and a step sent after a known later claim is refused.
func (w *world) checkClaims() {
	seen := map[claim]bool{}
	for _, c := range w.history.claims {
		place := claim{session: c.session, epoch: c.epoch}
		if seen[place] {
			w.Errorf("epoch %d of session %s was given out twice", c.epoch, c.session)
		}
		seen[place] = true
		for _, step := range w.history.commits {
			if step.session == c.session && step.step > 0 && step.fate == acked && step.epoch < c.epoch && step.begun > c.told {
				w.Errorf("session %s: step %d of epoch %d was taken although it was sent after epoch %d had begun", c.session, step.step, step.epoch, c.epoch)
			}
		}
	}
}

// checkCommits: acknowledged writes exist, refused ones do not, and lost ones exist completely or not at all. A
// step has one owner, and later steps no earlier owner.
func (w *world) checkCommits(endings map[string]ending) {
	type place struct {
		session string
		step    int32
	}
	owners := map[place]commit{}
	for _, c := range w.history.commits {
		e := endings[c.session]
		items, found := len(c.messages)+len(c.log), 0
		for _, id := range c.messages {
			if slices.Contains(e.messages, id) {
				found++
			}
		}
		for _, item := range c.log {
			if slices.Contains(e.log, item) {
				found++
			}
		}
		// If another owner committed the step, its plan and results exist but not this commit's own item.
		written := len(c.log) > 0 && slices.Contains(e.log, c.log[len(c.log)-1])
		if c.fate == acked && !written || c.fate == refused && written || written && found != items {
			w.Errorf("session %s, step %d of epoch %d: fate %d, written %v, %d of %d items are there", c.session, c.step, c.epoch, c.fate, written, found, items)
		}
		if c.step == 0 || !written {
			continue
		}
		at := place{c.session, c.step}
		if other, taken := owners[at]; taken {
			w.Errorf("session %s: step %d was written by epoch %d and by epoch %d", c.session, c.step, other.epoch, c.epoch)
		}
		owners[at] = c
	}
	for at, c := range owners {
		if next, ok := owners[place{at.session, at.step + 1}]; ok && next.epoch < c.epoch {
			w.Errorf("session %s: step %d is of epoch %d, the one before of %d", at.session, at.step+1, next.epoch, c.epoch)
		}
	}
}

// checkAnswers: one answer to each call was accepted. At most one step consumed the call, with that answer;
// otherwise the answer is still unread.
func (w *world) checkAnswers(endings map[string]ending) {
	accepted := map[string]submit{}
	given := map[string]map[string]bool{}
	for _, s := range w.history.submits {
		if given[s.call] == nil {
			given[s.call] = map[string]bool{}
		}
		given[s.call][s.payload] = true
		if s.outcome != statev1.SubmitCallResponse_OUTCOME_ACCEPTED {
			continue
		}
		if other, taken := accepted[s.call]; taken {
			w.Errorf("call %s accepted %s and %s", s.call, other.payload, s.payload)
		}
		accepted[s.call] = s
	}
	consumed := map[string]bool{}
	for _, c := range w.history.commits {
		if c.fate == refused || len(c.log) == 0 || !slices.Contains(endings[c.session].log, c.log[len(c.log)-1]) {
			continue
		}
		for call, payload := range c.consumed {
			if consumed[call] {
				w.Errorf("call %s was consumed twice", call)
			}
			consumed[call] = true
			if a, ok := accepted[call]; ok && a.payload != payload {
				w.Errorf("call %s accepted %s, and the step has read %s", call, a.payload, payload)
			}
			if !strings.HasPrefix(payload, "ANSWER_SOURCE_") && !given[call][payload] {
				w.Errorf("call %s was consumed with %q, which nobody gave", call, payload)
			}
		}
	}
	for call, a := range accepted {
		if unread, waits := endings[a.session].unread[call]; !consumed[call] && (!waits || unread != a.payload) {
			w.Errorf("call %s accepted %s, which no step has read and which does not wait: %q", call, a.payload, unread)
		}
	}
}
