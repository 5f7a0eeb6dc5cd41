package snapshot_test

import (
	"fmt"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// story is a session as an executor works on it, in the order that the executor keeps:
// chunks, results, commit, step_committed. moments has the world after each thing
// that happened.
type story struct {
	// choose gives a number from 0 to n-1.
	choose  func(what string, n int) int
	now     *moment
	moments []*moment
	last    int64 // the last sequence that was given

	run     *statev1.Run
	first   int32 // the last step before the run
	base    int64 // everything of steps after safe stands behind it
	safe    int32 // the last step that stands in the stream
	behind  bool  // the base is below some of the safe step
	untold  []step
	current []*eventv1.Chunk // what was told of the step in flight
	lossy   bool             // the stream is away: what is told is lost
	fails   bool             // the log may lose what it has
	calls   int              // made so far
	open    []*open          // what the run has left to others
}

// step is a committed step.
type step struct {
	number   int32
	messages []*eventv1.Message
	chunks   []*eventv1.Chunk
}

func newStory(choose func(string, int) int) *story {
	s := &story{choose: choose, now: &moment{began: 1, session: &statev1.Session{Tenant: "default", SessionId: "s", RootSessionId: "s", AgentType: "demo", Version: 1}}}
	s.now.session.Status = statev1.SessionStatus_SESSION_STATUS_PAUSED
	s.mark()
	return s
}

func (s *story) mark() { s.moments = append(s.moments, s.now.clone()) }

func (s *story) store(messages ...*eventv1.Message) {
	for _, m := range messages {
		m.Id = fmt.Sprintf("m%d", len(s.now.messages))
		s.now.messages = append(s.now.messages, m)
	}
	s.now.session.MessageCount = int64(len(s.now.messages))
}

// ask starts the next run; it waits for an executor.
func (s *story) ask() *statev1.Run {
	turn := int32(len(s.now.runs) + 1)
	run := &statev1.Run{RunId: fmt.Sprintf("run-%d", turn), SessionId: "s", Turn: turn, Status: statev1.RunStatus_RUN_STATUS_QUEUED}
	run.MessageId = "msg-" + run.GetRunId()
	s.now.runs = append(s.now.runs, run)
	s.store(&eventv1.Message{Role: eventv1.Role_ROLE_USER, RunId: run.GetRunId(), Parts: says(fmt.Sprintf("question %d", turn))})
	s.now.session.Version++
	s.now.session.Turn, s.now.session.CurrentRunId, s.now.session.Status = turn, run.GetRunId(), statev1.SessionStatus_SESSION_STATUS_ACTIVE
	s.mark()
	return run
}

// turn plays the run to its end. next says that the next run is asked for before this
// one is settled; it is given then. Where others have to answer its last step, it ends
// with that, and the run that goes on follows.
func (s *story) turn(run *statev1.Run, steps int, next bool) *statev1.Run {
	asks := s.choose("asks", 2) == 1
	s.begin(run)
	for i := range steps {
		last := i == steps-1
		s.step(s.first+1+int32(i), last, last && asks)
	}
	if asks {
		s.finish(&eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "step_partial"}}})
		if s.choose("answers", 3) == 1 {
			s.begin(s.giveUp())
		} else {
			s.begin(s.answer(run))
		}
		s.drain(s.first + 1)
		s.step(s.first+2, true, false)
	}
	var queued *statev1.Run
	if next {
		queued = s.ask()
	}
	s.finish(&eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{FinishReason: "stop"}}})
	return queued
}

// begin has an executor take the run.
func (s *story) begin(run *statev1.Run) {
	session := s.now.session
	s.run, s.first, s.safe, s.base = run, session.GetStepCount(), session.GetStepCount(), session.GetStreamSequence()
	s.behind, s.current = false, nil
	run.Status = statev1.RunStatus_RUN_STATUS_RUNNING
	session.Status = statev1.SessionStatus_SESSION_STATUS_ACTIVE
	s.mark()
	s.tell(s.first, s.head())
}

// head is the first chunk of the run.
func (s *story) head() *eventv1.Chunk {
	if own := "msg-" + s.run.GetRunId(); s.run.GetMessageId() == own {
		return started()
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{MessageId: s.run.GetMessageId()}}}
}

// opening reports whether a run begins with the chunk.
func opening(c *eventv1.Chunk) bool { return c.GetRunStarted() != nil || c.GetRunResumed() != nil }

