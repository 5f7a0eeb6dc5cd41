package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var accounts = []suiteCase{
	{"usage outside steps is appended to the recorded usage", func(h *harness) {
		h.create(h.createOf(home))
		h.recordUsage(home, "", toolUsage("a"), toolUsage("b"))
		custom := session.Usage{Kind: session.UsageCustom, Source: "tool", Type: "t", Name: "n", Value: 0.25}
		h.recordUsage(home, "run", custom)
		h.recordUsage(home, "")
		want := []session.UsageEntry{
			{Position: 0, At: h.now, Usage: toolUsage("a")}, {Position: 1, At: h.now, Usage: toolUsage("b")},
			{RunID: "run", Position: 2, At: h.now, Usage: custom},
		}
		same(h, "entries", h.usage(home), want)
		s := h.snapshot(home).Session
		if s.UsageCount != 3 || s.Version != 1 {
			h.Errorf("got %+v", s)
		}
		c := session.RecordUsage{Key: at("unknown"), Usage: []session.Usage{custom}, Now: h.now}
		h.refuses(h.send(c.Key, c.Need(), c.Decide), fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"usage before a release is recorded once", func(h *harness) {
		h.start(h.startOf(home))
		release := func(ref session.ClaimRef, n int64) {
			h.Helper()
			c := session.Release{ClaimRef: ref, Usage: []session.Usage{modelUsage(n), modelUsage(n)}, Now: h.now}
			h.must(h.send(c.Key, c.Need(), c.Decide))
			h.must(h.send(c.Key, c.Need(), c.Decide))
		}
		ref, _ := h.claim(executor)
		release(ref, 3)
		ref, _ = h.claim(executor)
		release(ref, 7)
		entry := func(place int32, n int64) session.UsageEntry {
			return session.UsageEntry{RunID: ref.RunID, Position: place, At: h.now, Usage: modelUsage(n)}
		}
		same(h, "entries", h.usage(home), []session.UsageEntry{entry(0, 3), entry(1, 3), entry(2, 7), entry(3, 7)})
		same(h, "count", h.snapshot(home).Session.UsageCount, int32(4))
	}},
	{"concurrent usage is recorded completely", func(h *harness) {
		h.create(h.createOf(home))
		concurrently(func(i int) {
			c := session.RecordUsage{Key: home, Usage: []session.Usage{modelUsage(int64(i)), modelUsage(1000)}, Now: h.now}
			if err := h.send(c.Key, c.Need(), c.Decide); err != nil {
				h.Errorf("record %d: %v", i, err)
			}
		})
		var sum int64
		entries := h.usage(home)
		for i, e := range entries {
			same(h, "position", e.Position, int32(i))
			sum += e.TotalTokens
		}
		if len(entries) != 2*parallelism || sum != parallelism*1000+parallelism*(parallelism-1)/2 {
			h.Errorf("got %d entries of %d tokens", len(entries), sum)
		}
	}},
	{"usage is listed by kind, in pages, in the order of recording", func(h *harness) {
		l := h.ledger()
		for _, kinds := range [][]session.UsageKind{nil, {session.UsageTool}, {session.UsageTokens, session.UsageCustom}, {"none"}} {
			var want []session.UsageEntry
			for _, e := range l.entries {
				if e.key == home && (len(kinds) == 0 || slices.Contains(kinds, e.Kind)) {
					want = append(want, e.UsageEntry)
				}
			}
			slices.SortFunc(want, func(x, y session.UsageEntry) int {
				return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.RunID, y.RunID), cmp.Compare(x.Step, y.Step), cmp.Compare(x.Position, y.Position))
			})
			var got []session.UsageEntry
			for offset := 0; ; offset += 7 {
				page, err := h.Store.UsageEntries(h.Context(), home, kinds, offset, 7)
				h.must(err)
				got = append(got, page...)
				if len(page) < 7 {
					break
				}
			}
			same(h, fmt.Sprint("entries of the kinds ", kinds), got, want)
		}
		_, err := h.Store.UsageEntries(h.Context(), at("unknown"), nil, 0, 7)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"usage sums match a reference list", func(h *harness) {
		l := h.ledger()
		for _, q := range l.queries() {
			want := l.sums(q)
			got, err := h.Store.UsageSums(h.Context(), "acme", q, 10_000)
			h.must(err)
			same(h, fmt.Sprintf("sums of %+v", q), got, want)
			few, err := h.Store.UsageSums(h.Context(), "acme", q, 3)
			h.must(err)
			same(h, fmt.Sprintf("three sums of %+v", q), few, want[:min(3, len(want))])
		}
	}},
}

// usageLedger is the reference for usage sums: a list of all entries and their sessions.
type usageLedger struct {
	rand     *rand.Rand
	sessions []session.Session
	entries  []usageLedgerEntry
}

type usageLedgerEntry struct {
	session.UsageEntry
	key session.Key
}

// ledger writes usage to a family and to other sessions of two tenants.
func (h *harness) ledger() *usageLedger {
	h.Helper()
	l := &usageLedger{rand: rand.New(rand.NewPCG(2, 3))}
	for i, id := range []string{home.SessionID, "child", "grandchild", "other", "far", home.SessionID} {
		key := session.Key{Tenant: []string{"acme", "other"}[i/5], SessionID: id}
		s := session.Session{
			Key: key, RootID: id, AgentType: l.pick(agent, "sales"), Status: session.Paused, Version: 1, StateVersion: 1, StateBase: 1, State: "{}",
			UserID: l.pick("", "u1", "u2"), CreatedAt: h.now,
		}
		if i == 1 || i == 2 {
			s.RootID, s.ParentID = home.SessionID, []string{"", home.SessionID, "child"}[i]
		}
		change := &session.Change{Session: &s, Created: true, NewState: true}
		for position := range int32(30) {
			e := session.UsageEntry{
				RunID: l.pick("", "r1", "r2"), Step: int32(i), Position: position, At: h.now + session.Millis(l.rand.IntN(500)), Usage: l.usage(),
			}
			change.Usage = append(change.Usage, e)
			l.entries = append(l.entries, usageLedgerEntry{e, key})
		}
		l.sessions = append(l.sessions, s)
		h.write(key, change)
	}
	return l
}

func (l *usageLedger) pick(values ...string) string { return values[l.rand.IntN(len(values))] }

func (l *usageLedger) usage() session.Usage {
	n := func() int64 { return l.rand.Int64N(1 << 40) }
	switch l.rand.IntN(4) {
	case 0:
		return session.Usage{
			Kind: session.UsageTokens, Source: l.pick("agent", "subagent"), Model: l.pick("m1", "M1", "m2"), PromptTokens: n(),
			CompletionTokens: n(), ReasoningTokens: n(), CachedTokens: n(), TotalTokens: n(),
		}
	case 1:
		return session.Usage{Kind: session.UsageTool, Source: "tool", Tool: l.pick("t", "t'"), Success: l.rand.IntN(2) == 0, DurationMS: n()}
	case 2:
		return session.Usage{Kind: session.UsageSubAgent, Source: "agent", Tool: l.pick("t", "s"), Success: l.rand.IntN(2) == 0, DurationMS: n()}
	default:
		// Sums of quarters are exact in any order.
		return session.Usage{
			Kind: session.UsageCustom, Source: "tool", Type: l.pick("x", "y"), Name: l.pick("n", "m"), Value: float64(l.rand.IntN(1000)) / 4,
		}
	}
}

func (l *usageLedger) queries() []store.UsageQuery {
	from := l.entries[0].At
	list := []store.UsageQuery{
		{}, {Sessions: []string{home.SessionID}}, {Sessions: []string{"child", "far", "unknown"}}, {Family: home.SessionID}, {Family: "child"},
		{Family: "far"}, {Family: "unknown"},
		{RunID: "r1"}, {UserID: "u1"}, {AgentType: "sales"}, {Kinds: []session.UsageKind{session.UsageTokens, session.UsageTool}},
		{Models: []string{"m1", "m2"}},
		{From: from}, {Before: from}, {From: from - 100, Before: from + 100}, {Bucket: 100}, {Bucket: 7},
	}
	for range 20 {
		q := list[l.rand.IntN(len(list))]
		more := list[l.rand.IntN(len(list))]
		q.RunID, q.UserID, q.Kinds = cmp.Or(q.RunID, more.RunID), cmp.Or(q.UserID, more.UserID), slices.Concat(q.Kinds, more.Kinds)
		q.From, q.Bucket, q.AgentType = cmp.Or(q.From, more.From), cmp.Or(q.Bucket, more.Bucket), cmp.Or(q.AgentType, more.AgentType)
		if len(q.Sessions) == 0 && q.Family == "" {
			q.Sessions, q.Family = more.Sessions, more.Family
		}
		list = append(list, q)
	}
	return list
}

func (l *usageLedger) counts(e usageLedgerEntry, q store.UsageQuery) bool {
	s := l.sessions[slices.IndexFunc(l.sessions, func(s session.Session) bool { return s.Key == e.key })]
	below := map[string][]string{home.SessionID: {home.SessionID, "child", "grandchild"}, "child": {"child", "grandchild"}, "far": {"far"}}
	switch {
	case s.Tenant != "acme", len(q.Sessions) > 0 && !slices.Contains(q.Sessions, s.SessionID),
		q.Family != "" && !slices.Contains(below[q.Family], s.SessionID):
		return false
	case q.RunID != "" && q.RunID != e.RunID, q.UserID != "" && q.UserID != s.UserID, q.AgentType != "" && q.AgentType != s.AgentType:
		return false
	case len(q.Kinds) > 0 && !slices.Contains(q.Kinds, e.Kind), len(q.Models) > 0 && !slices.Contains(q.Models, e.Model):
		return false
	}
	return (q.From == 0 || e.At >= q.From) && (q.Before == 0 || e.At < q.Before)
}

func (l *usageLedger) sums(q store.UsageQuery) []store.UsageSum {
	var sums []store.UsageSum
	for _, e := range l.entries {
		if !l.counts(e, q) {
			continue
		}
		of := store.UsageSum{
			Usage: session.Usage{Kind: e.Kind, Source: e.Source, Model: e.Model, Tool: e.Tool, Type: e.Type, Name: e.Name}, First: e.At, Last: e.At,
		}
		if q.Bucket > 0 {
			of.Bucket = e.At - e.At%q.Bucket
		}
		i, found := slices.BinarySearchFunc(sums, of, compareSums)
		if !found {
			sums = slices.Insert(sums, i, of)
		}
		addToSum(&sums[i], e.UsageEntry)
	}
	return sums
}

func addToSum(s *store.UsageSum, e session.UsageEntry) {
	s.Count++
	if e.Success {
		s.Success++
	}
	u := &s.Usage
	u.PromptTokens += e.PromptTokens
	u.CompletionTokens += e.CompletionTokens
	u.ReasoningTokens += e.ReasoningTokens
	u.CachedTokens += e.CachedTokens
	u.TotalTokens += e.TotalTokens
	u.DurationMS += e.DurationMS
	u.Value += e.Value
	s.First, s.Last = min(s.First, e.At), max(s.Last, e.At)
}

func compareSums(a, b store.UsageSum) int {
	return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Usage.Kind, b.Usage.Kind), cmp.Compare(a.Usage.Source, b.Usage.Source),
		cmp.Compare(a.Usage.Model, b.Usage.Model),
		cmp.Compare(a.Usage.Tool, b.Usage.Tool), cmp.Compare(a.Usage.Type, b.Usage.Type), cmp.Compare(a.Usage.Name, b.Usage.Name))
}
