package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// defaultLimit is how many entries a list prints unless --limit says otherwise. maxPage is the longest page of the API.
const (
	defaultLimit = 50
	maxPage      = 200
)

// Sessions returns the commands on sessions.
func Sessions(g *Gateway) *cobra.Command {
	show := &cobra.Command{
		Use: "show SESSION", Short: "Show a session: its status, what it waits for, its run, its failure, its usage", Args: Arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error { return g.showSession(c.Context(), h, args[0]) })
		},
	}
	remove := &cobra.Command{
		Use: "delete SESSION", Short: "Delete a session with all sessions below it", Args: Arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error { return g.deleteSession(c.Context(), h, args[0]) })
		},
	}
	list, expire := listSessions(g), expireSession(g)
	state, store, status := mergeState(g), showStore(g), setStatus(g)
	g.AddFlags(list, show, remove, expire, state, store, status)
	g.completeSession(show, remove, expire, state, store, status)
	return Group("sessions", "List, show, change, expire and delete sessions", list, show, state, store, status, expire, remove)
}

func expireSession(g *Gateway) *cobra.Command {
	var in time.Duration
	var never bool
	c := &cobra.Command{
		Use: "expire SESSION", Short: "Set when a waiting session fails: now, after a time, or never", Args: Arguments(1, 1),
		Long: `Set when a session fails with session_expired unless it has ended before. The state service looks for
expired sessions every HOLDFAST_STATE_EXPIRE_EVERY, a minute by default. Needs the scope operate.`,
		Example: "  holdfast sessions expire chat-1\n  holdfast sessions expire chat-1 --in 72h",
		RunE: func(c *cobra.Command, args []string) error {
			if in < 0 || never && in > 0 {
				return fault.New(fault.Invalid, "DURATION_INVALID", "--in must be 0s or more, and goes without --never")
			}
			at := time.Now().Add(in)
			if never {
				at = time.Time{}
			}
			return g.with(c.Context(), shortPatience, func(h *client.Client) error { return g.expireSession(c.Context(), h, args[0], at) })
		},
	}
	c.Flags().DurationVar(&in, "in", 0, "how long the session may still wait, such as 72h")
	c.Flags().BoolVar(&never, "never", false, "the session waits for ever")
	return c
}

// expireSession refuses an ended session: its expiry would mean nothing.
func (g *Gateway) expireSession(ctx context.Context, h *client.Client, id string, at time.Time) error {
	found, err := h.Session(ctx, id)
	if err != nil {
		return err
	}
	switch status := found.GetSession().GetStatus(); status {
	case "completed", "failed":
		return fault.New(fault.Conflict, "SESSION_ENDED", "session %q is %s already", id, status)
	}
	if err := h.ExpireSession(ctx, id, at); err != nil {
		return err
	}
	switch {
	case g.JSON:
		return g.PrintJSON(map[string]any{"sessionId": id, "expiresAt": max(at.UnixMilli(), 0)})
	case at.IsZero():
		return g.printf("session %s never expires\n", Clean(id))
	}
	return g.printf("session %s expires at %s\n", Clean(id), at.UTC().Format(time.RFC3339))
}

func listSessions(g *Gateway) *cobra.Command {
	var r agentv1.ListSessionsRequest
	var limit int
	var roots bool
	var parent string
	c := &cobra.Command{
		Use: "list", Short: "List sessions, newest first", Args: NoArguments,
		Example: "  holdfast sessions list --status active,failed --agent support\n" +
			"  holdfast sessions list --user ann --json | jq -r '.[].sessionId'",
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case parent != "":
				r.Family = &agentv1.ListSessionsRequest_ParentSessionId{ParentSessionId: parent}
			case roots:
				r.Family = &agentv1.ListSessionsRequest_Roots{Roots: true}
			}
			r.Limit = pageOf(limit)
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				sessions, err := first(limit, h.Sessions(c.Context(), &r))
				if err != nil {
					return err
				}
				return g.printSessions(sessions)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&r.AgentType, "agent", "", "only sessions of this agent")
	flags.StringVar(&r.UserId, "user", "", "only sessions of this user")
	flags.StringSliceVar(&r.Statuses, "status", nil, "only sessions with one of these: active, completed, failed, interrupted, paused, "+
		"suspended_client_tool, suspended_awaiting_children, suspended_step_partial")
	flags.StringSliceVar(&r.Tags, "tag", nil, "only sessions with all these tags")
	flags.StringVar(&parent, "parent", "", "only the sub-sessions of this session")
	flags.BoolVar(&roots, "roots", false, "only sessions without a parent")
	addLimit(c, &limit)
	return c
}

func addLimit(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", defaultLimit, "how many to print; 0 for all")
}

// pageOf returns the length of a page for a list of at most that many entries.
func pageOf(limit int) int32 {
	if limit <= 0 || limit > maxPage {
		return maxPage
	}
	return int32(limit)
}

// first returns the first entries of a list; all for a limit of 0.
func first[E any](limit int, list iter.Seq2[E, error]) ([]E, error) {
	entries := []E{}
	for entry, err := range list {
		if err != nil {
			return nil, err
		}
		if entries = append(entries, entry); len(entries) == limit {
			break
		}
	}
	return entries, nil
}

