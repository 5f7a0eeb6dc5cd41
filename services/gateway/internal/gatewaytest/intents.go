package gatewaytest

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// target gives the session that the request is about. One that is created, or branched, is
// not stored yet. It is called with mu held.
func (s *State) target(r *statev1.StartRunRequest) (found *session, created bool, err error) {
	if r.GetBranch() != nil {
		found, err = s.branch(r)
		return found, false, err
	}
	if found = s.sessions[streamKey(r.GetTenant(), r.GetSessionId())]; found != nil {
		return found, false, nil
	}
	switch {
	case r.GetSeenRunId() != "":
		return nil, false, stale(r.GetSessionId())
	case r.GetIntent() != nil && len(r.GetMessages()) == 0, r.GetResume() != nil:
		return nil, false, fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", r.GetSessionId())
	}
	return newSession(r.GetTenant(), r.GetSessionId(), r.GetAgentType()), true, nil
}

func newSession(tenant, id, agent string) *session {
	return &session{Session: &statev1.Session{Tenant: tenant, SessionId: id, RootSessionId: id, AgentType: agent}}
}

// branch makes a session that begins where a checkpoint of another one stands.
func (s *State) branch(r *statev1.StartRunRequest) (*session, error) {
	from := r.GetBranch()
	source := s.sessions[streamKey(r.GetTenant(), from.GetFromSessionId())]
	if source == nil {
		return nil, fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", from.GetFromSessionId())
	}
	id := cmp.Or(r.GetSessionId(), "branch-"+r.GetRequestKey())
	if there := s.sessions[streamKey(r.GetTenant(), id)]; there != nil {
		if there.runs[0].GetRequestKey() != r.GetRequestKey() {
			return nil, fault.New(fault.Conflict, "SESSION_EXISTS", "there is a session %q", id)
		}
		return there, nil
	}
	c := source.at(from.GetCheckpointId())
	if c == nil {
		return nil, noCheckpoint(from.GetCheckpointId())
	}
	made := newSession(r.GetTenant(), id, source.GetAgentType())
	made.messages = slices.Clone(source.messages[:c.GetMessageCount()])
	return made, nil
}

// repeated gives the run that the request key has begun, nil for none. It is called with mu
// held.
func (s *State) repeated(found *session, r *statev1.StartRunRequest) (*statev1.Run, error) {
	for _, run := range found.all() {
		if run.GetRequestKey() != r.GetRequestKey() {
			continue
		}
		if s.prints[run.GetRunId()] != printOf(r) {
			return nil, fault.New(fault.Conflict, "REQUEST_KEY_REUSED", "the key %q has begun %s with another request", r.GetRequestKey(), run.GetRunId())
		}
		return run, nil
	}
	return nil, found.seen(r.GetSeenRunId())
}

// repetition answers a request that was made before; nil for no run.
func repetition(found *session, run *statev1.Run) *statev1.StartRunResponse {
	if run == nil {
		return nil
	}
	waiting := run.GetStatus() == statev1.RunStatus_RUN_STATUS_WAITING
	return &statev1.StartRunResponse{Session: proto.CloneOf(found.Session), Run: proto.CloneOf(run), Repeated: true, Waiting: waiting}
}

// waits answers a request whose run waits; nil for none.
func waits(found *session, w *waiting) *statev1.StartRunResponse {
	if w == nil {
		return nil
	}
	return &statev1.StartRunResponse{Session: proto.CloneOf(found.Session), Run: proto.CloneOf(w.Run), Waiting: true}
}

// keeps tells how many messages stay before those of the request: -1 for all. run is that of
// an equal request, nil for none.
func (s *session) keeps(r *statev1.StartRunRequest) (keep int, run *statev1.Run, err error) {
	switch {
	case r.GetEdit() != nil:
		if at := s.question(r.GetEdit().GetMessageId()); at >= 0 {
			if equal(s.messages[at], r.GetMessages()[0]) && s.isNewest(at) && !s.stopped() {
				return 0, s.current(), nil
			}
			return at, nil, nil
		}
	case r.GetRegenerate() != nil:
		wanted := r.GetRegenerate()
		at := max(s.question(wanted.GetMessageId()), s.questionOf(wanted.GetMessageId()))
		if at >= 0 && s.isAnswered(at, wanted.GetAnswerId()) {
			return 0, s.current(), nil
		}
		if at >= 0 {
			return at + 1, nil, nil
		}
		if len(r.GetMessages()) == 0 {
			return 0, nil, fault.New(fault.NotFound, "MESSAGE_NOT_FOUND", "there is no message %q", wanted.GetMessageId())
		}
	}
	run, err = s.sent(r)
	return -1, run, err
}

