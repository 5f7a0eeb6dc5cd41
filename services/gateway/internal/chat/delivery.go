package chat

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

var (
	// errReread: read again from delivery.cursor.
	errReread = errors.New("read again")
	// errNext: continue with the new delivery.run.
	errNext = errors.New("read the next run")
	// errVoid: the client has void parts and cannot remove them.
	errVoid = errors.New("the client cannot remove its void parts")
)

// delivery writes one exchange to one client. It is the sink of its follow. One goroutine at a time
// uses it.
//
// A client with the message up to a position (after) receives the rest. The run is still read from
// its start, because the translator must know the client's parts, but nothing is written before the
// position. If the frames do not have the position, its attempt is void or was committed, and the
// message is written from its start. If the client has sent the message, it receives the rest in
// the same way (clientCopy).
type delivery struct {
	*Exchange
	ctx     context.Context //nolint:containedctx // one delivery is one request
	out     Output
	copy    *clientCopy     // nil if the client has not sent the message
	writers map[string]bool // the runs of the message: the run, and those that it continues
	start   int64           // position of the start of the first of them

	t          *uistream.Translator
	following  *follow.Follow
	passed     bool                        // the frame at after was seen
	cursor     int64                       // position of the read
	behind     Cursor                      // of the last part
	current    *frame.Frame                // frame of the current chunk; nil before the first
	loaded     *statev1.GetSessionResponse // the session when it was first loaded; nil before
	readFailed bool                        // the first load failed
	subAgents  map[string]bool             // the message's own calls of sub-agents so far
	below      map[string]bool             // the sessions of all sub-agents of the message so far
	emptyStep  bool                        // the client's last step is empty: the next one takes its place
}

// deliver writes the exchange to its end. If it fails after out has begun, the caller must cut the
// stream.
func (d *delivery) deliver() error {
	d.out.Begin()
	d.reset()
	if d.resent != nil {
		if d.resent.awaited != nil {
			return d.askForMoreAnswers()
		}
		d.copy = d.resent.copy.clone()
	}
	d.writers = runIDs(d.runs)
	d.start = d.runs[0].GetStartPosition()
	if conversation.Waiting(d.run) {
		d.start = d.session.GetPosition()
	}
	if err := d.begin(); err != nil {
		return err
	}
	for d.cursor = d.start; ; {
		d.following = d.chat.follower.FollowRun(follow.Request{
			Tenant: d.session.GetTenant(), SessionID: d.session.GetSessionId(), RunID: d.run.GetRunId(),
			After: d.cursor, SeenLive: d.after.Sequence, LiveBelow: true, NewRun: d.beginsRun,
		}, d.session, d.run)
		err := d.following.To(d.ctx, d)
		if !errors.Is(err, errReread) && !errors.Is(err, errNext) {
			return err
		}
	}
}

// begin writes the start part to a client without parts. For a waiting run, the start comes when
// the run begins.
func (d *delivery) begin() error {
	hasStart := d.after == d.behindStart()
	if d.after.Sequence <= d.start {
		d.after = Cursor{}
	}
	d.behind = d.after
	switch {
	case hasStart:
		d.t.Start()
		d.behind = d.behindStart()
		d.updateMetadata()
	case d.after.Sequence == 0 && !conversation.Waiting(d.run) && !conversation.NeverStarted(d.run):
		d.putStart()
	}
	if d.resent != nil && d.resent.below && d.major >= uistream.DefaultMajor {
		d.put([]uistream.Part{{Type: "reset-step"}})
		d.emptyStep = true
	}
	return d.out.Flush()
}

// updateMetadata updates the metadata of a client that may have the start of an earlier run.
func (d *delivery) updateMetadata() {
	if len(d.writers) > 1 {
		d.put(d.t.UpdateMetadata(conversation.RunOf(d.run).Metadata()))
	}
}

// behindStart returns the cursor behind the start part, which comes before all chunks.
func (d *delivery) behindStart() Cursor { return Cursor{Sequence: d.start, Start: true} }

// putStart writes the start part.
func (d *delivery) putStart() {
	d.behind = d.behindStart()
	d.put(d.t.Start())
}

func (d *delivery) reset() {
	id := d.run.GetMessageId()
	if d.resent != nil && d.resent.reply.id != "" {
		id = d.resent.reply.id
	}
	d.t, d.subAgents, d.below = uistream.New(id, d.major), map[string]bool{}, map[string]bool{}
	d.t.SetAnswered(d.isAnswered)
	if d.chat.config.Metadata {
		d.t.SetMetadata(conversation.RunOf(d.run).Metadata())
	}
}

