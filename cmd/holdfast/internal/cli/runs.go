package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// maxStopWait is the API's longest wait for a stop.
const maxStopWait = time.Minute

// Runs returns the commands on runs.
func Runs(g *Gateway) *cobra.Command {
	var limit int
	list := &cobra.Command{
		Use: "list SESSION", Short: "List the runs of a session, newest first", Args: Arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				runs, err := first(limit, h.Runs(c.Context(), args[0]))
				if err != nil {
					return err
				}
				return g.printRuns(runs)
			})
		},
	}
	addLimit(list, &limit)
	show := &cobra.Command{
		Use: "show SESSION [RUN]", Short: "Show a run, the newest one unless another is named", Args: Arguments(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error { return g.showRun(c.Context(), h, args[0], args[1:]) })
		},
	}
	watch := &cobra.Command{
		Use: "watch SESSION [RUN]", Short: "Print the answer and the tool calls of a run as they happen, until its end",
		Args: Arguments(1, 2),
		Long: `Print the answer and the tool calls of a run, from its beginning and as they happen, until it ends or waits
for a client. Without RUN, it is the newest one and those that continue it after sub-agents. A run that
fails ends the command with 1.`,
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), longPatience, func(h *client.Client) (err error) {
				if len(args) > 1 {
					_, err = g.play(c.Context(), h, args[0], args[1])
				} else {
					_, _, err = g.follow(c.Context(), h, args[0], "")
				}
				return err
			})
		},
	}
	stop, retry := stopRun(g), retryRun(g)
	g.AddFlags(list, show, watch, stop, retry)
	g.completeSession(list, show, watch, stop, retry)
	return Group("runs", "List, show, watch, stop and retry runs", list, show, watch, stop, retry)
}

// argument returns an argument, or "" if it is missing.
func argument(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

func (g *Gateway) printRuns(runs []*agentv1.Run) error {
	if g.JSON {
		return printMessages(g.Terminal, runs)
	}
	rows := make([][]string, len(runs))
	for i, r := range runs {
		rows[i] = []string{
			r.GetRunId(), fmt.Sprint(r.GetTurn()), runStatus(r), r.GetEntry(), fmt.Sprint(r.GetStepCount()),
			fmt.Sprint(r.GetUsage().GetTotalTokens()), r.GetStartedBy(), since(r.GetCreatedAt()), runTime(r),
			OneLine(r.GetFailure().GetError()),
		}
	}
	return g.Table([]string{"RUN", "TURN", "STATUS", "ENTRY", "STEPS", "TOKENS", "STARTED BY", "AGE", "TOOK", "FAILURE"}, rows)
}

// runStatus returns the status of a run; queued for a run without an executor.
func runStatus(r *agentv1.Run) string {
	if r.GetQueuedReason() != nil || r.GetStatus() == "running" && r.GetStartedAt() == 0 {
		return "queued"
	}
	return r.GetStatus()
}

// runTime returns how long a run has executed so far.
func runTime(r *agentv1.Run) string {
	switch {
	case r.GetStartedAt() == 0:
		return ""
	case r.GetCompletedAt() == 0:
		return since(r.GetStartedAt())
	}
	return (time.Duration(r.GetCompletedAt()-r.GetStartedAt()) * time.Millisecond).String()
}

// runLine describes a run in one line.
func (g *Gateway) runLine(r *agentv1.Run) string {
	if r.GetRunId() == "" {
		return ""
	}
	return fmt.Sprintf("%s, turn %d, %s, %d steps",
		Clean(r.GetRunId()), r.GetTurn(), g.paint(statusColor(r.GetStatus()), runStatus(r)), r.GetStepCount())
}

// findRun returns a run, the newest one of the session if the id is empty.
func findRun(ctx context.Context, h *client.Client, session, id string) (*agentv1.Run, error) {
	if id == "" {
		found, err := h.Session(ctx, session)
		if err != nil {
			return nil, err
		}
		if id = found.GetRun().GetRunId(); id == "" {
			return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "session %q has no run yet", session)
		}
	}
	return h.Run(ctx, session, id)
}

