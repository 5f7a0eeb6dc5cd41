package snapshot

import (
	"slices"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// subject is a session as the state service knows it.
type subject struct {
	*statev1.GetSessionResponse
	// teller is the run that may write to the stream now: the newest one that is not
	// settled, or the one before it, which that one waits for. nil when there is none.
	teller *statev1.Run
}

// first is the last step before the run.
func (s *subject) first(run *statev1.Run) int32 {
	steps := s.GetSession().GetStepCount()
	if run.GetRunId() != s.GetCurrentRun().GetRunId() {
		steps -= s.GetCurrentRun().GetStepCount()
	}
	return steps - run.GetStepCount()
}

// told is the last step of the teller that stands in the stream up to the boundary.
func (s *subject) told() int32 {
	session := s.GetSession()
	return max(s.first(s.teller), min(session.GetStreamStep(), session.GetStepCount()))
}

// runs are those that may be found in the stream behind the boundary, in their order.
func (s *subject) runs() []*statev1.Run {
	switch {
	case s.teller == nil:
		return nil
	case s.teller.GetRunId() == s.GetCurrentRun().GetRunId():
		return []*statev1.Run{s.teller}
	default:
		return []*statev1.Run{s.teller, s.GetCurrentRun()}
	}
}

// unknown reports whether the record was written after something that the state
// service did not know yet when it was asked.
func (s *subject) unknown(r *streamv1.Record) bool {
	run, current := runOf(r), s.GetCurrentRun()
	switch {
	case run == "" && r.GetRewound() != nil: // nobody's: the log was reset from outside
		return false
	case run != current.GetRunId() && run != s.teller.GetRunId():
		return true
	case r.GetTerminal() != nil:
		return run == current.GetRunId() && conversation.Executing(current)
	}
	return r.GetChunk().GetStepCommitted() != nil && r.GetChunk().GetStep() > s.GetSession().GetStepCount()
}

// view is what is shown of a subject.
type view struct {
	messages []uistream.UIMessage
	sequence int64
	ended    bool // the newest run's terminal record was folded
}

// fold makes the view out of the stored messages and the tail.
func (s *subject) fold(stored *conversation.Newest, t *tail) view {
	t.cut(s.unknown)
	if s.teller == nil {
		return view{messages: stored.Messages(nil), sequence: t.end}
	}
	upTo := map[string]int32{s.teller.GetRunId(): s.told()}
	switch {
	case s.toldAnew(t):
		upTo[s.teller.GetRunId()] = s.first(s.teller)
	case t.floor > 0:
		return view{messages: stored.Messages(nil), sequence: s.above(t)}
	}
	v := view{messages: stored.Messages(upTo), sequence: t.end}
	for _, run := range s.runs() {
		step, limited := upTo[run.GetRunId()]
		if !limited {
			step = s.first(run)
		}
		v.goOn(run, step, t.records)
	}
	v.ended = slices.ContainsFunc(t.records, func(r *streamv1.Record) bool {
		return r.GetTerminal() != nil && runOf(r) == s.GetCurrentRun().GetRunId()
	})
	return v
}

// toldAnew reports whether the teller's message is in the tail from its begin on, or
// will be: nothing that stood before the boundary stands.
func (s *subject) toldAnew(t *tail) bool {
	boundary := s.GetSession().GetStreamSequence() // not t.start, which may be a floor above it
	return slices.ContainsFunc(t.records, func(r *streamv1.Record) bool {
		void := r.GetRewound() != nil && r.GetRewound().GetAt() < boundary
		return runOf(r) == s.teller.GetRunId() && (void || opens(r.GetChunk()))
	})
}

// above gives the sequence to read on from when records are gone and the messages
// are shown whole: behind what the stream says of steps that they have.
func (s *subject) above(t *tail) int64 {
	sequence := t.start
	for _, r := range t.records {
		if c := r.GetChunk(); c != nil && c.GetStep() > s.GetSession().GetStepCount() {
			break
		}
		sequence = r.GetSequence()
	}
	return sequence
}

// goOn adds to the run's message what the records tell of steps after the one that
// it has, and to earlier messages what became of their calls.
func (v *view) goOn(run *statev1.Run, step int32, records []*streamv1.Record) {
	var told []uistream.Told
	for _, r := range records {
		c := r.GetChunk()
		if c.GetAgentId() == run.GetRunId() && (c.GetStep() > step || opens(c)) {
			told = append(told, uistream.Told{Sequence: r.GetSequence(), Chunk: c})
		}
	}
	if len(told) == 0 {
		return
	}
	for i, m := range v.messages {
		if m.Role == "assistant" && m.ID != run.GetMessageId() {
			v.messages[i] = uistream.Settle(m, told)
		}
	}
	i := slices.IndexFunc(v.messages, func(m uistream.UIMessage) bool { return m.Role == "assistant" && m.ID == run.GetMessageId() })
	if i < 0 {
		i = len(v.messages)
		v.messages = append(v.messages, uistream.UIMessage{ID: run.GetMessageId(), Role: "assistant"})
	}
	v.messages[i] = uistream.Continue(v.messages[i], told)
	v.messages[i].Metadata = v.messages[i].Metadata.By(run.GetRunId())
}
