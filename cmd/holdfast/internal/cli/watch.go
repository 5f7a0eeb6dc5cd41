package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// maxPayload is the longest text of arguments and results on a line, in characters.
const maxPayload = 400

// nextRunPoll is the pause between two checks for the run that continues a suspended one.
const nextRunPoll = 300 * time.Millisecond

// follow prints a run as text or as JSON lines, and then those that continue it after sub-agents, until the session ends
// its turn or waits for clients. It returns the calls that wait, and prints how to answer them. An empty run is the newest
// one. ErrFailed: a run has failed.
func (g *Gateway) follow(
	ctx context.Context, h *client.Client, session, run string,
) (calls []*agentv1.PendingCall, last string, err error) {
	if run == "" {
		found, err := h.Get(ctx, session)
		if err != nil {
			return nil, "", err
		}
		if run = found.GetRunId(); run == "" {
			return nil, "", fault.New(fault.NotFound, "RUN_NOT_FOUND", "session %q has no run yet", session)
		}
	}
	for run != "" {
		last = run
		paused, err := g.play(ctx, h, session, run)
		if err != nil || !paused {
			return nil, last, err
		}
		if calls, run, err = g.next(ctx, h, session, last); err != nil {
			return nil, last, err
		}
	}
	return calls, last, g.announce(session, calls)
}

// play prints the frames of one run until its end, and reports whether it is suspended. ErrFailed.
func (g *Gateway) play(ctx context.Context, h *client.Client, session, run string) (paused bool, err error) {
	p := &player{Gateway: g}
	for frame, err := range h.Follow(ctx, &agentv1.StreamRequest{SessionId: session, RunId: run}) {
		if err != nil {
			if !p.JSON {
				_ = p.endLine() // the error matters more
			}
			return false, err
		}
		if err := p.frame(frame); err != nil {
			return false, err
		}
	}
	return p.paused, p.failure
}