// isAnswered reports whether another answer than the one of the id stands at the question, or
// where no id is given, whether it is being written.
func (s *session) isAnswered(question int, answer string) bool {
	if answer == "" {
		return s.isNewest(question) && s.GetStatus() == statev1.SessionStatus_SESSION_STATUS_ACTIVE
	}
	return s.isNewest(question) && s.current().GetMessageId() != answer
}

// sent gives the run of a message that was sent before, nil for none.
func (s *session) sent(r *statev1.StartRunRequest) (*statev1.Run, error) {
	if len(r.GetMessages()) != 1 || r.GetMessages()[0].GetId() == "" {
		return nil, nil //nolint:nilnil // it was not sent before
	}
	m := r.GetMessages()[0]
	exists := fault.New(fault.Conflict, "MESSAGE_EXISTS", "the session has the message %q", m.GetId())
	for _, w := range s.waiting {
		if waits := w.request.GetMessages()[0]; waits.GetId() == m.GetId() {
			if !equal(waits, m) {
				return nil, exists
			}
			return w.Run, nil
		}
	}
	at := slices.IndexFunc(s.messages, func(there *eventv1.Message) bool { return there.GetId() == m.GetId() })
	switch {
	case at < 0:
		return nil, nil //nolint:nilnil // it was not sent before
	case !equal(s.messages[at], m):
		return nil, exists
	case !s.isNewest(at):
		return nil, stale(s.GetSessionId())
	}
	return s.current(), nil
}

func equal(a, b *eventv1.Message) bool {
	same := func(a, b *eventv1.Part) bool { return proto.Equal(a, b) }
	return slices.EqualFunc(a.GetParts(), b.GetParts(), same) && a.GetUiMetadata() == b.GetUiMetadata()
}

// stopped reports whether the newest run has failed or was interrupted.
func (s *session) stopped() bool {
	status := s.current().GetStatus()
	return status == statev1.RunStatus_RUN_STATUS_FAILED || status == statev1.RunStatus_RUN_STATUS_INTERRUPTED
}

func isQuestion(m *eventv1.Message) bool {
	return m.GetRole() == eventv1.Role_ROLE_USER && !m.GetHidden()
}

// isNewest reports whether no question stands behind the one at the place.
func (s *session) isNewest(question int) bool {
	return !slices.ContainsFunc(s.messages[question+1:], isQuestion)
}

// question finds a message of a user, -1 for none.
func (s *session) question(id string) int {
	return slices.IndexFunc(s.messages, func(m *eventv1.Message) bool { return m.GetId() == id && isQuestion(m) })
}

// questionOf finds the message that an answer belongs to, -1 for none.
func (s *session) questionOf(answer string) int {
	run := slices.IndexFunc(s.runs, func(run *statev1.Run) bool { return run.GetMessageId() == answer })
	return slices.IndexFunc(s.messages, func(m *eventv1.Message) bool {
		return run >= 0 && m.GetRunId() == s.runs[run].GetRunId() && isQuestion(m)
	})
}

// wrote reports whether the run is one of those that have written the newest answer.
func (s *session) wrote(run string) bool {
	return slices.ContainsFunc(s.runs, func(r *statev1.Run) bool {
		return r.GetRunId() == run && r.GetMessageId() == s.current().GetMessageId()
	})
}

// seen refuses a run that has not written the newest answer.
func (s *session) seen(run string) error {
	if run != "" && !s.wrote(run) {
		return stale(s.GetSessionId())
	}
	return nil
}

func stale(session string) error {
	return fault.New(fault.Conflict, "RUN_STALE", "session %q has moved on", session)
}

// appended gives the messages that the request appends before its own.
func appended(r *statev1.StartRunRequest) []*eventv1.Message {
	return slices.Concat(r.GetResume().GetAppendMessages(), r.GetRetry().GetAppendMessages(), r.GetBranch().GetAppendMessages())
}
