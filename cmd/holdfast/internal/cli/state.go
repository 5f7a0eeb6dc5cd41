package cli

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// stateWrites is a flag of one kind of write. All kinds add to the same list, so it has the order of the flags.
type stateWrites struct {
	ops  *[]*agentv1.StateOp
	kind string // set, append or delete
}

// String implements pflag.Value.
func (w stateWrites) String() string { return "" }

// Type implements pflag.Value.
func (w stateWrites) Type() string {
	if w.kind == "delete" {
		return "key"
	}
	return "key=json"
}

// Set implements pflag.Value. Invalid (STATE_INVALID).
func (w stateWrites) Set(text string) error {
	op := &agentv1.StateOp{Key: text, Op: &agentv1.StateOp_Delete{Delete: true}}
	if w.kind != "delete" {
		key, value, given := strings.Cut(text, "=")
		if !given || !json.Valid([]byte(value)) {
			return fault.New(fault.Invalid, "STATE_INVALID", "give KEY=JSON, such as plan='\"free\"' or seen=[1,2]")
		}
		op.Key, op.Op = key, &agentv1.StateOp_Replace{Replace: value}
		if w.kind == "append" {
			op.Op = &agentv1.StateOp_Append{Append: value}
		}
	}
	*w.ops = append(*w.ops, op)
	return nil
}

func mergeState(g *Gateway) *cobra.Command {
	var r agentv1.MergeStateRequest
	c := &cobra.Command{
		Use: "state SESSION", Short: "Show the custom state of a session, or write keys of it", Args: Arguments(1, 1),
		Long: `Show the custom state of a session. With --set, --append and --delete, which may be repeated, write keys of
it in that order instead. The next run reads them. Writing needs the scope operate.`,
		Example: "  holdfast sessions state chat-1 | jq\n" +
			"  holdfast sessions state chat-1 --set plan='\"free\"' --append seen='[7]' --delete draft",
		RunE: func(c *cobra.Command, args []string) error {
			r.SessionId = args[0]
			return g.with(c.Context(), shortPatience, func(h *client.Client) error { return g.mergeState(c.Context(), h, &r) })
		},
	}
	c.Flags().Var(stateWrites{&r.Ops, "set"}, "set", "replace the value of a key")
	c.Flags().Var(stateWrites{&r.Ops, "append"}, "append", "append the items of a JSON array to the array of a key")
	c.Flags().Var(stateWrites{&r.Ops, "delete"}, "delete", "remove a key")
	c.Flags().Int64Var(&r.ExpectedVersion, "version", 0, "write only if the session has this version")
	return c
}

// mergeState prints the state if there is nothing to write.
func (g *Gateway) mergeState(ctx context.Context, h *client.Client, r *agentv1.MergeStateRequest) error {
	if len(r.GetOps()) == 0 {
		found, err := h.Session(ctx, r.GetSessionId())
		if err != nil {
			return err
		}
		return g.printf("%s\n", Clean(found.GetSession().GetCustomState()))
	}
	merged, err := h.MergeState(ctx, r)
	switch {
	case err != nil:
		return err
	case g.JSON:
		return g.printMessage(merged)
	}
	for _, warning := range merged.GetWarnings() {
		if err := g.printf("warning: %s\n", Clean(warning)); err != nil {
			return err
		}
	}
	return g.printf("session %s has version %d\n", Clean(r.GetSessionId()), merged.GetVersion())
}

func setStatus(g *Gateway) *cobra.Command {
	var r agentv1.SetStatusRequest
	var failure agentv1.Failure
	c := &cobra.Command{
		Use: "set-status SESSION STATUS", Short: "Set the status of a session: completed, failed, interrupted or paused", Args: Arguments(2, 2),
		Long: `Set the status of a session to completed, failed, interrupted or paused. A live run ends at once, without its
executor: prefer "holdfast runs stop". Needs the scope operate.`,
		Example: "  holdfast sessions set-status chat-1 completed --if interrupted,paused\n" +
			"  holdfast sessions set-status chat-1 failed --error \"It was refused.\" --code policy",
		RunE: func(c *cobra.Command, args []string) error {
			r.SessionId, r.Status = args[0], args[1]
			if failure.GetError() != "" || failure.GetCode() != "" {
				r.Failure = &failure
			}
			return g.with(c.Context(), shortPatience, func(h *client.Client) error { return g.setStatus(c.Context(), h, &r) })
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&r.Expected, "if", nil, "only if the session has one of these statuses")
	flags.Int64Var(&r.ExpectedVersion, "version", 0, "only if the session has this version")
	flags.StringVar(&failure.Error, "error", "", "the sentence for users, for failed")
	flags.StringVar(&failure.Code, "code", "", "a code for programs, for failed")
	flags.StringVar(&r.InterruptReason, "reason", "", "why, for interrupted")
	return c
}

// setStatus gives Conflict (STATUS_UNEXPECTED) for a session not as expected.
func (g *Gateway) setStatus(ctx context.Context, h *client.Client, r *agentv1.SetStatusRequest) error {
	set, err := h.SetStatus(ctx, r)
	switch {
	case err != nil:
		return err
	case !set.GetOk():
		return fault.New(fault.Conflict, "STATUS_UNEXPECTED", "session %q is %s and has version %d: nothing was written",
			r.GetSessionId(), set.GetCurrentStatus(), set.GetCurrentVersion())
	case g.JSON:
		return g.printMessage(set)
	}
	return g.printf("session %s is %s and has version %d\n", Clean(r.GetSessionId()), r.GetStatus(), set.GetNewVersion())
}
