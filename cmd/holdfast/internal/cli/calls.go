package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// Calls returns the commands on calls that wait for a client.
func Calls(g *Gateway) *cobra.Command {
	list := listCalls(g)
	approve := decide(g, "approve", "Approve a call: its tool runs", true)
	deny := decide(g, "deny", "Deny a call: its tool does not run, and the model learns the reason", false)
	answer := answerCall(g)
	g.AddFlags(list, approve, deny, answer)
	g.completeSession(approve, deny, answer)
	return Group("calls", "List and answer the calls that wait for a person or a client", list, approve, deny, answer)
}

func listCalls(g *Gateway) *cobra.Command {
	var r agentv1.ListPendingCallsRequest
	var limit int
	var approvals bool
	c := &cobra.Command{
		Use: "list", Short: "List the calls that wait, oldest first", Args: NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			r.Limit = pageOf(limit)
			if approvals {
				r.Kind = agentv1.CallKind_CALL_KIND_APPROVAL
			}
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				calls, err := first(limit, h.PendingCalls(c.Context(), &r))
				if err != nil {
					return err
				}
				if g.JSON {
					return printMessages(g.Terminal, calls)
				}
				return g.printCalls(calls)
			})
		},
	}
	c.Flags().StringVar(&r.AgentType, "agent", "", "only calls of this agent")
	c.Flags().StringVar(&r.UserId, "user", "", "only calls in sessions of this user")
	c.Flags().StringVar(&r.ToolName, "tool", "", "only calls of this tool")
	c.Flags().BoolVar(&approvals, "approvals", false, "only calls that wait for an approval")
	addLimit(c, &limit)
	return c
}

func (g *Gateway) printCalls(calls []*agentv1.PendingCall) error {
	rows := make([][]string, len(calls))
	for i, c := range calls {
		rows[i] = []string{
			c.GetSessionId(), c.GetToolCallId(), c.GetToolName(), waitsFor(c), c.GetAgentType(), c.GetUserId(),
			since(c.GetCreatedAt()), deadline(c), OneLine(c.GetInput()),
		}
	}
	return g.Table([]string{"SESSION", "CALL", "TOOL", "WAITS FOR", "AGENT", "USER", "SINCE", "DEADLINE", "ARGUMENTS"}, rows)
}

// waitsFor says whose answer a call waits for.
func waitsFor(c *agentv1.PendingCall) string {
	switch {
	case c.GetApprovalId() == "":
		return "a result"
	case c.GetApprovers() == "others":
		return "an approval, not of " + cmp.Or(c.GetStartedBy(), "who started the run")
	}
	return "an approval"
}

func deadline(c *agentv1.PendingCall) string {
	if c.GetDeadlineAt() == 0 {
		return ""
	}
	_, ahead, _ := strings.Cut(instant(c.GetDeadlineAt()), " ")
	return strings.Trim(ahead, "()")
}

func decide(g *Gateway, use, short string, approved bool) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: use + " SESSION CALL", Short: short, Args: Arguments(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				call, err := findApproval(c.Context(), h, args[0], args[1])
				if err != nil {
					return err
				}
				decision := h.Deny
				if approved {
					decision = h.Approve
				}
				taken, err := decision(c.Context(), call, reason)
				if err != nil {
					return err
				}
				return g.printTaken(args[1], taken)
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why; the model may read it")
	return c
}

// findApproval finds a waiting approval in the list of all calls, which includes sessions hidden from the caller.
// NotFound (UNKNOWN_TOOL_CALL), Conflict (KIND_MISMATCH).
func findApproval(ctx context.Context, h *client.Client, session, id string) (client.Call, error) {
	for c, err := range h.PendingCalls(ctx, &agentv1.ListPendingCallsRequest{}) {
		switch {
		case err != nil:
			return client.Call{}, err
		case c.GetToolCallId() != id || c.GetSessionId() != session && c.GetRootSessionId() != session:
			continue
		case c.GetApprovalId() == "":
			return client.Call{}, fault.New(fault.Invalid, "KIND_MISMATCH",
				"call %q waits for a result, not for an approval: use \"holdfast calls answer\"", id)
		}
		return client.Call{Session: c.GetSessionId(), ID: id, Approval: c.GetApprovalId()}, nil
	}
	return client.Call{}, fault.New(fault.NotFound, "UNKNOWN_TOOL_CALL",
		"no call %q of session %q waits; \"holdfast calls list\" shows those that do", id, session)
}

func answerCall(g *Gateway) *cobra.Command {
	var result, failure string
	c := &cobra.Command{
		Use: "answer SESSION CALL (--result JSON | --error TEXT)", Short: "Give the result of a client tool", Args: Arguments(2, 2),
		DisableFlagsInUseLine: true, Example: `  holdfast calls answer trip-1 call_1 --result '{"city":"Rome"}'`,
		RunE: func(c *cobra.Command, args []string) error {
			failed := c.Flags().Changed("error")
			if failed == c.Flags().Changed("result") {
				return fault.New(fault.Invalid, "FLAG_INVALID", "give --result JSON or --error TEXT")
			}
			if !failed && !json.Valid([]byte(result)) {
				return fault.New(fault.Invalid, "ANSWER_INVALID",
					"--result must be JSON: put a text into double quotes, as in --result '\"Rome\"'")
			}
			return g.with(c.Context(), shortPatience, func(h *client.Client) (err error) {
				call := client.Call{Session: args[0], ID: args[1]}
				var taken *agentv1.SubmitToolResultResponse
				if failed {
					taken, err = h.SubmitError(c.Context(), call, failure)
				} else {
					taken, err = h.SubmitResult(c.Context(), call, json.RawMessage(result))
				}
				if err != nil {
					return err
				}
				return g.printTaken(args[1], taken)
			})
		},
	}
	c.Flags().StringVar(&result, "result", "", "the result, as JSON")
	c.Flags().StringVar(&failure, "error", "", "why there is no result; the model reads it")
	return c
}

// printTaken prints what became of an answer. Conflict (ALREADY_ANSWERED) if another answer was first.
func (g *Gateway) printTaken(call string, taken *agentv1.SubmitToolResultResponse) error {
	if g.JSON {
		if err := g.printMessage(taken); err != nil {
			return err
		}
	}
	switch taken.GetStatus() {
	case agentv1.SubmitToolResultResponse_STATUS_ALREADY_COMPLETED:
		return fault.New(fault.Conflict, "ALREADY_ANSWERED", "call %q has an answer already; this one changed nothing", call)
	case agentv1.SubmitToolResultResponse_STATUS_LATE_ANSWER_AFTER_TIMEOUT:
		return fault.New(fault.Conflict, "ANSWERED_LATE", "call %q has expired: the model has read that no answer came in time", call)
	default:
		if g.JSON {
			return nil
		}
		return g.printf("accepted: %s\n", continuation(taken))
	}
}

func continuation(taken *agentv1.SubmitToolResultResponse) string {
	switch taken.GetContinuation() {
	case agentv1.SubmitToolResultResponse_CONTINUATION_NEW_RUN, agentv1.SubmitToolResultResponse_CONTINUATION_LIVE_RUN:
		return fmt.Sprintf("run %s continues", taken.GetRunId())
	case agentv1.SubmitToolResultResponse_CONTINUATION_CALLER_RESUMES:
		return "the session was stopped, and takes the answer when it is resumed"
	default:
		return "the session waits for more answers"
	}
}
