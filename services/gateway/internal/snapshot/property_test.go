package snapshot_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// by chooses by what is asked.
func by(numbers map[string]int) func(string, int) int {
	return func(what string, n int) int { return min(numbers[what], n-1) }
}

// final is the conversation as it is stored in the end, as somebody has it who has
// loaded a snapshot at the moment: of what users said later the stream does not tell.
func (s *story) final(loaded *moment) string {
	ids := map[string]string{}
	for _, r := range s.now.runs {
		ids[r.GetRunId()] = r.GetMessageId()
	}
	var known []*eventv1.Message
	for i, m := range s.now.messages {
		if m.GetRole() != eventv1.Role_ROLE_USER || i < len(loaded.messages) {
			known = append(known, m)
		}
	}
	return text(uistream.Conversation(known, ids))
}

// times are the moments at which a client reads: the session, its messages, the first
// page of the log and the rest, and then the stream. They rise.
type times struct{ state, messages, log, later, attach int }

// reach lets a client load the snapshot, attach and read to the end. It fails when the
// client does not have the final conversation then.
func (s *story) reach(t tester, at times) {
	t.Helper()
	r, loads := &reader{}, 0
	r.attach(load(t, s.moments[at.state], s.moments[at.messages], s.moments[at.log], s.moments[at.later]))
	if told := r.base.ahead(s.moments[at.later]); told != "" {
		t.Fatalf("%+v: %s comes before %d, and the snapshot is of %s", at, told, r.base.StreamSequence, r.base.as.dump())
	}
	for i := at.attach; i < len(s.moments); i++ {
		for r.follow(s.moments[i]) {
			m := s.moments[i]
			if loads++; loads > 100 {
				t.Fatalf("%+v: the snapshot does not help: it is loaded for ever at moment %d, from %d: %s", at, i, r.base.StreamSequence, m.dump())
			}
			r.attach(load(t, m, m, m, m))
		}
	}
	if got, want := text(r.messages()), s.final(r.base.as); got != want {
		t.Fatalf("%+v, loaded again %d times\ngot  %s\nwant %s", at, loads, got, want)
	}
}

// ahead gives what the stream tells before the snapshot's sequence and the rest of the
// snapshot does not know.
func (s shown) ahead(m *moment) string {
	for _, r := range m.log {
		switch {
		case r.sequence > s.StreamSequence:
			return ""
		case r.chunk.GetStepCommitted() != nil && r.chunk.GetStep() > s.as.session.GetStepCount():
			return "a commit"
		case r.terminal != "" && r.terminal == s.as.current().GetRunId() && s.Status == "active":
			return "the end"
		}
	}
	return ""
}

// twoTurns has lost attempts, tools, two steps and a second run that is asked for
// before the first is settled.
func twoTurns(choose func(string, int) int, fails bool) *story {
	s := newStory(choose)
	s.fails = fails
	next := s.turn(s.ask(), 2, choose("early", 2) == 1)
	if next == nil {
		next = s.ask()
	}
	s.turn(next, 2, false)
	return s
}

func TestASnapshotAndWhatFollowsAreTheFinalConversationAtEveryMoment(t *testing.T) {
	t.Parallel()
	for stride, choices := range []map[string]int{
		{"lost attempts": 1, "chunks of the attempt": 4, "thinks": 1, "calls": 2, "lost in the tool": 1, "early": 1},
		{"asks": 1, "lost in drains": 1, "ends of the drain": 2},
		{"asks": 1, "answers": 1, "lost in drains": 1, "ends of the drain": 2, "calls": 2, "never begins": 1},
	} {
		s := twoTurns(by(choices), false)
		for i := range s.moments {
			for k := i; k < len(s.moments); k += 1 + 4*stride {
				if (i+k)%2 == 0 {
					s.reach(t, times{i, (i + k) / 2, k, k, k})
				} else {
					s.reach(t, times{i, k, k, min(k+2, len(s.moments)-1), len(s.moments) - 1})
				}
			}
		}
	}
}

func TestASnapshotAndWhatFollowsAreTheFinalConversationWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := twoTurns(func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }, rapid.Bool().Draw(t, "the log fails"))
		for range 20 {
			at := make([]int, 5)
			for i := range at {
				at[i] = rapid.IntRange(0, len(s.moments)-1).Draw(t, "moment")
			}
			slices.Sort(at)
			s.reach(t, times{at[0], at[1], at[2], at[3], at[4]})
		}
	})
}
