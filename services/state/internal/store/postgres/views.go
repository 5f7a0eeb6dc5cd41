package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// reader queues the queries of views. The server runs them in order: the queries after
// the lock see the writes of its former holder.
type reader struct {
	pipeline
	sessions []loadedSession // all are known before the first query
	lookups  []*lookup       // not queued yet
	composer *composer
	id       uint32 // of the transaction; 0 until a row is locked
}

// loadViews locks the sessions and fills their views, in one round trip with the
// statements queued before. It returns errStale when a hot session has changed.
func (r *reader) loadViews(ctx context.Context, conn *pgx.Conn) error {
	r.lock()
	r.agents()
	r.executors()
	r.runs()
	r.states()
	r.journals()
	r.messages()
	r.calls()
	r.waiting()
	r.undo()
	r.back()
	r.answer()
	r.asked()
	r.retry()
	r.stored()
	r.storedKeys()
	r.queueLookups()
	if err := r.run(ctx, conn); err != nil {
		return err
	}
	for i := range r.sessions {
		s := &r.sessions[i]
		if s.hot != nil {
			if !s.unchanged {
				return errStale
			}
			continue
		}
		if err := s.complete(); err != nil {
			return err
		}
	}
	return nil
}

// lock locks the sessions in the order of their keys, the one order in which all
// replicas lock.
func (r *reader) lock() {
	l := &lookup{}
	for i := range r.sessions {
		l.sessions = append(l.sessions, &r.sessions[i])
	}
	slices.SortFunc(l.sessions, func(a, b *loadedSession) int { return compare(a.Key, b.Key) })
	for _, s := range l.sessions {
		l.addKey(&s.Key)
	}
	r.each(lockSessions, &l.rows, func(row pgx.CollectableRow) error {
		var n int64
		var written, locked uint32
		to := make([]any, 4+len(sessionColumns)) // nil is skipped
		to[0], to[1], to[2], to[3] = &n, &written, &locked, &r.id
		if err := row.Scan(to...); err != nil {
			return err
		}
		s := l.sessions[n-1]
		if s.hot != nil {
			s.unchanged = written == s.hot.written && (locked == 0 || locked == written)
			return nil
		}
		s.view.Session = &session.Session{Key: s.Key}
		return row.Scan(sessionColumns.Destinations(make([]any, 4), s.view.Session)...)
	})
}

func compare(a, b session.Key) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.SessionID, b.SessionID))
}

// agents reads each named agent once for each tenant, and those of the sessions.
func (r *reader) agents() {
	read(
		r,
		readOwnAgents,
		ifNeeded(func(n *session.Need) bool { return n.OwnAgent }),
		foundAgentDestinations,
		func(s *loadedSession, a *session.Agent) { s.view.OwnAgent = a },
	)
	read(
		r,
		readAgents,
		byFirst(func(s *loadedSession) (string, string) { return s.Tenant, s.Need.AgentType }),
		foundAgentDestinations,
		func(of *loadedSession, a *session.Agent) {
			for i := range r.sessions {
				if r.sessions[i].Tenant == of.Tenant && r.sessions[i].Need.AgentType == a.Type {
					r.sessions[i].view.Agent = a
				}
			}
		},
	)
	read(r, readDefinitions, ifNeeded(func(n *session.Need) bool { return n.Definition }), single[string],
		func(s *loadedSession, hash *string) { s.view.Definition = *hash })
}

// executors reads each named executor once.
func (r *reader) executors() {
	read(r, readExecutors, byFirst(func(s *loadedSession) (string, string) { return "", s.Need.ExecutorID }), single[string], func(_ *loadedSession, id *string) {
		for i := range r.sessions {
			if r.sessions[i].Need.ExecutorID == *id {
				r.sessions[i].view.ExecutorRegistered = true
			}
		}
	})
}

func (r *reader) runs() {
	r.readRun(readRuns, byName(func(n *session.Need) string { return n.RunID }), func(s *loadedSession, run *session.Run) { s.view.Run = run })
	r.readRun(
		readKeyed,
		byName(func(n *session.Need) string { return n.RequestKey }),
		func(s *loadedSession, run *session.Run) { s.view.KeyedRun = run },
	)
	r.readRun(
		readCurrent,
		ifNeeded(func(n *session.Need) bool { return n.Current }),
		func(s *loadedSession, run *session.Run) { s.view.Current = run },
	)
	r.readRun(readLive, ifNeeded(func(n *session.Need) bool { return n.Live }), func(s *loadedSession, run *session.Run) { s.view.Live = run })
}