func (g *Gateway) showRun(ctx context.Context, h *client.Client, session string, args []string) error {
	r, err := findRun(ctx, h, session, argument(args, 0))
	if err != nil {
		return err
	}
	if g.JSON {
		return g.printMessage(r)
	}
	usage, err := h.Usage(ctx, session, r.GetRunId())
	if err != nil {
		return err
	}
	if err := g.describe([]pair{
		{"run", Clean(r.GetRunId())},
		{"session", Clean(r.GetSessionId())},
		{"agent", Clean(r.GetAgentType())},
		{"turn", fmt.Sprint(r.GetTurn())},
		{"status", g.paint(statusColor(r.GetStatus()), runStatus(r))},
		{"stop", r.GetStopRequested()},
		{"failure", failureLine(r.GetFailure())},
		{"cause", OneLine(r.GetFailure().GetDetail())},
		{"entry", r.GetEntry()},
		{"started by", OneLine(r.GetStartedBy())},
		{"steps", fmt.Sprint(r.GetStepCount())},
		{"created", instant(r.GetCreatedAt())},
		{"started", instant(r.GetStartedAt())},
		{"completed", instant(r.GetCompletedAt())},
		{"deadline", instant(r.GetDeadlineAt())},
		{"took", runTime(r)},
		{"finished by", cmp.Or(r.GetCompletionReason(), r.GetFinishReason())},
		{"usage", tokensLine(usage, false)},
		{"output", Clean(r.GetOutput())},
	}); err != nil {
		return err
	}
	return g.printModels(usage)
}

// printModels prints the tokens of each model and the calls of each tool.
func (g *Gateway) printModels(u *eventv1.UsageRollup) error {
	var rows [][]string
	for _, model := range sortedKeys(u.GetTokensByModel()) {
		t := u.GetTokensByModel()[model]
		rows = append(rows, []string{
			model, count(t.GetPromptTokens()), count(t.GetCachedTokens()), count(t.GetCompletionTokens()), count(t.GetReasoningTokens()),
			count(t.GetTotalTokens()),
		})
	}
	if len(rows) == 0 {
		return nil
	}
	if err := g.printf("\n"); err != nil {
		return err
	}
	return g.Table(append([]string{"MODEL"}, tokenHeader()...), rows)
}

func stopRun(g *Gateway) *cobra.Command {
	var abort bool
	var reason, run string
	var wait time.Duration
	c := &cobra.Command{
		Use: "stop SESSION", Short: "Stop the live run of a session", Args: Arguments(1, 1),
		Long: `Stop the live run of a session. The run keeps the answer so far, and the session continues with its next message.
With --abort the run fails permanently. A queued run ends as well.`,
		RunE: func(c *cobra.Command, args []string) error {
			if wait < 0 || wait > maxStopWait {
				return fault.New(fault.Invalid, "WAIT_INVALID", "--wait must be 0s to %v", maxStopWait)
			}
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				return g.stop(c.Context(), h, abort,
					&agentv1.InterruptRequest{SessionId: args[0], RunId: run, Reason: reason, WaitMs: wait.Milliseconds()})
			})
		},
	}
	c.Flags().BoolVar(&abort, "abort", false, "fail the run: it cannot be resumed")
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the session")
	c.Flags().StringVar(&run, "run", "", "stop this run, which may be a waiting one")
	c.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait for the end of the run; 0s does not wait")
	return c
}

func (g *Gateway) stop(ctx context.Context, h *client.Client, abort bool, r *agentv1.InterruptRequest) error {
	var effect, run string
	if abort {
		stopped, err := h.Abort(ctx,
			&agentv1.AbortRequest{SessionId: r.GetSessionId(), RunId: r.GetRunId(), Reason: r.GetReason(), WaitMs: r.GetWaitMs()})
		if err != nil {
			return err
		}
		effect = stopped.GetEffect()
		run = stopped.GetRunId()
	} else {
		stopped, err := h.Interrupt(ctx, r)
		if err != nil {
			return err
		}
		effect = stopped.GetEffect()
		run = stopped.GetRunId()
	}
	if g.JSON {
		return g.PrintJSON(map[string]string{"effect": effect, "runId": run})
	}
	switch {
	case effect == "none":
		return g.printf("nothing to stop: session %s has no live run\n", r.GetSessionId())
	case effect == "done":
		return g.printf("stopped session %s, which had no live run\n", r.GetSessionId())
	case r.GetWaitMs() == 0:
		return g.printf("run %s is asked to stop\n", run)
	}
	return g.printf("stopped run %s\n", run)
}

func retryRun(g *Gateway) *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "retry SESSION", Short: "Run a failed session again from its last valid checkpoint", Args: Arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), longPatience, func(h *client.Client) error {
				resumed, err := h.Resume(c.Context(),
					&agentv1.ResumeRequest{SessionId: args[0], Mode: agentv1.ResumeMode_RESUME_MODE_RETRY})
				switch {
				case err != nil:
					return err
				case watch:
					_, _, err = g.follow(c.Context(), h, resumed.GetSessionId(), resumed.GetRunId())
					return err
				case g.JSON:
					return g.printMessage(resumed)
				}
				return g.printf("run %s begins\n", resumed.GetRunId())
			})
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "print the run as it happens")
	return c
}
