package memory

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// UsageEntries implements store.Accounts.
func (m *Store) UsageEntries(ctx context.Context, key session.Key, kinds []session.UsageKind, offset, limit int) (page []session.UsageEntry, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		for _, u := range r.usage {
			if len(kinds) == 0 || slices.Contains(kinds, u.Kind) {
				page = append(page, u)
			}
		}
		slices.SortFunc(page, func(a, b session.UsageEntry) int {
			return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.RunID, b.RunID), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Position, b.Position))
		})
		page = page[min(offset, len(page)):]
		page = page[:min(limit, len(page))]
		return nil
	})
	return page, err
}

// alike is what the entries of one sum have in common.
type alike struct {
	bucket                         session.Millis
	kind                           session.UsageKind
	source, model, tool, typ, name string
}

// UsageSums implements store.Accounts.
func (m *Store) UsageSums(ctx context.Context, tenant string, q store.UsageQuery, limit int) ([]store.UsageSum, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	sums := map[alike]*store.UsageSum{}
	for _, r := range m.accounted(tenant, q) {
		for i := range r.usage {
			if u := &r.usage[i]; counts(u, q) {
				add(sums, u, q.Bucket)
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b alike) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.kind, b.kind), cmp.Compare(a.source, b.source), cmp.Compare(a.model, b.model),
			cmp.Compare(a.tool, b.tool), cmp.Compare(a.typ, b.typ), cmp.Compare(a.name, b.name))
	})
	var list []store.UsageSum
	for _, key := range keys[:min(limit, len(keys))] {
		list = append(list, *sums[key])
	}
	return list, nil
}

// accounted returns the rows of the sessions that the query is about.
func (m *Store) accounted(tenant string, q store.UsageQuery) []*rows {
	var family []session.Key
	if q.Family != "" {
		family = m.below(session.Key{Tenant: tenant, SessionID: q.Family}, math.MaxInt)
	}
	var list []*rows
	for key, r := range m.sessions {
		s := &r.session
		if key.Tenant == tenant &&
			(len(q.Sessions) == 0 || slices.Contains(q.Sessions, key.SessionID)) &&
			(q.Family == "" || slices.Contains(family, key)) &&
			(q.UserID == "" || s.UserID == q.UserID) &&
			(q.AgentType == "" || s.AgentType == q.AgentType) {
			list = append(list, r)
		}
	}
	return list
}

func counts(u *session.UsageEntry, q store.UsageQuery) bool {
	return (q.RunID == "" || u.RunID == q.RunID) &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, u.Kind)) &&
		(len(q.Models) == 0 || slices.Contains(q.Models, u.Model)) &&
		u.At >= q.From && (q.Before == 0 || u.At < q.Before)
}

func add(sums map[alike]*store.UsageSum, u *session.UsageEntry, length session.Millis) {
	var bucket session.Millis
	if length > 0 {
		bucket = u.At - u.At%length
	}
	key := alike{bucket, u.Kind, u.Source, u.Model, u.Tool, u.Type, u.Name}
	sum := sums[key]
	if sum == nil {
		named := session.Usage{Kind: u.Kind, Source: u.Source, Model: u.Model, Tool: u.Tool, Type: u.Type, Name: u.Name}
		sum = &store.UsageSum{Bucket: bucket, Usage: named, First: u.At, Last: u.At}
		sums[key] = sum
	}
	sum.Usage.PromptTokens += u.PromptTokens
	sum.Usage.CompletionTokens += u.CompletionTokens
	sum.Usage.ReasoningTokens += u.ReasoningTokens
	sum.Usage.CachedTokens += u.CachedTokens
	sum.Usage.TotalTokens += u.TotalTokens
	sum.Usage.DurationMS += u.DurationMS
	sum.Usage.Value += u.Value
	sum.Count++
	if u.Success {
		sum.Success++
	}
	sum.First, sum.Last = min(sum.First, u.At), max(sum.Last, u.At)
}
