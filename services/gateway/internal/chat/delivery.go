package chat

import (
	"context"
	"errors"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

var (
	// errAgain: read again from delivery.again.
	errAgain = errors.New("read again")
	// errLost: the log does not have the run any more.
	errLost = errors.New("the run is not in the log")
	// errQuiet: the run is settled and its end has not come; ask the log for it.
	errQuiet = errors.New("ask the log for the end of a settled run")
	// errNext: go on with delivery.run, which was changed.
	errNext = errors.New("read the next run")
	// errVoid: the client has parts that cannot be taken back.
	errVoid = errors.New("the client cannot take back what is void")
)

const lostText = "The rest of this answer is no longer in the stream. Please reload the conversation."

// delivery tells one exchange to one client; it is the sink of its feed. One
// goroutine at a time uses it.
//
// A client that has the message up to a cursor (after) is told the rest: the run
// is read from its start all the same, for the translator to know what the
// client knows, and what the client has is not written. The cursor has to be met
// on the way: a record that is no longer there was void, and then the message is
// told from its start. A client that has sent the message itself is told the rest in
// the same way (has).
type delivery struct {
	*Exchange
	ctx   context.Context //nolint:containedctx // a delivery is one request
	out   Out
	has   *has            // what the client has; nil: nothing, but for what after says
	wrote map[string]bool // the runs that have written the message: the run, and what it continues
	start int64           // where the first of them began

	t     *uistream.Translator
	met   bool // the record of after was seen
	again int64

	cursor  int64                       // of the read
	floor   int64                       // where the run is read from when nothing is kept at its start any more; 0: from its start
	heard   bool                        // a record of the run was seen
	written bool                        // something behind the start part was written
	settled bool                        // the run was settled at the last beat
	history bool                        // the log is asked for what it has, and tells when that is all
	ended   bool                        // the end was written
	lost    bool                        // the end was that the rest is lost
	told    *streamv1.ChunkFrame        // the chunk that is being told
	whole   *statev1.GetSessionResponse // how the session stood when it was first asked; nil: not yet
	blind   bool                        // it was asked, and did not answer
}

// tell tells the exchange to its end. An error after out has begun has to cut the stream.
func (d *delivery) tell() error {
	if err := d.await(); err != nil {
		return err
	}
	d.reset()
	if conversation.GivenUp(d.run) {
		return d.giveUp()
	}
	if d.back != nil && d.back.partial != nil {
		return d.close()
	}
	if err := d.trace(); err != nil {
		return err
	}
	if err := d.begin(); err != nil {
		return err
	}
	return d.follow()
}

// follow reads the run until its end has been written. A run is taken for lost
// when the log itself was asked for its history and had no end.
func (d *delivery) follow() error {
	for d.cursor = d.start; ; {
		err := d.chat.feed.Follow(d.ctx, &streamv1.ReadRequest{
			Stream: conversation.Stream(d.session), RunId: d.run.GetRunId(), RecordedSequence: d.session.GetStreamSequence(),
			FromSequence: d.cursor, HistoryOnly: d.history,
		}, d)
		switch {
		case errors.Is(err, errAgain):
			d.cursor = d.again
		case errors.Is(err, errNext): // from where this one has ended
		case errors.Is(err, errQuiet):
			d.history = true
		case errors.Is(err, errLost), err == nil && !d.ended:
			if err := d.fromStore(); !errors.Is(err, errNext) {
				return err
			}
			d.forget()
			d.cursor = d.start
		default:
			return err
		}
	}
}

// trace finds the runs of the message.
func (d *delivery) trace() error {
	var runs []*statev1.Run
	if d.back != nil {
		runs, d.has = d.back.runs, d.back.has.copy()
	} else {
		var err error
		if runs, err = d.chat.sessions.Message(d.ctx, d.session.GetTenant(), d.run); err != nil {
			return err
		}
	}
	d.wrote, d.start = ids(runs), runs[0].GetStartSequence()
	return nil
}

// await sends the headers and waits for the turn of a run that waits. There is no
// message before it begins; one that is given up has none.
func (d *delivery) await() error {
	d.out.Begin()
	if !conversation.Waiting(d.run) {
		return nil
	}
	if err := d.out.Flush(); err != nil {
		return err
	}
	run, err := d.chat.turns.Await(d.ctx, d.session, d.run, d.out.Beat)
	if err != nil {
		return err
	}
	d.run = run
	return nil
}

// giveUp ends the stream of a run that never began.
func (d *delivery) giveUp() error {
	parts := d.t.GiveUp()
	if d.run.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED {
		parts = []uistream.Part{uistream.Error(d.run.GetFailure().GetError())}
	}
	d.end(0, parts)
	return d.out.Flush()
}

// close ends the stream of a client whose answers are not all that is awaited. It is told
// of the calls that it does not know.
func (d *delivery) close() error {
	d.put(0, d.t.Start())
	d.t.Chunk(0, &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}})
	d.put(0, d.t.Pending(d.unknown()))
	d.end(0, d.t.Finish(uistream.Paused))
	return d.out.Flush()
}