// silent reads whether the executors of due runs are registered.
func (r *reader) silent() {
	read(
		r,
		readSilent,
		byName(func(n *session.Need) string { return n.RunID }),
		single[string],
		func(s *loadedSession, _ *string) { s.view.OwnerUnregistered = true },
	)
}

// single is the destination of a single column.
func single[T any](to []any, value *T) []any { return append(to, value) }

func (r *reader) states() {
	r.readStates(readStates, func(l *lookup, s *loadedSession) {
		if s.Need.State || s.Need.StateIfWritten {
			l.add(s).more(s.Need.State)
		}
	}, func(s *loadedSession) *stateRows { return &s.state })

	checkpoint := func(l *lookup, s *loadedSession) {
		if id := s.Need.CheckpointID; id != "" {
			first, last := session.CheckpointSteps(id)
			l.add(s).more(id, int64(first), int64(last))
		}
	}
	take := func(s *loadedSession, c *session.Checkpoint) { s.view.Checkpoint = c }
	r.readCheckpoint(readCheckpoints, checkpoint, take)
	r.readStates(readCheckpointStates, checkpoint, func(s *loadedSession) *stateRows { return &s.checkpoint })
	r.readCheckpoint(readBelowMessages, func(l *lookup, s *loadedSession) {
		if s.Need.CheckpointBelow > 0 {
			l.add(s).more(s.Need.CheckpointBelow)
		}
	}, take)
	r.readCheckpoint(readAtStep, func(l *lookup, s *loadedSession) {
		if s.Need.CheckpointStep != 0 && s.Need.CheckpointID == "" {
			l.add(s).more(int64(s.Need.CheckpointStep))
		}
	}, take)
}

func (r *reader) journals() {
	journal := ifNeeded(func(n *session.Need) bool { return n.Journal })
	read(r, readPlans, journal, planColumns.Destinations, func(s *loadedSession, j *session.Journal) { s.view.Journal = j })
	read(r, readResults, journal, resultRead.Destinations, func(s *loadedSession, result *table.Result) {
		if j := s.view.Journal; j != nil {
			j.Results = append(j.Results, result.Result)
		}
	})
}

// existingMessage is a needed message of the conversation.
type existingMessage struct {
	id      string
	ordinal int64
}

func (r *reader) messages() {
	read(r, readExisting, byNames(func(n *session.Need) []string { return n.MessageIDs }), func(to []any, m *existingMessage) []any {
		return append(to, &m.id, &m.ordinal)
	}, func(s *loadedSession, m *existingMessage) {
		s.view.TakenIDs, s.view.TakenOrdinals = append(s.view.TakenIDs, m.id), append(s.view.TakenOrdinals, m.ordinal)
	})
	r.readMessages(readTails, func(l *lookup, s *loadedSession) {
		if t := s.Need.Tail; t.MaxMessages > 0 {
			l.add(s).more(int64(t.MaxMessages), int64(t.MaxBytes))
		}
	}, func(s *loadedSession, m *session.Message) { s.view.Tail = append(s.view.Tail, *m) })
}

func (r *reader) calls() {
	r.readCalls(readCalls, ifNeeded(func(n *session.Need) bool { return n.Calls }), func(s *loadedSession, c *session.Call) {
		s.view.Calls = append(s.view.Calls, *c)
	})
	r.readCalls(readNamed, byNames(func(n *session.Need) []string { return n.CallIDs }), func(s *loadedSession, c *session.Call) {
		s.view.NamedCalls = append(s.view.NamedCalls, *c)
	})
	read(r, readLiveBelow, func(l *lookup, s *loadedSession) {
		if most := s.Need.LiveBelow; most > 0 {
			l.add(s).more(int64(most))
		}
	}, single[int64], func(s *loadedSession, live *int64) { s.view.LiveBelow = int(*live) })
	read(
		r,
		readChildren,
		ifNeeded(func(n *session.Need) bool { return n.Children }),
		childColumns.Destinations,
		func(s *loadedSession, c *session.Child) {
			s.view.Children = append(s.view.Children, *c)
		},
	)
}

func (r *reader) waiting() {
	waiting := ifNeeded(func(n *session.Need) bool { return n.Waiting })
	read(r, readWaiting, waiting, func(to []any, w *session.WaitingRun) []any {
		return runColumns.Destinations(append(to, table.AsJSON(&w.MessageIDs)), &w.Run)
	}, func(s *loadedSession, w *session.WaitingRun) { s.view.Waiting = append(s.view.Waiting, *w) })
	read(
		r,
		readWaitingInput,
		waiting,
		func(to []any, h *session.RunInput) []any { return append(to, table.AsJSON(h)) },
		func(s *loadedSession, h *session.RunInput) { s.view.WaitingInput = h },
	)
}