func (g *Gateway) printSessions(sessions []*agentv1.Session) error {
	if g.JSON {
		return printMessages(g.Terminal, sessions)
	}
	rows := make([][]string, len(sessions))
	for i, s := range sessions {
		rows[i] = []string{
			s.GetSessionId(), s.GetAgentType(), s.GetStatus(), s.GetUserId(), fmt.Sprint(s.GetTurn()), fmt.Sprint(s.GetStepCount()),
			since(s.GetCreatedAt()), since(s.GetUpdatedAt()), OneLine(s.GetTitle()),
		}
	}
	return g.Table([]string{"SESSION", "AGENT", "STATUS", "USER", "TURNS", "STEPS", "AGE", "UPDATED", "TITLE"}, rows)
}

func (g *Gateway) deleteSession(ctx context.Context, h *client.Client, id string) error {
	deleted, err := h.DeleteSession(ctx, id)
	switch {
	case err != nil:
		return err
	case g.JSON:
		return g.printMessage(deleted)
	}
	return g.printf("deleted %s\n", plural(int(deleted.GetDeleted()), "session"))
}

func (g *Gateway) showSession(ctx context.Context, h *client.Client, id string) error {
	found, err := h.Session(ctx, id)
	if err != nil {
		return err
	}
	if g.JSON {
		return g.printMessage(found)
	}
	usage, err := h.Usage(ctx, id, "")
	if err != nil {
		return err
	}
	if err := g.describe(g.sessionPairs(found, usage)); err != nil {
		return err
	}
	if calls := found.GetPendingCalls(); len(calls) > 0 {
		if err := g.printf("\n"); err != nil {
			return err
		}
		if err := g.printCalls(calls); err != nil {
			return err
		}
	}
	return g.printSubSessions(found.GetSubSessions())
}

func (g *Gateway) sessionPairs(found *agentv1.GetSessionResponse, usage *eventv1.UsageRollup) []pair {
	s, run := found.GetSession(), found.GetRun()
	pairs := []pair{
		{"session", Clean(s.GetSessionId())},
		{"title", OneLine(s.GetTitle())},
		{"agent", Clean(s.GetAgentType())},
		{"status", g.paint(statusColor(s.GetStatus()), s.GetStatus())},
		{"why", reasonOf(found)},
		{"cause", OneLine(s.GetFailure().GetDetail())},
		{"user", flat(s.GetUserId())},
		{"organization", flat(s.GetOrganizationId())},
		{"tags", OneLine(strings.Join(s.GetTags(), ", "))},
		{"parent", flat(s.GetParentSessionId())},
		{"created", instant(s.GetCreatedAt())},
		{"updated", instant(s.GetUpdatedAt())},
		{"expires", instant(s.GetExpiresAt())},
		{"messages", fmt.Sprint(s.GetMessageCount())},
		{"run", g.runLine(run)},
	}
	for _, waiting := range found.GetWaiting() {
		pairs = append(pairs, pair{"next run", g.runLine(waiting)})
	}
	return append(pairs, pair{"usage", tokensLine(usage, true)}, pair{"output", OneLine(s.GetOutput())})
}

// reasonOf explains the status of a session: why it waits, or why it failed.
func reasonOf(found *agentv1.GetSessionResponse) string {
	s, run := found.GetSession(), found.GetRun()
	switch status := s.GetStatus(); {
	case status == "failed":
		return failureLine(s.GetFailure())
	case status == "interrupted":
		return Clean(cmp.Or(s.GetInterruptReason(), "it was interrupted; resume it, or send a message"))
	case status == "suspended_awaiting_children" && len(found.GetPendingCalls()) > 0:
		return fmt.Sprintf("it waits for %s; an answer to %s below it is missing",
			plural(live(found.GetSubSessions()), "sub-session"), plural(len(found.GetPendingCalls()), "call"))
	case status == "suspended_awaiting_children":
		return "it waits for " + plural(live(found.GetSubSessions()), "sub-session")
	case len(found.GetPendingCalls()) > 0:
		return "it waits for an answer to " + plural(len(found.GetPendingCalls()), "call")
	case status == "active" && run.GetStopRequested() != "":
		return fmt.Sprintf("its run was asked to stop (%s)", run.GetStopRequested())
	case status == "active" && run.GetStartedAt() == 0:
		return queuedLine(run)
	case status == "active":
		return fmt.Sprintf("its run has been executing for %s", since(run.GetStartedAt()))
	}
	return ""
}

// queuedLine says why no executor has taken a run.
func queuedLine(run *agentv1.Run) string {
	reason := run.GetQueuedReason()
	if reason == nil {
		return "its run has just been queued"
	}
	return fmt.Sprintf("its run has been queued for %s: %s", since(reason.GetSince()), Clean(reason.GetDetail()))
}

// live counts the live sub-sessions.
func live(list []*agentv1.SubSession) int {
	n := 0
	for _, s := range list {
		if s.GetCompletedAt() == 0 {
			n++
		}
	}
	return n
}

func failureLine(f *agentv1.Failure) string {
	if f == nil {
		return ""
	}
	line := Clean(cmp.Or(f.GetError(), f.GetReason()))
	if f.GetCode() != "" {
		line += " (" + f.GetCode() + ")"
	}
	if f.GetRetryable() {
		line += ", may be retried"
	}
	return line
}

func (g *Gateway) printSubSessions(list []*agentv1.SubSession) error {
	if len(list) == 0 {
		return nil
	}
	if err := g.printf("\n"); err != nil {
		return err
	}
	rows := make([][]string, len(list))
	for i, s := range list {
		rows[i] = []string{s.GetSessionId(), s.GetAgentType(), s.GetStatus(), s.GetName(), since(s.GetStartedAt())}
	}
	return g.Table([]string{"SUB-SESSION", "AGENT", "STATUS", "NAME", "AGE"}, rows)
}
