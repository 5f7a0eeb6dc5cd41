package worker_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
	"github.com/holdfast-run/holdfast/services/stream"
)

// logs has the stream services of a test. A lost log is replaced by a new service.
type logs struct {
	mu       sync.Mutex
	current  *liveLog
	lost     []*liveLog
	sessions map[string]bool // that are read
}

func (l *logs) get() *liveLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// sessionIDs returns the sessions that the test has used.
func (l *logs) sessionIDs() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.sessions)
}

func (l *logs) all() []*liveLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(slices.Clone(l.lost), l.current)
}

// liveLog is a stream service, with its append requests and the records that a reader has received.
type liveLog struct {
	conn *grpc.ClientConn

	mu         sync.Mutex
	accepted   []*streamv2.AppendRequest
	requests   []*streamv2.AppendRequest // also refused ones
	violations []error
	received   map[string][]*streamv2.Record // by session
}

// newLog starts the n-th stream service.
func (p *system) newLog(n int) *liveLog {
	var c stream.Config
	must(p.t, config.Load(&c, append([]string{"HOLDFAST_STREAM_BUS=memory", "HOLDFAST_STREAM_CHECK=1m"}, p.environ...)))
	service, err := stream.New(p.context(), c, stream.Peers{Log: p.log()})
	must(p.t, err)
	return &liveLog{conn: p.serve(fmt.Sprint("stream ", n), service), received: map[string][]*streamv2.Record{}}
}

func (l *liveLog) record(r *streamv2.AppendRequest, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, proto.CloneOf(r))
	switch {
	case err == nil && len(r.GetRecords()) > 0:
		l.accepted = append(l.accepted, proto.CloneOf(r))
	case fault.KindOf(err) == fault.Invalid:
		l.violations = append(l.violations, err)
	}
}

// follow reads the records of the session from now on.
func (p *system) follow(sessionID string) {
	p.t.Helper()
	p.logs.mu.Lock()
	known := p.logs.sessions[sessionID]
	if p.logs.sessions == nil {
		p.logs.sessions = map[string]bool{}
	}
	p.logs.sessions[sessionID] = true
	log := p.logs.current
	p.logs.mu.Unlock()
	if !known {
		p.read(log, sessionID, 0)
	}
}

// read reads the records of the session after the sequence, until the test ends.
func (p *system) read(log *liveLog, sessionID string, after int64) {
	p.t.Helper()
	reading, err := streamv2.NewStreamServiceClient(log.conn).Read(p.context(), &streamv2.ReadRequest{
		Stream: &streamv2.StreamRef{Tenant: tenant, RootSessionId: sessionID, SessionId: sessionID}, FromSequence: after,
	})
	must(p.t, err)
	caughtUp, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			answer, err := reading.Recv()
			switch {
			case err != nil:
				return
			case answer.GetCaughtUp() != nil:
				close(caughtUp)
				continue
			}
			var received streamv2.ReadResponse // within a process, records come as unknown fields
			must(p.t, proto.Unmarshal(answer.ProtoReflect().GetUnknown(), &received))
			log.mu.Lock()
			log.received[sessionID] = append(log.received[sessionID], received.GetRecords().GetRecords()...)
			log.mu.Unlock()
		}
	}()
	select {
	case <-caughtUp:
	case <-ended:
	}
}

// loseLog loses the whole log, as a power cut does.
func (p *system) loseLog() { p.loseAppends(math.MaxInt) }

// loseAppends loses the records of the last n appends.
func (p *system) loseAppends(n int) {
	p.t.Helper()
	p.ready()
	before := p.logs.all()
	log := p.newLog(len(before) + 1)
	former := before[len(before)-1]
	former.mu.Lock()
	kept := former.accepted[:max(0, len(former.accepted)-n)]
	former.mu.Unlock()
	ends := map[string]int64{}
	for _, r := range kept {
		_, err := streamv2.NewStreamServiceClient(log.conn).Append(p.context(), r)
		must(p.t, err)
		records := r.GetRecords()
		last := records[len(records)-1]
		ends[r.GetStream().GetSessionId()] = last.GetSequence() + int64(max(len(last.GetChunks())-1, 0))
	}
	log.accepted = slices.Clone(kept)
	for sessionID := range p.logs.sessionIDs() {
		p.read(log, sessionID, ends[sessionID])
	}
	p.logs.mu.Lock()
	defer p.logs.mu.Unlock()
	p.logs.lost = append(p.logs.lost, former)
	p.logs.current = log
}

// history returns the records of the session as a live reader has received them.
func (p *system) history(sessionID string) []*streamv2.Record {
	var records []*streamv2.Record
	for _, log := range p.logs.all() {
		records = append(records, log.recordsOf(sessionID)...)
	}
	return records
}

// recordsOf returns the records received from this log.
func (l *liveLog) recordsOf(sessionID string) []*streamv2.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.received[sessionID])
}

