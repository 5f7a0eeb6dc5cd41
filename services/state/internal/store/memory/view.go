package memory

import "github.com/holdfast-run/holdfast/services/state/internal/session"

func (m *Store) view(key session.Key, need session.Need) *session.View {
	v := &session.View{}
	_, v.AgentKnown = m.agents[need.AgentType]
	r := m.sessions[key]
	if r == nil {
		return v
	}
	v.Session = r.copySession(need.State || need.Written && r.journal.Writes())
	v.Run = copyRun(r.run(need.RunID))
	if need.RequestKey != "" {
		v.Keyed = copyRun(r.find(func(run *session.Run) bool { return run.RequestKey == need.RequestKey }))
	}
	if need.Open {
		v.Live, v.Unsettled = copyRun(r.live()), copyRun(r.unsettled())
	}
	if need.Journal {
		v.Journal = copyJournal(r.journal)
	}
	if need.Checkpoint && len(r.checkpoints) > 0 {
		v.Checkpoint = copyCheckpoint(&r.checkpoints[len(r.checkpoints)-1])
	}
	for _, id := range need.MessageIDs {
		if r.ids[id] {
			v.Taken = append(v.Taken, id)
		}
	}
	v.Tail = r.tail(need.Tail)
	return v
}

func (r *rows) tail(t session.Tail) []session.Message {
	from, size := len(r.messages), 0
	for from > 0 && len(r.messages)-from < t.Messages {
		size += len(r.messages[from-1].Body)
		if size > t.Bytes && from < len(r.messages) {
			break
		}
		from--
	}
	return copyMessages(r.messages[from:])
}

func (r *rows) copySession(withState bool) *session.Session {
	s := copySession(r.session)
	s.State = ""
	if withState {
		s.State = r.states[s.StateVersion]
	}
	return &s
}
