package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// maxUsageSessions is how many sessions are read to find the agents or the users. The usage of the rest is in one row.
const maxUsageSessions = 10_000

// others is the row of the usage outside of all other rows.
const others = "(others)"

func tokenHeader() []string { return []string{"INPUT", "CACHED", "OUTPUT", "REASONING", "TOTAL"} }

// cost prints small amounts with more digits.
func cost(amount float64) string {
	if amount < 1 {
		return fmt.Sprintf("%.4f", amount)
	}
	return fmt.Sprintf("%.2f", amount)
}

func count(n int64) string { return fmt.Sprint(n) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// tokensLine sums up the usage of a session or a run; "" without any. tree adds the tokens of all sessions below.
func tokensLine(u *eventv1.UsageRollup, tree bool) string {
	if u.GetEntryCount() == 0 {
		return ""
	}
	t := u.GetTokens()
	line := fmt.Sprintf("%d tokens (%d input, %d output), %s",
		t.GetTotalTokens(), t.GetPromptTokens(), t.GetCompletionTokens(), plural(int(u.GetTools().GetTotalCalls()), "tool call"))
	if u.GetCurrency() != "" {
		line += fmt.Sprintf(", %s %s", cost(t.GetCost()), Clean(u.GetCurrency()))
	}
	if all := u.GetTokensIncludingSubAgents().GetTotalTokens(); tree && all > t.GetTotalTokens() {
		line += fmt.Sprintf("; %d tokens with sub-agents", all)
	}
	return line
}

// Usage returns the command that adds up usage.
func Usage(g *Gateway) *cobra.Command {
	var by, from, to string
	c := &cobra.Command{
		Use: "usage", Short: "Add up tokens and their costs by agent, model or user", Args: NoArguments,
		Long:    "Add up tokens by agent, model or user, and their costs if the gateway has a file of prices (HOLDFAST_GATEWAY_PRICES).",
		Example: "  holdfast usage --by user --from 2026-11-01\n  holdfast usage --by model --from 24h",
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := period(from, to, time.Now())
			if err != nil {
				return err
			}
			if !slices.Contains([]string{"agent", "model", "user"}, by) {
				return fault.New(fault.Invalid, "FLAG_INVALID", "--by is %q: it must be agent, model or user", by)
			}
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				all, err := rollup(c.Context(), h, r)
				if err != nil {
					return err
				}
				rows, err := usageBy(c.Context(), h, by, r, all)
				if err != nil {
					return err
				}
				return g.printUsage(by, rows, all)
			})
		},
	}
	c.Flags().StringVar(&by, "by", "model", "what to group by: agent, model or user")
	c.Flags().StringVar(&from, "from", "", "from this time on: 2026-11-01, an RFC 3339 time, or how long ago, such as 24h")
	c.Flags().StringVar(&to, "to", "", "before this time")
	g.AddFlags(c)
	return c
}

// period returns a query of everything between two times.
func period(from, to string, now time.Time) (*agentv1.QueryUsageRequest, error) {
	begin, err := ParseTime(from, now)
	if err != nil {
		return nil, err
	}
	end, err := ParseTime(to, now)
	return &agentv1.QueryUsageRequest{RecordedFrom: begin, RecordedBefore: end}, err
}

// ParseTime reads a time as milliseconds since the Unix epoch: a day in UTC, a time of RFC 3339, or how long ago; 0 for
// an empty text. Invalid (TIME_INVALID).
func ParseTime(text string, now time.Time) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago).UnixMilli(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UnixMilli(), nil
		}
	}
	return 0, fault.New(fault.Invalid, "TIME_INVALID",
		"%q is no time: give a day such as 2026-11-01, a time such as 2026-11-01T12:00:00Z, or how long ago, such as 24h", text)
}

// usageRow is the usage of an agent, a model or a user.
type usageRow struct {
	Name   string `json:"name"`
	Input  int64  `json:"promptTokens"`
	Cached int64  `json:"cachedTokens"`
	Output int64  `json:"completionTokens"`
	Reason int64  `json:"reasoningTokens"`
	Total  int64  `json:"totalTokens"`

	Cost     float64 `json:"cost,omitempty"`
	Currency string  `json:"currency,omitempty"`
}

