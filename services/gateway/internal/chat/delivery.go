package chat

import (
	"context"
	"errors"
	"net/url"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
	"github.com/holdfast-run/holdfast/services/gateway/internal/turn"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

var (
	// errAgain: read again from delivery.again.
	errAgain = errors.New("read again")
	// errLost: the log does not have the run any more.
	errLost = errors.New("the run is not in the log")
	// errQuiet: the run is settled and its end has not come; ask the log for it.
	errQuiet = errors.New("ask the log for the end of a settled run")
	// errVoid: the client has parts that cannot be taken back.
	errVoid = errors.New("the client cannot take back what is void")
)

const lostText = "The rest of this answer is no longer in the stream. Please reload the conversation."

// delivery tells one run to one client; it is the sink of its feed. One
// goroutine at a time uses it.
//
// A client that has the message up to a cursor (after) is told the rest: the run
// is read from its start all the same, for the translator to know what the
// client knows, and what the client has is not written. The cursor has to be met
// on the way: a record that is no longer there was void, and then the message is
// told from its start.
type delivery struct {
	chat    *Chat
	ctx     context.Context //nolint:containedctx // a delivery is one request
	out     *sse.Writer
	run     *statev1.Run
	session *statev1.Session
	major   uistream.Major
	runs    map[string]bool // those that have written the message: the run, and what it continues
	start   int64           // where the first of them began

	t     *uistream.Translator
	after int64 // the client has everything up to here; 0: nothing
	met   bool  // the record of after was seen
	again int64

	cursor  int64 // of the read
	floor   int64 // where the run is read from when nothing is kept at its start any more; 0: from its start
	heard   bool  // a record of the run was seen
	written bool  // something behind the start part was written
	settled bool  // the run was settled at the last beat
	history bool  // the log is asked for what it has, and tells when that is all
	ended   bool  // the end was written
	lost    bool  // the end was that the rest is lost
}

// trace finds the runs of the message.
func (d *delivery) trace() error {
	runs, err := d.chat.sessions.Message(d.ctx, d.session.GetTenant(), d.run)
	if err != nil {
		return err
	}
	d.runs, d.start = map[string]bool{}, runs[0].GetStartSequence()
	for _, run := range runs {
		d.runs[run.GetRunId()] = true
	}
	return nil
}

// await sends the headers and waits for the turn of a run that waits. There is no
// message before it begins; one that is given up has none.
func (d *delivery) await(turns *turn.Waiter) error {
	d.out.Begin()
	if !conversation.Waiting(d.run) {
		return nil
	}
	if err := d.out.Flush(); err != nil {
		return err
	}
	run, err := turns.Await(d.ctx, d.session, d.run, d.out.Beat)
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

// begin tells the start part to a client that has nothing yet.
func (d *delivery) begin() error {
	if d.after <= d.start {
		d.after = 0
	}
	if d.after == 0 {
		d.write(0, d.t.Start())
	}
	return d.out.Flush()
}

func (d *delivery) reset() {
	d.t = uistream.New(d.run.GetMessageId(), d.major)
}

// startAnew tells the client to begin the message again.
func (d *delivery) startAnew() {
	d.after = 0
	d.reset()
	d.write(0, d.t.Start())
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
		if d.runs[f.Chunk.GetChunk().GetAgentId()] {
			return d.chunk(f.Chunk)
		}
	case *streamv1.ReadResponse_End:
		d.end(f.End.GetSequence(), d.t.Finish(endings[f.End.GetEnd().GetStatus()]))
	case *streamv1.ReadResponse_Fail:
		d.end(f.Fail.GetSequence(), d.t.Fail(f.Fail.GetFail().GetError()))
	case *streamv1.ReadResponse_Rewound:
		return d.rewound(f.Rewound)
	case *streamv1.ReadResponse_Truncated:
		return d.truncated(f.Truncated.GetFloor())
	}
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
	d.heard = true
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
	if d.heard || d.floor > 0 || len(d.runs) > 1 {
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
		d.out.Event(id, "", text)
		d.written = d.written || sequence != 0
	}
}

func (d *delivery) end(sequence int64, parts []uistream.Part) {
	d.write(sequence, parts)
	d.out.Event(0, "", []byte("[DONE]"))
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

// fromStore tells the run from the conversation that the state service keeps,
// which it can when the client has nothing of the message yet.
func (d *delivery) fromStore(ctx context.Context) error {
	run, err := d.chat.sessions.Run(ctx, d.session.GetTenant(), d.run)
	if err != nil {
		return err
	}
	if d.written || conversation.Executing(run) {
		d.lost = true
		d.end(0, d.t.Fail(lostText))
		return d.out.Flush()
	}
	answer, err := d.chat.sessions.Answer(ctx, d.session, run)
	if err != nil {
		return err
	}
	if d.after > 0 {
		d.startAnew()
	}
	d.write(0, d.t.Replay(answer))
	if run.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED {
		d.end(0, d.t.Fail(run.GetFailure().GetError()))
	} else {
		d.end(0, d.t.Finish(ending(run.GetStatus())))
	}
	return d.out.Flush()
}

// headerText makes an id of any script fit for a header.
func headerText(id string) string { return url.PathEscape(id) }