// firstAppends returns the first append request of each epoch of the session.
func (p *system) firstAppends(sessionID string) map[int64]*streamv2.AppendRequest {
	first := map[int64]*streamv2.AppendRequest{}
	for _, log := range p.logs.all() {
		log.mu.Lock()
		for _, r := range log.requests {
			if r.GetStream().GetSessionId() == sessionID && first[r.GetEpoch()] == nil {
				first[r.GetEpoch()] = r
			}
		}
		log.mu.Unlock()
	}
	return first
}

// verifyAppends checks that the stream service has refused no append as invalid.
func (p *system) verifyAppends() {
	p.t.Helper()
	for _, log := range p.logs.all() {
		log.mu.Lock()
		if len(log.violations) > 0 {
			p.t.Errorf("the stream service refused appends: %v", log.violations)
		}
		log.mu.Unlock()
	}
}

// frame is what a reader receives: a chunk, or the end of a run.
type frame struct {
	chunk *eventv1.Chunk
	end   *streamv2.Terminal
}

func (f frame) GetChunk() *eventv1.Chunk        { return f.chunk }
func (f frame) GetTerminal() *streamv2.Terminal { return f.end }

func framesOf(chunks []*eventv1.Chunk) []frame {
	var frames []frame
	for _, chunk := range chunks {
		frames = append(frames, frame{chunk: chunk})
	}
	return frames
}

// records returns the frames of a reader that was connected all the time: live ones, and stored ones for the
// rest.
func (p *system) records(sessionID string) []frame { return p.frames(sessionID, true) }

// stored returns the frames of a later reader.
func (p *system) stored(sessionID string) []frame { return p.frames(sessionID, false) }

func (p *system) frames(sessionID string, live bool) []frame {
	p.t.Helper()
	reader := &publishertest.Reader{}
	reader.Read(p.history(sessionID)...)
	var frames []frame
	after := int64(0)
	part := func(upTo int64, stored []*eventv1.Chunk) {
		if live && reader.Saw(upTo) {
			stored = reader.Between(after, upTo)
		}
		frames = append(frames, framesOf(stored)...)
		after = upTo
	}
	steps := p.steps(sessionID)
	previous := ""
	for _, run := range p.runsOf(sessionID) {
		step := position.Of(run.GetStartPosition()).Step // last committed step
		if run.GetStartPosition() == 0 || position.Of(run.GetStartPosition()).Attempt != position.Stored {
			step = max(0, step-1)
		}
		for _, stored := range steps {
			if stored.GetRunId() == run.GetRunId() {
				part(position.Committed(stored.GetStep()), renderStep(run, previous, stored))
				step = stored.GetStep()
			}
		}
		if run.GetEndPosition() > 0 {
			end := []*eventv1.Chunk{renderEnd(run, step)}
			if run.GetStepCount() == 0 {
				end = append([]*eventv1.Chunk{renderBegin(run, previous, step)}, end...)
			}
			terminal := renderTerminal(run)
			if upTo := run.GetEndPosition(); live && reader.Saw(upTo) {
				terminal = reader.Ends[run.GetRunId()]
			}
			part(run.GetEndPosition(), end)
			frames = append(frames, frame{end: terminal})
		}
		previous = run.GetRunId()
	}
	if live {
		frames = append(frames, framesOf(reader.Between(after, math.MaxInt64))...)
	}
	return frames
}

func renderBegin(run *statev1.Run, previous string, step int32) *eventv1.Chunk {
	chunk := &eventv1.Chunk{AgentId: run.GetRunId(), Step: step}
	if run.GetEntry() == statev1.RunEntry_RUN_ENTRY_START {
		chunk.Event = &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{Turn: run.GetTurn(), MessageId: run.GetMessageId()}}
		return chunk
	}
	chunk.Event = &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{PreviousRunId: previous, Turn: run.GetTurn(), MessageId: run.GetMessageId()}}
	return chunk
}

// renderStep returns the chunks of a committed step, from its messages and its record.
func renderStep(run *statev1.Run, previous string, s *statev1.StoredStep) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	if s.GetBeginsRun() {
		chunks = append(chunks, renderBegin(run, previous, s.GetStep()-1))
	}
	add := func(one *eventv1.Chunk) {
		one.AgentId, one.Step = s.GetRunId(), s.GetStep()
		chunks = append(chunks, one)
	}
	if s.GetRecord().GetStartedAt() > 0 {
		add(&eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
	}
	calls, results := map[string]*eventv1.ToolCallPart{}, map[string]*eventv1.ToolResultPart{}
	var reply []*eventv1.Part
	for _, m := range s.GetMessages() {
		if m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			reply = m.GetParts()
		}
		for _, p := range m.GetParts() {
			if c := p.GetToolCall(); c != nil {
				calls[c.GetToolCallId()] = c
			}
			if r := p.GetToolResult(); r != nil {
				results[r.GetToolCallId()] = r
			}
		}
	}
	for _, e := range s.GetRecord().GetEvents() {
		switch event := e.GetEvent().(type) {
		case *eventv1.StepEvent_Reply:
			for _, p := range reply {
				renderPart(p, add)
			}
		case *eventv1.StepEvent_ToolStart:
			call := calls[event.ToolStart.GetToolCallId()]
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{
				ToolCallId: call.GetToolCallId(), ToolName: call.GetToolName(), Arguments: call.GetArguments(),
				AwaitsClient: event.ToolStart.GetAwaitsClient(), Dynamic: call.GetDynamic(),
			}}})
		case *eventv1.StepEvent_ToolEnd:
			r := results[event.ToolEnd]
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
				ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Result: r.GetResult(), Success: r.GetSuccess(), Error: r.GetError(),
			}}})
		case *eventv1.StepEvent_ToolApprovalRequest:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: proto.CloneOf(event.ToolApprovalRequest)}})
		case *eventv1.StepEvent_ToolApprovalResponse:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: proto.CloneOf(event.ToolApprovalResponse)}})
		case *eventv1.StepEvent_Custom:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: proto.CloneOf(event.Custom)}})
		case *eventv1.StepEvent_StatePatch:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: proto.CloneOf(event.StatePatch)}})
		case *eventv1.StepEvent_Output:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: proto.CloneOf(event.Output)}})
		case *eventv1.StepEvent_SubagentStart:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_SubagentStart{SubagentStart: event.SubagentStart}})
		case *eventv1.StepEvent_SubagentEnd:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_SubagentEnd{SubagentEnd: event.SubagentEnd}})
		}
	}
	add(&eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: s.GetCheckpointId()}}})
	return chunks
}