// begin tells the start part to a client that has nothing yet.
func (d *delivery) begin() error {
	if d.after <= d.start {
		d.after = 0
	}
	if d.after == 0 {
		d.put(0, d.t.Start())
	}
	return d.out.Flush()
}

func (d *delivery) reset() {
	id := d.run.GetMessageId()
	if d.back != nil && d.back.reply.id != "" {
		id = d.back.reply.id
	}
	d.t = uistream.New(id, d.major)
	d.t.Answered(d.answered)
	if d.chat.config.Metadata {
		d.t.Describe(uistream.Metadata{RunID: d.run.GetRunId(), AgentType: d.run.GetAgentType()})
	}
}

// startAnew tells the client to begin the message again.
func (d *delivery) startAnew() {
	d.after = 0
	d.reset()
	d.put(0, d.t.Start())
}

// forget begins to read anew for a client that was told nothing behind the start part.
func (d *delivery) forget() {
	d.reset()
	d.t.Start()
	if d.back != nil {
		d.has = d.back.has.copy()
	}
	d.told, d.met, d.heard, d.floor = nil, false, false, 0
}

// Frame takes the next frame of the run.
func (d *delivery) Frame(frame *feed.Frame) error {
	d.settled = false
	d.cursor = feed.Cursor(frame.ReadResponse, d.cursor)
	if err := d.meet(frame.ReadResponse); err != nil {
		return err
	}
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		if d.wrote[f.Chunk.GetChunk().GetAgentId()] {
			return d.chunk(f.Chunk)
		}
	case *streamv1.ReadResponse_End:
		return d.finish(f.End)
	case *streamv1.ReadResponse_Fail:
		d.end(f.Fail.GetSequence(), d.t.Fail(f.Fail.GetFail().GetError()))
	case *streamv1.ReadResponse_Rewound:
		return d.rewound(f.Rewound)
	case *streamv1.ReadResponse_Truncated:
		return d.truncated(f.Truncated.GetFloor())
	}
	return nil
}

// finish ends the message of a run that has not failed, unless it goes on at once.
func (d *delivery) finish(f *streamv1.EndFrame) error {
	how := endings[f.GetEnd().GetStatus()]
	var asked []uistream.Asked
	if how == uistream.Paused {
		var err error
		asked, err = d.left()
		if errors.Is(err, errStopped) {
			d.write(0, d.t.Pending(asked))
			d.stop()
			return nil
		}
		if err != nil {
			return err
		}
		d.write(0, d.t.Pending(asked))
	}
	d.end(f.GetSequence(), d.still(asked, d.t.Finish(how)))
	return nil
}

// endings are those of terminal records; others pause.
var endings = map[streamv1.EndStatus]uistream.Ending{
	streamv1.EndStatus_END_STATUS_UNSPECIFIED: uistream.Paused,
	streamv1.EndStatus_END_STATUS_COMPLETED:   uistream.Completed,
	streamv1.EndStatus_END_STATUS_PAUSED:      uistream.Paused,
	streamv1.EndStatus_END_STATUS_INTERRUPTED: uistream.Interrupted,
}

// ending is how a run ended that has not failed.
func ending(s statev1.RunStatus) uistream.Ending {
	switch s {
	case statev1.RunStatus_RUN_STATUS_COMPLETED:
		return uistream.Completed
	case statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		return uistream.Interrupted
	default:
		return uistream.Paused
	}
}

// chunk takes a chunk of the run.
func (d *delivery) chunk(f *streamv1.ChunkFrame) error {
	if d.floor > 0 && !d.heard && !first(f.GetChunk()) {
		return errLost
	}
	d.heard, d.told = true, f
	d.write(f.GetSequence(), d.t.Chunk(f.GetSequence(), f.GetChunk()))
	return nil
}

