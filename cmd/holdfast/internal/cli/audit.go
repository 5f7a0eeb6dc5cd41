package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Audit returns the command that lists the audit log.
func Audit(g *Gateway) *cobra.Command {
	var r agentv1.ListAuditEventsRequest
	var from, to string
	var limit int
	c := &cobra.Command{
		Use: "audit", Short: "List who approved, denied, stopped, deleted or changed what, newest first", Args: NoArguments,
		Long: "List entries of the audit log, newest first. It needs a key with the scope admin.",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if r.From, err = ParseTime(from, time.Now()); err != nil {
				return err
			}
			if r.Before, err = ParseTime(to, time.Now()); err != nil {
				return err
			}
			r.Limit = pageOf(limit)
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				events, err := first(limit, h.AuditEvents(c.Context(), &r))
				if err != nil {
					return err
				}
				return g.printEvents(events)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&r.SessionId, "session", "", "only entries about this session")
	flags.StringVar(&r.Actor, "actor", "", "only entries of this actor, such as user:ann or key:web")
	flags.StringVar(&r.Action, "action", "", "only this action, such as call.approved")
	flags.StringVar(&from, "from", "", "from this time on: 2026-11-01, an RFC 3339 time, or how long ago, such as 24h")
	flags.StringVar(&to, "to", "", "before this time")
	addLimit(c, &limit)
	g.AddFlags(c)
	return c
}

func (g *Gateway) printEvents(events []*eventv1.AuditEvent) error {
	if g.JSON {
		return printMessages(g.Terminal, events)
	}
	rows := make([][]string, len(events))
	for i, e := range events {
		rows[i] = []string{
			time.UnixMilli(e.GetAt()).UTC().Format(time.RFC3339), e.GetActor(), e.GetAction(),
			e.GetTargetKind(), e.GetTargetId(), e.GetSessionId(), e.GetOutcome(), OneLine(e.GetDetail()),
		}
	}
	return g.Table([]string{"TIME", "ACTOR", "ACTION", "TARGET", "ID", "SESSION", "OUTCOME", "DETAIL"}, rows)
}