// next waits until calls of a suspended session wait for clients, or another run than the last one continues it. It
// returns neither if the session has been stopped.
func (g *Gateway) next(ctx context.Context, h *client.Client, session, last string) (calls []*agentv1.PendingCall, run string, err error) {
	for {
		found, err := h.Get(ctx, session)
		switch {
		case err != nil:
			return nil, "", err
		case found.GetRunId() != last:
			return nil, found.GetRunId(), nil
		case len(found.GetPendingCalls()) > 0 || !strings.HasPrefix(found.GetStatus(), "suspended"):
			return found.GetPendingCalls(), "", nil
		}
		select {
		case <-time.After(nextRunPoll):
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
}

// announce prints the calls that a session waits for, and how to answer them.
func (g *Gateway) announce(session string, calls []*agentv1.PendingCall) error {
	if g.JSON || g.Asks {
		return nil
	}
	for _, c := range calls {
		command := fmt.Sprintf("holdfast calls answer %s %s --result JSON", word(session), word(c.GetToolCallId()))
		if c.GetApprovalId() != "" {
			command = fmt.Sprintf("holdfast calls approve %s %s", word(session), word(c.GetToolCallId()))
		}
		if _, err := fmt.Fprintln(g.notes(), g.paint(yellow, Clean("? "+callLine(c)+": "+command))); err != nil {
			return err
		}
	}
	return nil
}

// notes is where everything but the answer of an agent is printed.
func (g *Gateway) notes() io.Writer {
	if g.onlyAnswer {
		return g.Err
	}
	return g.Out
}

// callLine says what a call waits for.
func callLine(c *agentv1.PendingCall) string {
	what := "the result of"
	if c.GetApprovalId() != "" {
		what = "an approval of"
	}
	return fmt.Sprintf("waits for %s %s %s", what, c.GetToolName(), shortened(c.GetInput()))
}

// player prints frames. Texts are printed as they come; every other event has a line.
type player struct {
	*Gateway
	unfinished io.Writer // has a line without an end; nil for none
	color      string    // of the last piece of a text
	failure    error
	paused     bool // the run waits for a client
}

func (p *player) frame(f *agentv1.StreamResponse) error {
	if end := f.GetEnd(); end != nil {
		p.paused = end.GetStatus() == "paused"
	}
	if f.GetFail() != nil {
		p.failure = ErrFailed
	}
	if p.JSON {
		text, err := eventv1.MarshalMessage(f)
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return p.printf("%s\n", text)
	}
	switch f := f.GetFrame().(type) {
	case *agentv1.StreamResponse_Chunk:
		return p.chunk(f.Chunk.GetChunk())
	case *agentv1.StreamResponse_End:
		return p.line(dim, "%s, %s tokens", f.End.GetStatus(), count(f.End.GetUsage().GetTotalTokens()))
	case *agentv1.StreamResponse_Fail:
		return p.line(red, "failed: %s", failureLine(&agentv1.Failure{Error: f.Fail.GetError(), Code: f.Fail.GetCode()}))
	case *agentv1.StreamResponse_Rewound:
		return p.line(dim, "~ the step begins again; what it printed is void")
	case *agentv1.StreamResponse_Truncated:
		return p.line(dim, "~ the beginning is not available any more")
	}
	return nil
}

func (p *player) chunk(c *eventv1.Chunk) error {
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		return p.text("", e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		return p.text(dim, e.Thinking.GetContent())
	case *eventv1.Chunk_RunStarted:
		return p.line(dim, "run %s of %s", c.GetAgentId(), c.GetAgentType())
	case *eventv1.Chunk_RunResumed:
		return p.line(dim, "run %s of %s continues run %s", c.GetAgentId(), c.GetAgentType(), e.RunResumed.GetPreviousRunId())
	case *eventv1.Chunk_ToolStart:
		return p.line(bold, "> %s %s", e.ToolStart.GetToolName(), shortened(e.ToolStart.GetArguments()))
	case *eventv1.Chunk_ToolEnd:
		if !e.ToolEnd.GetSuccess() {
			return p.line(red, "< %s failed: %s", e.ToolEnd.GetToolName(), shortened(cmp.Or(e.ToolEnd.GetError(), e.ToolEnd.GetResult())))
		}
		return p.line(green, "< %s %s", e.ToolEnd.GetToolName(), shortened(e.ToolEnd.GetResult()))
	case *eventv1.Chunk_ToolApprovalResponse:
		return p.line(dim, "= %s %s", e.ToolApprovalResponse.GetDecision(), e.ToolApprovalResponse.GetReason())
	case *eventv1.Chunk_SubagentStart:
		return p.line(dim, "> sub-agent %s in session %s", e.SubagentStart.GetSubAgentType(), e.SubagentStart.GetSubSessionId())
	case *eventv1.Chunk_Custom:
		return p.line(dim, "* %s %s", e.Custom.GetEventName(), shortened(e.Custom.GetData()))
	}
	return nil
}

// text prints a piece of the answer, or of reasoning in a colour.
func (p *player) text(color, piece string) error {
	if piece = Clean(piece); piece == "" {
		return nil
	}
	if color != p.color { // reasoning ends where the answer begins
		if err := p.endLine(); err != nil {
			return err
		}
	}
	to := p.Out
	if color != "" {
		to = p.notes()
	}
	p.color = color
	p.unfinished = nil
	if !strings.HasSuffix(piece, "\n") {
		p.unfinished = to
	}
	_, err := io.WriteString(to, p.paint(color, piece))
	return err
}

// line prints a line of its own.
func (p *player) line(color, format string, args ...any) error {
	if err := p.endLine(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(p.notes(), p.paint(color, strings.TrimSpace(strings.ReplaceAll(Clean(fmt.Sprintf(format, args...)), "\n", " "))))
	return err
}

// endLine ends a line that has begun.
func (p *player) endLine() error {
	if p.unfinished == nil {
		return nil
	}
	to := p.unfinished
	p.unfinished = nil
	_, err := io.WriteString(to, "\n")
	return err
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxPayload {
		return string(runes[:maxPayload]) + "…"
	}
	return text
}

// plainWord matches a word that a shell leaves as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$`)

// word quotes an id for a shell. Clients choose ids, and people copy printed commands.
func word(id string) string {
	if plainWord.MatchString(id) {
		return id
	}
	return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
}