// finish tells how the run has ended, and settles it.
func (s *story) finish(last *eventv1.Chunk) {
	session := s.now.session
	s.tell(session.GetStepCount(), last)
	s.mend()
	sequence := s.append(record{terminal: s.run.GetRunId(), run: s.run.GetRunId()})
	s.mark()
	session.StreamSequence, session.StreamStep, s.run.Settled = sequence, session.GetStepCount(), true
	s.mark()
}

func (s *story) append(r record) int64 {
	if n := len(s.now.log); n > 0 {
		r.prev = s.now.log[n-1].sequence
	}
	s.last += int64(1 + s.choose("gap", 2))
	r.sequence = s.last
	s.now.log = append(s.now.log, r)
	return r.sequence
}

// tell tells a chunk of the step in flight, or between two.
func (s *story) tell(number int32, c *eventv1.Chunk) {
	c.AgentId, c.AgentType, c.Step = s.run.GetRunId(), "demo", number
	s.current = append(s.current, c)
	if s.fails && !s.lossy {
		switch s.choose("the log", 20) {
		case 0:
			s.lossy = true // the stream is away
			s.now.away = !s.behind && s.choose("readers", 2) == 0
			s.mark()
		case 1:
			s.lose()
		}
	}
	if !s.lossy {
		s.append(record{chunk: c, run: c.GetAgentId()})
		s.mark()
	}
}

// lose takes everything from the log, which is begun anew; the writer notices with its
// next append, and tells the run again.
func (s *story) lose() {
	former := s.last
	s.last += 5
	s.now.log, s.now.began, s.now.floor = nil, s.last+1, 0
	s.mark()
	s.append(record{marker: true, anew: true, prev: former, run: s.run.GetRunId()})
	s.now.log[0].prev = former
	s.mark()
	s.untold = nil
	for n := s.first + 1; n <= s.now.session.GetStepCount(); n++ {
		s.untold = append(s.untold, s.committed(n))
	}
	s.safe = s.first
	current := slices.DeleteFunc(slices.Clone(s.current[:len(s.current)-1]), func(c *eventv1.Chunk) bool {
		return opening(c) || c.GetStepCommitted() != nil
	})
	s.retell(append([]*eventv1.Chunk{s.stamp(s.first, s.head())}, current...))
}

// committed makes the step of its messages.
func (s *story) committed(number int32) step {
	out := step{number: number}
	for _, m := range s.now.messages {
		if m.GetRunId() != s.run.GetRunId() || m.GetStep() != number {
			continue
		}
		if m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			out.chunks = append(out.chunks, stepStarted())
		}
		out.messages = append(out.messages, m)
		out.chunks = append(out.chunks, chunksOf(m)...)
	}
	for _, o := range s.open {
		if o.call.GetStep() == number {
			out.chunks = append(out.chunks, o.questions()...)
		}
	}
	return out
}

func (s *story) stamp(number int32, c *eventv1.Chunk) *eventv1.Chunk {
	c.AgentId, c.AgentType, c.Step = s.run.GetRunId(), "demo", number
	return c
}

// retell writes the steps that the stream does not have, and what follows.
func (s *story) retell(current []*eventv1.Chunk) {
	s.lossy = false
	head := true
	for _, c := range current { // run_started goes first
		if opening(c) && head {
			s.append(record{chunk: c, run: c.GetAgentId()})
			s.mark()
			head = false
		}
	}
	for _, u := range s.untold {
		for _, c := range append(u.chunks, stepCommitted(u.number)) {
			s.append(record{chunk: s.stamp(u.number, c), run: s.run.GetRunId()})
			s.mark()
		}
		s.safe, s.behind = u.number, s.fails && s.choose("where it stands is known", 2) == 1
		if !s.behind {
			s.base = s.last
		}
	}
	s.untold = nil
	for _, c := range current {
		if !opening(c) {
			s.append(record{chunk: c, run: c.GetAgentId()})
			s.mark()
		}
	}
}