func renderPart(p *eventv1.Part, add func(*eventv1.Chunk)) {
	if p.GetText() != nil {
		add(&eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: p.GetText().GetText()}}})
	}
	if p.GetReasoning() != nil {
		add(&eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: p.GetReasoning().GetText(), IsComplete: true}}})
	}
	if c := p.GetToolCall(); c != nil {
		id := c.GetToolCallId()
		add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: id, ToolName: c.GetToolName(), Dynamic: c.GetDynamic()}}})
		add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: c.GetArguments()}}})
		add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: id}}})
	}
}

func renderEnd(run *statev1.Run, step int32) *eventv1.Chunk {
	chunk := &eventv1.Chunk{AgentId: run.GetRunId(), Step: step}
	switch run.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_FAILED:
		chunk.Event = &eventv1.Chunk_Error{Error: &eventv1.Error{Error: run.GetFailure().GetError(), Code: run.GetFailure().GetCode()}}
	case statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		chunk.Event = &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{Reason: run.GetStop().GetReason()}}
	case statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL:
		chunk.Event = &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}
	case statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN:
		chunk.Event = &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "awaiting_children"}}
	case statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL:
		chunk.Event = &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "step_partial"}}
	default:
		chunk.Event = &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{Output: run.GetOutput(), FinishReason: run.GetFinishReason(), Usage: run.GetUsage()}}
	}
	return chunk
}

func renderTerminal(run *statev1.Run) *streamv2.Terminal {
	t := &streamv2.Terminal{RunId: run.GetRunId()}
	if f := run.GetFailure(); f != nil {
		t.Outcome = &streamv2.Terminal_Fail{Fail: &streamv2.Fail{Error: f.GetError(), Code: f.GetCode()}}
		return t
	}
	end := &streamv2.End{Status: streamv2.EndStatus_END_STATUS_COMPLETED, Output: run.GetOutput(), Usage: run.GetUsage()}
	switch {
	case run.GetStatus() == statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		end.Status = streamv2.EndStatus_END_STATUS_INTERRUPTED
	case strings.HasPrefix(run.GetStatus().String(), "RUN_STATUS_SUSPENDED_"):
		end.Status = streamv2.EndStatus_END_STATUS_PAUSED
	}
	t.Outcome = &streamv2.Terminal_End{End: end}
	return t
}

// verifyReaders checks that both kinds of readers have the same frames, and that no append was invalid.
func (p *system) verifyReaders(sessionID string) {
	p.t.Helper()
	if got, want := comparableLines(p.records(sessionID)), comparableLines(p.stored(sessionID)); !slices.Equal(got, want) {
		p.t.Errorf("a live reader has:\n%s\nbut stored is:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	p.verifyAppends()
}

// verifyState checks that the state patches shown to readers lead to the stored custom state.
func (p *system) verifyState() {
	p.t.Helper()
	seen := map[string]any{}
	must(p.t, json.Unmarshal([]byte(cmp.Or(p.begun["s"], "{}")), &seen))
	for _, r := range p.records("s") {
		var patch []struct {
			Op, Path string
			Value    any
		}
		if text := r.GetChunk().GetStatePatch().GetPatches(); text != "" {
			if err := json.Unmarshal([]byte(text), &patch); err != nil {
				p.t.Fatal(err)
			}
		}
		for _, op := range patch {
			key, item := strings.CutSuffix(strings.TrimPrefix(op.Path, "/"), "/-")
			switch {
			case op.Op == "remove":
				delete(seen, key)
			case item:
				seen[key] = append(seen[key].([]any), op.Value)
			default:
				seen[key] = op.Value
			}
		}
	}
	got, _ := json.Marshal(seen)
	want, _ := json.Marshal(p.customState("s"))
	if string(got) != string(want) && !(len(seen) == 0 && len(p.customState("s")) == 0) {
		p.t.Errorf("readers have the state %s, want %s", got, want)
	}
}