func rowOf(name string, t *eventv1.TokenSums) usageRow {
	return usageRow{
		Name: name, Input: t.GetPromptTokens(), Cached: t.GetCachedTokens(), Output: t.GetCompletionTokens(),
		Reason: t.GetReasoningTokens(), Total: t.GetTotalTokens(), Cost: t.GetCost(),
	}
}

// usageBy returns a row for each agent, model or user with usage, sorted by tokens. all is everything of the period.
func usageBy(
	ctx context.Context, h *client.Client, by string, r *agentv1.QueryUsageRequest, all *eventv1.UsageRollup,
) ([]usageRow, error) {
	var rows []usageRow
	var err error
	if by == "model" {
		for model, sums := range all.GetTokensByModel() {
			rows = append(rows, rowOf(model, sums))
		}
	} else if rows, err = usageOfNames(ctx, h, by, r, all.GetTokens()); err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].Currency = all.GetCurrency()
	}
	slices.SortFunc(rows, func(a, b usageRow) int {
		if a.Total != b.Total {
			return int(min(max(b.Total-a.Total, -1), 1))
		}
		return slices.Compare([]byte(a.Name), []byte(b.Name))
	})
	return rows, nil
}

// usageOfNames asks for each agent or user on its own. The remaining tokens are the row of the others.
func usageOfNames(
	ctx context.Context, h *client.Client, by string, r *agentv1.QueryUsageRequest, all *eventv1.TokenSums,
) ([]usageRow, error) {
	names, err := namesOf(ctx, h, by)
	if err != nil {
		return nil, err
	}
	var rows []usageRow
	rest := rowOf(others, all)
	for _, name := range names {
		of := proto.CloneOf(r)
		if by == "agent" {
			of.AgentType = name
		} else {
			of.UserId = name
		}
		sums, err := rollup(ctx, h, of)
		if err != nil {
			return nil, err
		}
		row := rowOf(name, sums.GetTokens())
		if row.Total > 0 {
			rows = append(rows, row)
		}
		rest.Input -= row.Input
		rest.Cached -= row.Cached
		rest.Output -= row.Output
		rest.Reason -= row.Reason
		rest.Total -= row.Total
		rest.Cost = max(rest.Cost-row.Cost, 0)
	}
	if rest.Total > 0 {
		rows = append(rows, rest)
	}
	return rows, nil
}

// namesOf returns the agents or the users of the newest sessions.
func namesOf(ctx context.Context, h *client.Client, by string) ([]string, error) {
	names := map[string]bool{}
	sessions, err := first(maxUsageSessions, h.Sessions(ctx, &agentv1.ListSessionsRequest{}))
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		if by == "agent" {
			names[s.GetAgentType()] = true
		} else if s.GetUserId() != "" {
			names[s.GetUserId()] = true
		}
	}
	return sortedKeys(names), nil
}

// rollup adds up one bucket.
func rollup(ctx context.Context, h *client.Client, r *agentv1.QueryUsageRequest) (*eventv1.UsageRollup, error) {
	buckets, err := h.QueryUsage(ctx, r)
	if err != nil || len(buckets) == 0 {
		return nil, err
	}
	return buckets[0].GetRollup(), nil
}

func (g *Gateway) printUsage(by string, rows []usageRow, all *eventv1.UsageRollup) error {
	if g.JSON {
		if rows == nil {
			rows = []usageRow{}
		}
		return g.PrintJSON(rows)
	}
	cells := make([][]string, len(rows))
	for i, r := range rows {
		cells[i] = []string{r.Name, count(r.Input), count(r.Cached), count(r.Output), count(r.Reason), count(r.Total)}
		if r.Currency != "" {
			cells[i] = append(cells[i], cost(r.Cost))
		}
	}
	header := append([]string{strings.ToUpper(by)}, tokenHeader()...)
	if all.GetCurrency() != "" {
		header = append(header, "COST "+Clean(all.GetCurrency()))
	}
	if err := g.Table(header, cells); err != nil || len(all.GetUnpricedModels()) == 0 {
		return err
	}
	return g.printf("\nwithout a price: %s\n", Clean(strings.Join(all.GetUnpricedModels(), ", ")))
}
