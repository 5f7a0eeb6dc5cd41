package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// ListAgents returns the command that lists the agents of executors and the stored ones.
func ListAgents(g *Gateway) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the agents of the executors, and the stored ones", Args: NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				found, err := h.Agents(c.Context())
				if err != nil {
					return err
				}
				if g.JSON {
					return g.printMessage(found)
				}
				rows := make([][]string, len(found.GetAgents()))
				for i, a := range found.GetAgents() {
					name := a.GetAgentType()
					if name == found.GetDefaultAgent() {
						name += " (default)"
					}
					busy := ""
					if p := a.GetOnBusy(); p != agentv1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
						busy = strings.ToLower(strings.TrimPrefix(p.String(), "BUSY_POLICY_"))
					}
					rows[i] = []string{name, a.GetSource(), served(a), queued(a), busy, OneLine(a.GetDescription())}
				}
				err = g.Table([]string{"AGENT", "SOURCE", "EXECUTORS", "QUEUED", "ON BUSY", "DESCRIPTION"}, rows)
				if err != nil || len(found.GetProblems()) == 0 {
					return err
				}
				return g.printProblems(found.GetProblems())
			})
		},
	}
	g.AddFlags(c)
	return c
}

// printProblems lists what is out of service.
func (g *Gateway) printProblems(problems []*agentv1.AgentProblem) error {
	if err := g.printf("\nOUT OF SERVICE\n"); err != nil {
		return err
	}
	for _, p := range problems {
		reason := flat(p.GetText())
		if reason == "" {
			reason = "the scope operate shows the reason"
		}
		if err := g.printf("%s (%s): %s\n", partName(p), plural(int(p.GetExecutors()), "executor"), reason); err != nil {
			return err
		}
	}
	return nil
}

// partName names a part out of service.
func partName(p *agentv1.AgentProblem) string {
	text := p.GetKind() + " " + Clean(p.GetName())
	if p.GetAgentType() != "" {
		text += " of agent " + Clean(p.GetAgentType())
	}
	return text
}

// served says how many executors serve an agent, or since when none does.
func served(a *agentv1.Agent) string {
	if a.GetExecutors() > 0 {
		return fmt.Sprint(a.GetExecutors())
	}
	if a.GetLastAnnouncedAt() == 0 {
		return "none"
	}
	return "none for " + since(a.GetLastAnnouncedAt())
}

// queued says how many runs of an agent are queued, and for how long the oldest of them.
func queued(a *agentv1.Agent) string {
	if a.GetQueuedRuns() == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, oldest %s", a.GetQueuedRuns(), since(a.GetOldestQueuedAt()))
}