// Frame writes the next frame of the session.
func (d *delivery) Frame(f *frame.Frame) error {
	switch {
	case f.Session != "":
		d.writeBelow(f.Session, f.Chunk)
		return nil
	case f.Rewound:
		return d.rewound(f.Sequence)
	case d.writers[f.Chunk.GetRunResumed().GetPreviousRunId()] && !d.writers[f.Chunk.GetAgentId()]:
		message, err := d.loadMessage()
		if err != nil {
			return err
		}
		if err := d.continueWith(message); err != nil {
			return err
		}
	}
	d.cursor = f.Sequence
	if err := d.checkPosition(f); err != nil {
		return err
	}
	switch fail, end := f.Terminal.GetFail(), f.Terminal.GetEnd(); {
	case f.Chunk != nil && d.writers[f.Chunk.GetAgentId()]:
		d.current = f
		d.write(f.Sequence, d.t.Chunk(f.Sequence, f.Chunk))
		d.noteSubAgent(f)
	case f.Terminal != nil && conversation.NeverStarted(d.following.Run()):
		end := d.t.FinishWithoutMessage()
		if run := d.following.Run(); run.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED {
			end = []uistream.Part{uistream.Error(run.GetFailure().GetError())}
		}
		d.end(f.Sequence, end)
	case fail != nil:
		d.end(f.Sequence, d.t.Fail(fail.GetError()))
	case end != nil:
		return d.finish(f.Sequence, end)
	}
	return nil
}

// writeBelow writes the chunk of a session below the root: the sub-agents that it calls, and the ends
// of its calls that the client has answered. The sessions of another message are not this one's.
func (d *delivery) writeBelow(session string, c *eventv1.Chunk) {
	if !d.below[session] {
		return
	}
	if begun := c.GetSubagentStart().GetSubSessionId(); begun != "" {
		d.below[begun] = true
	}
	switch {
	case c.GetSubagentStart() != nil, c.GetSubagentEnd() != nil:
		d.put([]uistream.Part{uistream.DescendantOf(session, c).Part()})
	case c.GetToolEnd() != nil:
		d.put(d.t.EndPending(c.GetToolEnd()))
	}
}

// noteSubAgent notes the begin of a sub-agent. For a stored one, it writes the sub-agents below. Those of a live
// one are live, too.
func (d *delivery) noteSubAgent(f *frame.Frame) {
	call := f.Chunk.GetSubagentStart().GetToolCallId()
	if call == "" {
		return
	}
	d.subAgents[call], d.below[f.Chunk.GetSubagentStart().GetSubSessionId()] = true, true
	if position.Of(f.Sequence).Attempt == position.Stored {
		d.writeDescendants(map[string]bool{call: true})
	}
}

// writeDescendants writes the sub-agents below those of the calls. A failed read loses them until the page
// reloads.
func (d *delivery) writeDescendants(calls map[string]bool) {
	if len(calls) == 0 {
		return
	}
	session, err := d.loadSession()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, answeredTimeout)
	defer cancel()
	list, err := d.chat.sessions.Descendants(ctx, session, calls)
	if err != nil {
		d.chat.log.WarnContext(d.ctx, "the sub-agents of sub-agents cannot be read", "session", d.SessionID(), "error", err)
	}
	for _, descendant := range list {
		d.below[descendant.SessionID] = true
		d.put([]uistream.Part{descendant.Part()})
	}
}

// finish ends the message of a run without a failure, unless another run continues it already.
func (d *delivery) finish(sequence int64, end *streamv2.End) error {
	d.writeDescendants(d.subAgents)
	how := endings[end.GetStatus()]
	var asked []uistream.PendingCall
	if how == uistream.Paused {
		var err error
		asked, err = d.pendingCalls()
		if errors.Is(err, errStopped) {
			d.write(0, d.t.Pending(asked))
			d.end(0, d.t.FailStopped(conversation.StopReason(d.session))) // even if the client has the end
			return nil
		}
		if err != nil {
			return err
		}
		d.writePending(asked)
	}
	d.end(sequence, d.preventResend(asked, d.t.Finish(how)))
	return nil
}

