package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// joinedText joins the text deltas of the frames.
func joinedText(frames []frame) string {
	var all strings.Builder
	for _, f := range frames {
		all.WriteString(f.chunk.GetTextDelta().GetDelta())
	}
	return all.String()
}

// frameTypes returns the types of the frames. Adjacent deltas count as one.
func frameTypes(frames []frame) []string {
	var list []string
	for _, f := range frames {
		name := f.chunk.Type()
		if f.end != nil {
			name = "end"
			if f.end.GetFail() != nil {
				name = "fail"
			}
		}
		if len(list) > 0 && list[len(list)-1] == name && isDelta(f.chunk) {
			continue
		}
		list = append(list, name)
	}
	return list
}

func isDelta(chunk *eventv1.Chunk) bool {
	return chunk.GetTextDelta() != nil || chunk.GetThinking() != nil || chunk.GetToolArgStreamDelta() != nil
}

// comparableLines returns lines without two differences of the live stream: events before the first step precede
// its step_started, and resumed runs name their predecessor.
func comparableLines(frames []frame) []string {
	lines := slices.DeleteFunc(streamLines(frames), func(line string) bool { return strings.HasSuffix(line, " custom") })
	for i, line := range lines {
		if before, _, ok := strings.Cut(line, " run_resumed "); ok {
			lines[i] = before + " run_resumed"
		}
	}
	return lines
}

// streamLines describes the stream in lines: deltas joined, and adjacent ends of calls sorted, since calls end
// in any order.
func streamLines(records []frame) []string {
	var lines, runs []string
	ends := 0 // of calls, at the end of lines
	for _, r := range records {
		line, joins := streamLine(r)
		if id := r.GetChunk().GetAgentId(); id != "" && !slices.Contains(runs, id) {
			runs = append(runs, id)
		}
		if id := r.GetChunk().GetRunResumed().GetPreviousRunId(); id != "" {
			line = strings.ReplaceAll(line, id, fmt.Sprint("run ", slices.Index(runs, id)+1))
		}
		switch {
		case line == "":
			continue
		case joins && len(lines) > 0 && sameBlock(lines[len(lines)-1], line):
			lines[len(lines)-1] += line[strings.LastIndex(line, "\x00")+1:]
			continue
		}
		if strings.Contains(line, " end ") {
			ends++
		} else {
			ends = 0
		}
		lines = append(lines, line)
		slices.Sort(lines[len(lines)-ends:])
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\x00", "")
	}
	return lines
}

func sameBlock(last, next string) bool {
	a, _, ok := strings.Cut(last, "\x00")
	b, _, _ := strings.Cut(next, "\x00")
	return ok && a == b
}

// streamLine separates the block and the text of a delta by a NUL.
func streamLine(r frame) (line string, joins bool) {
	if t := r.GetTerminal(); t != nil {
		how := ""
		if status := t.GetEnd().GetStatus(); status > streamv2.EndStatus_END_STATUS_COMPLETED {
			how = strings.TrimPrefix(status.String(), "END_STATUS_") + " "
		}
		return "END " + how + t.GetEnd().GetOutput() + t.GetFail().GetError(), false
	}
	c := r.GetChunk()
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		return fmt.Sprintf("%d text \x00%s", c.GetStep(), e.TextDelta.GetDelta()), true
	case *eventv1.Chunk_Thinking:
		return fmt.Sprintf("%d thinking \x00%s", c.GetStep(), e.Thinking.GetContent()), true
	case *eventv1.Chunk_ToolArgStreamStart:
		return fmt.Sprintf("%d args %s \x00", c.GetStep(), e.ToolArgStreamStart.GetToolCallId()), false
	case *eventv1.Chunk_ToolArgStreamDelta:
		return fmt.Sprintf("%d args %s \x00%s", c.GetStep(), e.ToolArgStreamDelta.GetToolCallId(), e.ToolArgStreamDelta.GetDelta()), true
	case *eventv1.Chunk_ToolArgStreamEnd:
		return "", false
	case *eventv1.Chunk_ToolStart:
		line := fmt.Sprintf("%d start %s", c.GetStep(), e.ToolStart.GetToolCallId())
		if e.ToolStart.GetAwaitsClient() {
			line += " for a client"
		}
		return line, false
	case *eventv1.Chunk_ToolEnd:
		return fmt.Sprintf("%d end %s", c.GetStep(), e.ToolEnd.GetToolCallId()), false
	case *eventv1.Chunk_RunStarted:
		return fmt.Sprintf("%d run_started %d", c.GetStep(), e.RunStarted.GetTurn()), false
	case *eventv1.Chunk_RunResumed:
		return fmt.Sprintf("%d run_resumed %s %d", c.GetStep(), e.RunResumed.GetPreviousRunId(), e.RunResumed.GetTurn()), false
	case *eventv1.Chunk_RunSuspended:
		return fmt.Sprintf("%d run_suspended %s", c.GetStep(), e.RunSuspended.GetReason()), false
	case *eventv1.Chunk_RunInterrupted:
		return fmt.Sprintf("%d run_interrupted %s", c.GetStep(), e.RunInterrupted.GetReason()), false
	case *eventv1.Chunk_ToolApprovalRequest:
		return fmt.Sprintf("%d asked %s", c.GetStep(), e.ToolApprovalRequest.GetToolCallId()), false
	case *eventv1.Chunk_ToolApprovalResponse:
		return fmt.Sprintf("%d judged %s %s", c.GetStep(), e.ToolApprovalResponse.GetToolCallId(), e.ToolApprovalResponse.GetDecision()), false
	case *eventv1.Chunk_SubagentStart:
		return fmt.Sprintf("%d sub-agent %s", c.GetStep(), e.SubagentStart.GetToolCallId()), false
	case *eventv1.Chunk_SubagentEnd:
		return fmt.Sprintf("%d sub-agent ended %s %v", c.GetStep(), e.SubagentEnd.GetToolCallId(), e.SubagentEnd.GetSuccess()), false
	case *eventv1.Chunk_RunCompleted:
		return fmt.Sprintf("%d run_completed %s", c.GetStep(), e.RunCompleted.GetOutput()), false
	}
	return fmt.Sprintf("%d %s", c.GetStep(), c.Type()), false
}

func equalLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