// mend makes the stream whole again after it was away.
func (s *story) mend() {
	if !s.lossy {
		return
	}
	s.now.away = false
	begun := slices.ContainsFunc(s.now.log, func(r record) bool { return opening(r.chunk) && r.run == s.run.GetRunId() })
	s.rewind(s.base, s.safe)
	current := s.current
	if !begun && !slices.ContainsFunc(current, func(c *eventv1.Chunk) bool { return opening(c) }) {
		current = append([]*eventv1.Chunk{s.stamp(s.first, s.head())}, current...)
	}
	if begun { // it stands already
		current = slices.DeleteFunc(slices.Clone(current), func(c *eventv1.Chunk) bool { return opening(c) })
	}
	if n := len(s.untold); n > 0 { // step_committed of the last one is the first of what follows
		current = slices.DeleteFunc(slices.Clone(current), func(c *eventv1.Chunk) bool { return c.GetStepCommitted() != nil })
	}
	s.retell(current)
}

// rewind voids chunks behind the sequence whose step is above the other: a marker is
// written, and then they are removed.
func (s *story) rewind(from int64, above int32) {
	at, voided := int64(0), false
	for _, r := range s.now.log {
		if r.sequence > from && r.chunk != nil && r.chunk.GetStep() > above {
			voided = true
			break
		}
		at = r.sequence
	}
	s.append(record{marker: true, at: at, run: s.run.GetRunId()})
	s.mark()
	if voided {
		s.now.log = slices.DeleteFunc(s.now.log, func(r record) bool { return r.sequence > at && r.chunk != nil })
		s.mark()
	}
}

// step plays one step: attempts that are lost, then one that is committed.
func (s *story) step(number int32, last, asks bool) {
	for range s.choose("lost attempts", 2) {
		p := s.plan(number, "lost")
		for _, c := range p.chunks[:s.choose("chunks of the attempt", len(p.chunks)+1)] {
			s.tell(number, c)
		}
		s.current = slices.DeleteFunc(s.current, func(c *eventv1.Chunk) bool { return c.GetStep() == number })
		s.takeBack(number - 1)
	}
	p := s.plan(number, "kept")
	for _, c := range p.chunks {
		s.tell(number, c)
	}
	if s.choose("mended", 2) == 1 {
		s.mend()
	}
	planned, told := s.last, len(s.current)
	if len(p.results) > 0 && s.choose("lost in the tool", 2) == 1 {
		s.tell(number, p.results[0])
		if !s.lossy && s.last > planned && s.now.log[len(s.now.log)-1].chunk != nil && s.standing(planned) {
			s.current = s.current[:told]
			s.voidAfter(planned)
			p = s.again(p)
		} else {
			p.results = p.results[1:]
		}
	}
	for _, c := range p.results {
		s.tell(number, c)
	}
	if asks {
		s.leave(number, p.messages[0])
	}
	s.commit(number, p.messages, last)
}

func (s *story) standing(sequence int64) bool {
	return slices.ContainsFunc(s.now.log, func(r record) bool { return r.sequence == sequence })
}

// again is the plan whose results are told by another executor.
func (s *story) again(p plan) plan {
	p.results = nil
	for _, m := range p.messages {
		if m.GetRole() == eventv1.Role_ROLE_TOOL {
			p.results = append(p.results, chunksOf(m)...)
		}
	}
	return p
}

func (s *story) voidAfter(at int64) {
	s.append(record{marker: true, at: at, run: s.run.GetRunId()})
	s.mark()
	s.now.log = slices.DeleteFunc(s.now.log, func(r record) bool { return r.sequence > at && r.chunk != nil })
	s.mark()
}

func (s *story) takeBack(above int32) {
	if s.lossy {
		s.mend()
		return
	}
	s.rewind(s.base, above)
}

// commit makes the step durable and then says so.
func (s *story) commit(number int32, messages []*eventv1.Message, last bool) {
	session := s.now.session
	for _, m := range messages {
		m.RunId, m.Step = s.run.GetRunId(), number
	}
	s.store(messages...)
	session.Version++
	session.StepCount, session.CheckpointId = number, fmt.Sprintf("cp-%d", number)
	s.run.StepCount++
	u := s.committed(number)
	if s.lossy {
		s.untold = append(s.untold, u)
	} else {
		s.safe, s.base, s.behind = number, s.last, false
	}
	session.StreamStep, session.StreamSequence = max(session.GetStreamStep(), s.safe), max(session.GetStreamSequence(), s.base)
	switch {
	case last && len(s.open) > 0:
		s.suspend()
	case last:
		s.run.Status, session.Status = statev1.RunStatus_RUN_STATUS_COMPLETED, statev1.SessionStatus_SESSION_STATUS_COMPLETED
	}
	s.mark()
	s.current = nil
	s.tell(number, stepCommitted(number))
}