// endings are the endings of terminal records. An unknown status counts as paused.
var endings = map[streamv2.EndStatus]uistream.Ending{
	streamv2.EndStatus_END_STATUS_UNSPECIFIED: uistream.Paused,
	streamv2.EndStatus_END_STATUS_COMPLETED:   uistream.Completed,
	streamv2.EndStatus_END_STATUS_PAUSED:      uistream.Paused,
	streamv2.EndStatus_END_STATUS_INTERRUPTED: uistream.Interrupted,
}

// checkPosition looks for the client's position. If a frame passes it, the client's parts are void,
// or come in another form.
func (d *delivery) checkPosition(f *frame.Frame) error {
	after := d.after.Sequence
	if after == 0 || d.passed {
		return nil
	}
	switch {
	case f.Sequence == after && !f.CaughtUp, f.Sequence == after-1 && isRunEnd(f.Chunk):
		d.passed = true // only the end of the run comes after its last chunk
		d.updateMetadata()
	case f.Sequence > after || f.CaughtUp:
		d.after = Cursor{}
		d.reset()
		d.putStart()
		d.cursor = d.start
		return errReread
	}
	return nil
}

// isRunEnd reports whether the chunk says how a run ended.
func isRunEnd(c *eventv1.Chunk) bool {
	return c.GetRunCompleted() != nil || c.GetRunInterrupted() != nil || c.GetRunSuspended() != nil || c.GetError() != nil
}

// rewound voids the client's parts after the position.
func (d *delivery) rewound(at int64) error {
	parts, ok := d.t.Rewind(at)
	if !ok {
		return errVoid
	}
	if d.after.Sequence == 0 || d.passed { // otherwise the client has nothing void, or begins again
		// The reset has the id before it, which is void now. At no valid cursor does a client have the start of a void step.
		d.put(d.copy.rest(d.currentRun(), parts, d.major >= uistream.DefaultMajor))
	}
	d.cursor = at
	return nil
}

// write writes the missing parts of one record; sequence is 0 for parts outside of records.
func (d *delivery) write(sequence int64, parts []uistream.Part) {
	had, ok := d.had(sequence, len(parts))
	if !ok {
		return
	}
	rest := d.copy.rest(d.currentRun(), parts[had:], d.major >= uistream.DefaultMajor)
	if len(rest) < len(parts)-had {
		had = unknownPart
	}
	d.putFrom(sequence, had, rest)
}

// had returns how many of the record's parts the client has, by its cursor. ok is false for all.
func (d *delivery) had(sequence int64, parts int) (had int, ok bool) {
	switch {
	case sequence == 0 || sequence > d.after.Sequence:
		return 0, true
	case sequence == d.after.Sequence && d.after.Parts > 0:
		return min(d.after.Parts, parts), true
	default:
		return 0, false
	}
}

// unknownPart says that the parts before one are not all of its record before it.
const unknownPart = -1

// put writes parts outside of records.
func (d *delivery) put(parts []uistream.Part) { d.putFrom(0, 0, parts) }

// putFrom writes the parts of a record after the first had.
func (d *delivery) putFrom(sequence int64, had int, parts []uistream.Part) {
	if d.emptyStep {
		if at := slices.IndexFunc(parts, isStepStart); at >= 0 {
			parts, d.emptyStep, had = slices.Delete(slices.Clone(parts), at, at+1), false, unknownPart
		}
	}
	for i, p := range parts {
		text, err := p.Append(nil)
		if err != nil { // cannot happen: the texts of tools are valid
			d.chat.log.ErrorContext(d.ctx, "part cannot be encoded", "type", p.Type, "error", err)
			continue
		}
		switch {
		case sequence == 0: // comes again
		case i == len(parts)-1:
			d.behind = Cursor{Sequence: sequence}
		case had != unknownPart:
			d.behind = Cursor{Sequence: sequence, Parts: had + i + 1}
		}
		d.out.Part(d.behind, text)
	}
}

// end writes the last parts and ends the stream. A client with the first of them lacks at least the last one.
func (d *delivery) end(sequence int64, parts []uistream.Part) {
	rest := d.copy.end(parts)
	if had, ok := d.had(sequence, len(rest)-1); ok {
		d.putFrom(sequence, had, rest[had:])
	}
	d.out.Done(d.behind)
}

// currentRun gives the run of the present chunk.
func (d *delivery) currentRun() string {
	if d.current == nil {
		return ""
	}
	return d.current.Chunk.GetAgentId()
}

// Flush sends the written parts.
func (d *delivery) Flush() error { return d.out.Flush() }

// Heartbeat keeps the connection alive.
func (d *delivery) Heartbeat() error { return d.out.Beat() }