// first reports whether a run begins with the chunk.
func first(c *eventv1.Chunk) bool { return c.GetRunStarted() != nil || c.GetRunResumed() != nil }

// truncated decides what it means that records behind the read's cursor are gone.
// Where the run still executes and nothing of it was seen, they may all have been
// older than the run, whose start is only known as where the run before it had
// ended: it is read from above them, and its first record has to be the first
// chunk of a run. A run that continues others is not whole without them.
func (d *delivery) truncated(floor int64) error {
	if d.heard || d.floor > 0 || len(d.wrote) > 1 {
		return errLost
	}
	run, err := d.chat.sessions.Run(d.ctx, d.session.GetTenant(), d.run)
	if err != nil {
		return err
	}
	if !conversation.Executing(run) {
		return errLost
	}
	d.floor, d.again = floor, floor
	return errAgain
}

// Passed takes a terminal record of another run, which may be of those that have written the
// message before: the client may have it up to there.
func (d *delivery) Passed(frame *feed.Frame) error {
	d.cursor = feed.Cursor(frame.ReadResponse, d.cursor)
	return d.meet(frame.ReadResponse)
}

// meet watches for the client's cursor. When the records pass it and it was not
// among them, the client's parts are void.
func (d *delivery) meet(frame *streamv1.ReadResponse) error {
	if d.after == 0 || d.met {
		return nil
	}
	at, caughtUp := position(frame)
	switch {
	case at == d.after && !caughtUp:
		d.met = true
	case at > d.after || caughtUp:
		d.startAnew()
		d.again = max(d.floor, d.start)
		return errAgain
	}
	return nil
}

func position(frame *streamv1.ReadResponse) (at int64, caughtUp bool) {
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return f.Chunk.GetSequence(), false
	case *streamv1.ReadResponse_End:
		return f.End.GetSequence(), false
	case *streamv1.ReadResponse_Fail:
		return f.Fail.GetSequence(), false
	case *streamv1.ReadResponse_CaughtUp:
		return f.CaughtUp.GetSequence(), true
	default:
		return 0, false
	}
}

func (d *delivery) rewound(f *streamv1.RewoundFrame) error {
	parts, again, ok := d.t.Rewound(f.GetAt())
	if !ok {
		return errVoid
	}
	d.write(f.GetSequence(), parts)
	if again == 0 {
		return nil
	}
	d.again, d.after = again, 0
	return errAgain
}

// write writes the parts of one record, but for those that the client has.
func (d *delivery) write(sequence int64, parts []uistream.Part) {
	if sequence != 0 && sequence <= d.after {
		return
	}
	parts = d.has.rest(d.told.GetChunk().GetAgentId(), parts, d.major >= uistream.Newest)
	d.written = d.written || len(parts) > 0
	d.put(sequence, parts)
}

// put writes parts; the last one has the sequence of their record.
func (d *delivery) put(sequence int64, parts []uistream.Part) {
	for i, p := range parts {
		text, err := p.Append(nil)
		if err != nil { // texts of tools are made valid before; nothing else can fail
			d.chat.log.ErrorContext(d.ctx, "part has no JSON", "type", p.Type, "error", err)
			continue
		}
		id := int64(0)
		if i == len(parts)-1 {
			id = sequence
		}
		d.out.Part(id, text)
	}
}

func (d *delivery) end(sequence int64, parts []uistream.Part) {
	if over := d.has.over(parts); sequence == 0 || sequence > d.after {
		d.put(sequence, over)
	}
	d.out.Done()
	d.ended = true
}

// Flush sends what was written.
func (d *delivery) Flush() error { return d.out.Flush() }

// Beat keeps the connection alive, and looks after a run whose end does not
// come: a settled run has its end in the log, so when it was settled one beat ago
// already, the log has lost it, or the replica that is read from does not hear the
// log.
func (d *delivery) Beat() error {
	if err := d.out.Beat(); err != nil || d.history {
		return err
	}
	run, err := d.chat.sessions.Run(d.ctx, d.session.GetTenant(), d.run)
	if err != nil || !run.GetSettled() {
		return nil //nolint:nilerr // the next beat asks again
	}
	if d.settled {
		return errQuiet
	}
	d.settled = true
	return nil
}