func (r *reader) undo() {
	undo := ifNeeded(func(n *session.Need) bool { return n.Undo })
	r.readMessages(readKept, undo, func(s *loadedSession, m *session.Message) { s.view.KeptMessages = append(s.view.KeptMessages, *m) })
	r.readCalls(readReportedLate, undo, func(s *loadedSession, c *session.Call) { s.view.ReportedLate = append(s.view.ReportedLate, *c) })
	r.readCheckpoint(readFormer, undo, func(s *loadedSession, c *session.Checkpoint) { s.view.FormerCheckpoint = c })
	r.readStates(readStartStates, undo, func(s *loadedSession) *stateRows { return &s.start })
}

func (r *reader) back() {
	to := byName(func(n *session.Need) string { return n.RewindToMessage })
	read(r, readBack, to, func(to []any, b *session.RewindPoint) []any {
		return messageRead.Destinations(append(to, &b.StepBefore), &b.Message)
	}, func(s *loadedSession, b *session.RewindPoint) { s.view.RewindPoint = b })
	r.readRun(readBackRun, to, func(s *loadedSession, run *session.Run) { s.backOf().Run = run })
	r.readCheckpoint(readBackCheckpoint, to, func(s *loadedSession, c *session.Checkpoint) { s.backOf().Checkpoint = c })
	r.readMessages(readBackResults, to, func(s *loadedSession, m *session.Message) { b := s.backOf(); b.Results = append(b.Results, *m) })
	r.readCalls(
		readBackReportedLate,
		to,
		func(s *loadedSession, c *session.Call) { b := s.backOf(); b.ReportedLate = append(b.ReportedLate, *c) },
	)
	r.readStates(readBackStates, to, func(s *loadedSession) *stateRows { return &s.back })
}

func (r *reader) answer() {
	answer := byName(func(n *session.Need) string { return n.AnswerID })
	read(r, readAnswer, answer, func(to []any, a *session.AnswerRun) []any {
		a.Run = &session.Run{}
		return runColumns.Destinations(append(to, &a.QuestionInPlace), a.Run)
	}, func(s *loadedSession, a *session.AnswerRun) {
		fillOutcome(a.Run)
		s.view.Answer = a
	})
	r.readMessages(readQuestions, answer, func(s *loadedSession, m *session.Message) {
		if a := s.view.Answer; a != nil {
			a.Questions = append(a.Questions, *m)
		}
	})
}

// asked reads users' messages from a place in the conversation on.
func (r *reader) asked() {
	read(r, readAsked, func(l *lookup, s *loadedSession) {
		if from := s.Need.AskedFrom; from > 0 {
			l.add(s).more(from)
		}
	}, func(to []any, m *session.Asked) []any {
		return messageRead.Destinations(append(to, &m.StartedBy), &m.Message)
	}, func(s *loadedSession, m *session.Asked) { s.view.Asked = append(s.view.Asked, *m) })
}

// stored counts the rows of sessions to delete.
func (r *reader) stored() {
	read(r, readStored, ifNeeded(func(n *session.Need) bool { return n.Stored }), func(to []any, n *storedRows) []any {
		return append(to, &n.table, &n.rows)
	}, func(s *loadedSession, n *storedRows) {
		if s.view.Stored == nil {
			s.view.Stored = session.Removed{}
		}
		s.view.Stored[n.table] = n.rows
	})
}

// storedKeys reads the entries of private stores that a command writes.
func (r *reader) storedKeys() {
	read(r, readStoredKeys, byNames(func(n *session.Need) []string { return n.StoreKeys }), func(to []any, k *session.StoredKey) []any {
		return append(to, &k.Key, &k.Bytes, &k.Short)
	}, func(s *loadedSession, k *session.StoredKey) { s.view.StoredKeys = append(s.view.StoredKeys, *k) })
}

// storedRows is the number of a session's rows in a table.
type storedRows struct {
	table string
	rows  int64
}

func (r *reader) retry() {
	retry := ifNeeded(func(n *session.Need) bool { return n.FailedStep })
	r.readCheckpoint(readFailedCheckpoint, retry, func(s *loadedSession, c *session.Checkpoint) { s.failed.Checkpoint = c })
	r.readStates(readFailedStates, retry, func(s *loadedSession) *stateRows { return &s.lastStep })
	r.readMessages(readLastStep, retry, func(s *loadedSession, m *session.Message) { s.failed.Messages = append(s.failed.Messages, *m) })
}
