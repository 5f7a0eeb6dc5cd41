package server

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// hostile is an id with every kind of valid character.
const hostile = "a.b *>/%'\"\\;--$1 é 日本 {}"

// talk starts a run with a message of the id. Its answer is one step, which writes the id to
// the custom state.
func (s *stream) talk(sessionID, messageID string) *statev1.RunRef {
	s.Helper()
	r := startOf(sessionID)
	r.Messages = []*eventv1.Message{said(eventv1.Role_ROLE_USER, messageID, "hello")}
	_, err := s.runs.StartRun(s.Context(), r)
	s.must(err)
	claim := s.execute()
	done := endingStep(refTo(claim), claim.GetSession().GetStepCount()+1, completed)
	done.Ops = []*statev1.StateOp{{Key: "last", Op: &statev1.StateOp_Replace{Replace: `"` + claim.GetRun().GetRunId() + `"`}}}
	s.commit(done)
	return refTo(claim)
}

func (b *bench) told(sessionID string) (list []*eventv1.Message) {
	b.Helper()
	got, err := b.sessions.ListMessages(b.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: sessionID})
	b.must(err)
	for _, m := range got.GetMessages() {
		list = append(list, m.GetMessage())
	}
	return list
}

func messageIDs(messages []*eventv1.Message) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.GetId())
	}
	return ids
}

func regenerating(sessionID, messageID string) *statev1.StartRunRequest {
	return &statev1.StartRunRequest{
		Tenant: "acme", SessionId: sessionID, Intent: &statev1.StartRunRequest_Regenerate{Regenerate: &statev1.Regenerate{MessageId: messageID}},
	}
}

func editing(sessionID string, m *eventv1.Message) *statev1.StartRunRequest {
	return &statev1.StartRunRequest{
		Tenant: "acme", SessionId: sessionID, Messages: []*eventv1.Message{m},
		Intent: &statev1.StartRunRequest_Edit{Edit: &statev1.Edit{MessageId: m.GetId()}},
	}
}

func TestAMessageIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		first := s.talk(hostile, "m 1."+hostile)
		second := s.talk(hostile, "m 2."+hostile)
		state := b.get(hostile).GetSession().GetCustomState()
		again := regenerating(hostile, "m 2."+hostile)
		again.RequestKey = "again"
		started, err := b.runs.StartRun(t.Context(), again)
		b.must(err)
		run := started.GetRun()
		if run.GetEntry() != statev1.RunEntry_RUN_ENTRY_START || run.GetTurn() != 3 || run.GetMessageId() == "" || run.GetMessageId() == b.run(hostile, second.GetRunId()).GetMessageId() ||
			run.GetStartMessageCount() != 2 || started.GetSession().GetStatus() != active || started.GetSession().GetStepCount() != 2 {
			t.Errorf("got %v", started)
		}
		said := b.told(hostile)
		if ids := messageIDs(said); !slices.Equal(ids, []string{"m 1." + hostile, "m-" + hostile + "-1", "m 2." + hostile}) {
			t.Errorf("got %q", ids)
		}
		if said[2].GetRunId() != run.GetRunId() || said[0].GetRunId() != first.GetRunId() || said[2].GetParts()[0].GetText().GetText() != "hello" {
			t.Errorf("got %v, want the message to be the new run's", said)
		}
		claim := s.execute()
		if got := claim.GetSession().GetCustomState(); got != `{"last":"`+first.GetRunId()+`"}` || got == state || claim.GetRun().GetRunId() != run.GetRunId() {
			t.Errorf("got %v, want the state of before", claim)
		}
		for range 2 {
			repeated, err := b.runs.StartRun(t.Context(), again)
			b.must(err)
			if !repeated.GetRepeated() || repeated.GetRun().GetRunId() != run.GetRunId() {
				t.Errorf("got %v, want the first run", repeated)
			}
		}
		other := regenerating(hostile, "m 1."+hostile)
		other.RequestKey = "again"
		_, err = b.runs.StartRun(t.Context(), other)
		b.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
	})
}

func (b *bench) run(sessionID, runID string) *statev1.Run {
	b.Helper()
	got, err := b.runs.GetRun(b.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: sessionID, RunId: runID})
	b.must(err)
	return got.GetRun()
}

func TestAnEditedMessageTakesThePlaceOfTheFormerOne(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.talk("s", "m1")
		s.suspendWith("s", "m2", "c1")
		edit := editing("s", said(eventv1.Role_ROLE_USER, "m1", "anew"))
		edited, err := b.runs.StartRun(t.Context(), edit)
		b.must(err)
		if got := b.told("s"); len(got) != 1 || got[0].GetParts()[0].GetText().GetText() != "anew" {
			t.Errorf("got %v, want the new one alone", got)
		}
		if got := b.get("s"); got.GetSession().GetCustomState() != `{}` || len(got.GetCalls()) != 0 || got.GetSession().GetCheckpointId() != "" {
			t.Errorf("got %v, want it as it was in the beginning", got)
		}
		_, err = b.calls.SubmitCall(t.Context(), submitOf("s", "c1", result(`1`)))
		b.refuses(err, fault.Unavailable, "CALL_NOT_OPEN") // the new run may open it
		b.became(b.submits("s", answersTo("c1")...), outcome("c1", unknown, "", ""))
		if same, err := b.runs.StartRun(t.Context(), edit); err != nil || !same.GetRepeated() || same.GetRun().GetRunId() != edited.GetRun().GetRunId() {
			t.Errorf("got %v, %v, want the run that has it", same, err)
		}
		_, err = b.runs.StartRun(t.Context(), editing("s", said(eventv1.Role_ROLE_USER, "m1", "otherwise")))
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
		b.commit(endingStep(refTo(s.execute()), 3, completed))
		_, err = b.calls.SubmitCall(t.Context(), submitOf("s", "c1", result(`1`)))
		b.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
	})
}

// suspendWith starts a run with a message of the id, and suspends it on the calls.
func (s *stream) suspendWith(sessionID, messageID string, callIDs ...string) {
	s.Helper()
	r := startOf(sessionID)
	r.Messages[0].Id = messageID
	_, err := s.runs.StartRun(s.Context(), r)
	s.must(err)
	claim := s.execute()
	s.commit(suspendingStep(refTo(claim), claim.GetSession().GetStepCount()+1, callIDs...))
}

func TestASessionIsCutBackOnlyToVisibleMessages(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.talk("s", "m1")
		hidden := said(eventv1.Role_ROLE_USER, "hidden", "a note")
		hidden.Hidden = true
		_, err := b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{hidden}})
		b.must(err)
		before := b.get("s")
		for _, id := range []string{"hidden", "m-s-1", "nobody"} {
			_, err := b.runs.StartRun(t.Context(), regenerating("s", id))
			b.refuses(err, fault.NotFound, "MESSAGE_NOT_FOUND")
		}
		theirs := regenerating("s", "m1")
		theirs.Tenant = "evil"
		_, err = b.runs.StartRun(t.Context(), theirs)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		point := before.GetSession().GetCheckpointId()
		_, err = b.points.Branch(t.Context(), &statev1.BranchRequest{Tenant: "acme", SessionId: "s", CheckpointId: point, NewSessionId: "branch"})
		b.must(err)
		_, err = b.runs.StartRun(t.Context(), regenerating("branch", "m1"))
		b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		if after := b.get("s"); !proto.Equal(before, after) {
			t.Errorf("got %v, want it as it was", after)
		}
	})
}
