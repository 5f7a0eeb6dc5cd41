package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// maxSuggestions is how many sessions a shell suggests.
const maxSuggestions = 50

// completeSession lets shells complete the first argument of commands with the newest sessions.
func (g *Gateway) completeSession(commands ...*cobra.Command) {
	g.complete(func(ctx context.Context, h *client.Client) (words []string, err error) {
		sessions, err := first(maxSuggestions, h.Sessions(ctx, &agentv1.ListSessionsRequest{Limit: maxSuggestions}))
		for _, s := range sessions {
			words = append(words, fmt.Sprintf("%s\t%s, %s", s.GetSessionId(), s.GetAgentType(), s.GetStatus()))
		}
		return words, err
	}, commands...)
}

// completeAgent lets shells complete the first argument of commands with the announced agents.
func (g *Gateway) completeAgent(commands ...*cobra.Command) {
	g.complete(func(ctx context.Context, h *client.Client) (words []string, err error) {
		found, err := h.Agents(ctx)
		for _, a := range found.GetAgents() {
			words = append(words, a.GetAgentType()+"\t"+OneLine(a.GetDescription()))
		}
		return words, err
	}, commands...)
}

// complete suggests words of the gateway; none if it does not answer.
func (g *Gateway) complete(words func(context.Context, *client.Client) ([]string, error), commands ...*cobra.Command) {
	for _, c := range commands {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) (list []string, _ cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			err := g.with(c.Context(), shortPatience, func(h *client.Client) (err error) {
				list, err = words(c.Context(), h)
				return err
			})
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		}
	}
}
