package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func (b *bench) list(change func(*statev1.ListSessionsRequest)) *statev1.ListSessionsResponse {
	b.Helper()
	r := &statev1.ListSessionsRequest{Tenant: "acme"}
	change(r)
	got, err := b.sessions.ListSessions(b.Context(), r)
	b.must(err)
	return got
}

func idsOf(list *statev1.ListSessionsResponse) (ids []string) {
	for _, s := range list.GetSessions() {
		ids = append(ids, s.GetSessionId())
	}
	return ids
}

func TestSessionsAreListedByEveryProperty(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		from := b.now().UnixMilli()
		b.create("old", func(r *statev1.CreateSessionRequest) { r.UserId, r.Tags = "ann", []string{"x", "y"} })
		b.advance(time.Hour)
		b.create("new", func(r *statev1.CreateSessionRequest) {
			r.UserId, r.OrganizationId, r.Tags, r.Metadata = "ann", "org", []string{"x"}, map[string]string{"k": "v", "l": "w"}
		})
		b.advance(time.Hour)
		b.createChild("old", "child")
		b.advance(time.Hour)
		b.start("run")
		s.execute()
		for name, c := range map[string]struct {
			change func(*statev1.ListSessionsRequest)
			want   []string
		}{
			"all":             {func(*statev1.ListSessionsRequest) {}, []string{"run", "child", "new", "old"}},
			"user":            {func(r *statev1.ListSessionsRequest) { r.UserId = "ann" }, []string{"child", "new", "old"}},
			"organization":    {func(r *statev1.ListSessionsRequest) { r.OrganizationId = "org" }, []string{"new"}},
			"agent":           {func(r *statev1.ListSessionsRequest) { r.AgentType = "sales" }, nil},
			"status":          {func(r *statev1.ListSessionsRequest) { r.Statuses = []statev1.SessionStatus{active} }, []string{"run"}},
			"statuses":        {func(r *statev1.ListSessionsRequest) { r.Statuses = []statev1.SessionStatus{active, paused} }, []string{"run", "child", "new", "old"}},
			"statuses, fewer": {func(r *statev1.ListSessionsRequest) { r.Statuses = []statev1.SessionStatus{active, sessionKO} }, []string{"run"}},
			"children": {func(r *statev1.ListSessionsRequest) {
				r.Family = &statev1.ListSessionsRequest_ParentSessionId{ParentSessionId: "old"}
			}, []string{"child"}},
			"roots":      {func(r *statev1.ListSessionsRequest) { r.Family = &statev1.ListSessionsRequest_Roots{Roots: true} }, []string{"run", "new", "old"}},
			"tag":        {func(r *statev1.ListSessionsRequest) { r.Tags = []string{"x"} }, []string{"new", "old"}},
			"tags":       {func(r *statev1.ListSessionsRequest) { r.Tags = []string{"x", "y"} }, []string{"old"}},
			"metadata":   {func(r *statev1.ListSessionsRequest) { r.Metadata = map[string]string{"k": "v", "l": "w"} }, []string{"new"}},
			"wrong pair": {func(r *statev1.ListSessionsRequest) { r.Metadata = map[string]string{"k": "w"} }, nil},
			"from":       {func(r *statev1.ListSessionsRequest) { r.CreatedFrom = from + 3_600_000 }, []string{"run", "child", "new"}},
			"before":     {func(r *statev1.ListSessionsRequest) { r.CreatedBefore = from + 3_600_000 }, []string{"old"}},
			"several":    {func(r *statev1.ListSessionsRequest) { r.UserId, r.Tags, r.AgentType = "ann", []string{"x"}, "support" }, []string{"new", "old"}},
		} {
			got := b.list(c.change)
			if !slices.Equal(idsOf(got), c.want) || got.GetTotal() != int64(len(c.want)) || got.GetHasMore() || got.GetTotalIsMinimum() {
				t.Errorf("%s: got %v of %d, want %v", name, idsOf(got), got.GetTotal(), c.want)
			}
		}
	})
}

func TestPagesOfSessionsGoOnByOffsetAndByCursor(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		var want []string
		for i := range 7 {
			b.create(fmt.Sprint("s", i)) // some in the same millisecond
		}
		for _, s := range b.list(func(*statev1.ListSessionsRequest) {}).GetSessions() {
			want = append(want, s.GetSessionId())
		}
		var byOffset, byCursor []string
		for offset, more := int32(0), true; more; offset += 3 {
			page := b.list(func(r *statev1.ListSessionsRequest) { r.Offset, r.Limit = offset, 3 })
			if page.GetTotal() != 7 || page.GetOffset() != offset || page.GetLimit() != 3 || (page.GetNext() != "") != page.GetHasMore() {
				t.Errorf("got %v, want a page of three from %d", page, offset)
			}
			byOffset, more = append(byOffset, idsOf(page)...), page.GetHasMore()
		}
		for cursor, more := "", true; more; {
			page := b.list(func(r *statev1.ListSessionsRequest) { r.Cursor, r.Limit = cursor, 3 })
			if cursor != "" && page.GetTotal() != 0 {
				t.Errorf("got total %d for a cursor, want none", page.GetTotal())
			}
			byCursor, more, cursor = append(byCursor, idsOf(page)...), page.GetHasMore(), page.GetNext()
			if cursor != "" {
				b.advance(time.Second)
				b.create("later" + fmt.Sprint(len(byCursor))) // newer than all, so on no later page
			}
		}
		if !slices.Equal(byOffset, want) || !slices.Equal(byCursor, want) {
			t.Errorf("got %v by offset, %v by cursor, want %v", byOffset, byCursor, want)
		}
	})
}

func TestCountingStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.Count = 3 })
		b.announce()
		for i, want := range []struct {
			total   int64
			minimum bool
		}{{1, false}, {2, false}, {3, false}, {3, true}, {3, true}} {
			b.create(fmt.Sprint("s", i))
			if got := b.list(func(*statev1.ListSessionsRequest) {}); got.GetTotal() != want.total || got.GetTotalIsMinimum() != want.minimum {
				t.Errorf("%d sessions: got %d, minimum %v, want %v", i+1, got.GetTotal(), got.GetTotalIsMinimum(), want)
			}
			if got := b.list(func(r *statev1.ListSessionsRequest) { r.ExactTotal = true }); got.GetTotal() != int64(i+1) || got.GetTotalIsMinimum() {
				t.Errorf("got %d, minimum %v, want exactly %d", got.GetTotal(), got.GetTotalIsMinimum(), i+1)
			}
		}
	})
}

func TestACursorKeepsAnyPlace(t *testing.T) {
	t.Parallel()
	for _, want := range []store.SessionPlace{{CreatedAt: 1, SessionID: "s"}, {CreatedAt: 1 << 42, SessionID: "日本 / .*"}} {
		cursor := encodeCursor(sessionCursors, want.CreatedAt, want.SessionID)
		var x reader
		if got := readSessionPlace(&x, cursor); x.err != nil || *got != want {
			t.Errorf("got %v, %v; want %v", got, x.err, want)
		}
		if readCallPlace(&x, cursor); fault.ReasonOf(x.err) != "CURSOR_INVALID" {
			t.Errorf("a cursor of another list: got %v", x.err)
		}
		x = reader{}
		call := store.CallPlace{CreatedAt: want.CreatedAt, RootID: want.SessionID, CallID: "c / ."}
		if got := readCallPlace(&x, callCursor(call)); x.err != nil || got != call {
			t.Errorf("got %v, %v; want %v", got, x.err, call)
		}
	}
}

func TestAPageOfLargeCallsIsShorter(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.PageBytes = 10 })
		b.open("e1", 10).suspend("s", "c1", "c2", "c3")
		var got []string
		for cursor, more := "", true; more; more = cursor != "" {
			page, err := b.calls.ListOpenCalls(t.Context(), &statev1.ListOpenCallsRequest{Tenant: "acme", Cursor: cursor})
			if err != nil || len(page.GetCalls()) != 1 {
				t.Fatalf("got %v, %v; want one call", page, err)
			}
			got, cursor = append(got, page.GetCalls()[0].GetCall().GetToolCallId()), page.GetNext()
		}
		if want := []string{"c1", "c2", "c3"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestAPageOfLargeSessionsIsShorter(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.PageBytes = 10_000 })
		b.announce()
		for i := range 5 {
			b.create(fmt.Sprint("s", i), func(r *statev1.CreateSessionRequest) { r.Metadata = map[string]string{"k": xs(4000)} })
			b.advance(time.Second)
		}
		var byOffset, byCursor []string
		for offset, cursor, more := int32(0), "", true; more; {
			page := b.list(func(r *statev1.ListSessionsRequest) { r.Offset = offset })
			byOffset, offset, more = append(byOffset, idsOf(page)...), offset+page.GetLimit(), page.GetHasMore()
			page = b.list(func(r *statev1.ListSessionsRequest) { r.Cursor = cursor })
			byCursor, cursor = append(byCursor, idsOf(page)...), page.GetNext()
		}
		if want := []string{"s4", "s3", "s2", "s1", "s0"}; !slices.Equal(byOffset, want) || !slices.Equal(byCursor, want) {
			t.Errorf("got %v by offset, %v by cursor, want %v", byOffset, byCursor, want)
		}
	})
}

func TestAListLeavesLargeThingsOut(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		b.create("s", func(r *statev1.CreateSessionRequest) { r.CustomState = `{"n":1}` })
		got := b.list(func(*statev1.ListSessionsRequest) {}).GetSessions()[0]
		want := b.get("s").GetSession()
		if want.GetCustomState() != `{"n":1}` {
			t.Errorf("got %v, want its state", want)
		}
		want.CustomState = ""
		if !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
