package server

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/folder"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite"
)

// database is a bench whose database can be looked into.
type database struct {
	*bench
	ask func(query string, args ...any) []string // the texts of the first column
	// tenantTables lists all tables with a column tenant.
	tenantTables string
	placeholder  string
}

// onEveryDatabase runs a test on both databases, with the bytes of files in the database and in a folder.
func onEveryDatabase(t *testing.T, test func(t *testing.T, b *database)) {
	t.Helper()
	var commits group.Config
	if err := config.Load(&commits, nil); err != nil {
		t.Fatal(err)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "state.db")
		s, err := sqlite.Open(t.Context(), path, commits, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		test(t, &database{newBenchOn(t, s.Parts()), func(query string, args ...any) []string {
			t.Helper()
			rows, err := db.QueryContext(t.Context(), query, args...)
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			defer rows.Close()
			var list []string
			for rows.Next() {
				var text string
				if err := rows.Scan(&text); err != nil {
					t.Fatal(err)
				}
				list = append(list, text)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return list
		}, `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c ON c.name = 'tenant' WHERE m.type = 'table'`, "?"})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := databaseURL(t)
		s, err := postgres.Open(t.Context(), url, 4, commits, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		parts := s.Parts()
		blobs, err := folder.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = blobs.Close() })
		parts.Blobs = blobs
		test(t, &database{newBenchOn(t, parts), func(query string, args ...any) []string {
			t.Helper()
			rows, err := conn.Query(t.Context(), query, args...)
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			list, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			return list
		}, `SELECT table_name::text FROM information_schema.columns WHERE table_schema = current_schema() AND column_name = 'tenant'`, "$1"})
	})
}

// rows counts the rows of a tenant in every table that has any, but for the audit log.
func (b *database) rows(tenant string) map[string]string {
	b.Helper()
	counts := map[string]string{}
	for _, table := range b.ask(b.tenantTables) {
		n := b.ask(`SELECT cast(count(*) AS text) FROM `+table+` WHERE tenant = `+b.placeholder, tenant)
		if table != "audit" && n[0] != "0" {
			counts[table] = n[0]
		}
	}
	return counts
}

// populate makes sessions of a user with all that belongs to them, and returns the id of a file.
func (b *database) populate(s *stream, tenant, user, prefix string) string {
	b.Helper()
	f := b.put(tenant, "image/png", photo(1000))
	b.put(tenant, "image/png", photo(1001)) // an upload that no message refers to
	ids := []string{prefix + "1", prefix + "2", prefix + "3"}
	for i, id := range ids {
		r := startOf(id)
		r.Tenant, r.UserId, r.CustomState = tenant, user, `{"a":1}`
		r.Messages = append(r.Messages, fileMessage(f.GetFileId()))
		_, err := b.runs.StartRun(b.Context(), r)
		b.must(err)
		ref := refTo(s.execute())
		_, err = b.usage.RecordUsage(b.Context(), &statev1.RecordUsageRequest{Tenant: tenant, SessionId: id, Usage: tokens(1)})
		b.must(err)
		switch i {
		case 0: // live
			b.commit(step(ref, 1))
			b.planning(ref, 2, "c")
			_, err := b.work.RecordResult(b.Context(), &statev1.RecordResultRequest{Run: ref, Step: 2, Result: &statev1.CallResult{Result: &eventv1.ToolResultPart{ToolCallId: "c", Result: "1"}}})
			b.must(err)
		case 1:
			b.commit(suspendingStep(ref, 1, "c1"))
		default:
			b.commit(endingStep(ref, 1, completed))
		}
	}
	_, err := b.sessions.CreateSession(b.Context(), &statev1.CreateSessionRequest{
		Tenant: tenant, SessionId: prefix + "below", AgentType: "support", UserId: user, Parent: &statev1.Parent{SessionId: ids[1]},
	})
	b.must(err)
	b.putAgent(tenant, "clerk", clerk)
	for i := range 3 {
		_, err := b.memories.AddMemory(b.Context(), &statev1.AddMemoryRequest{Tenant: tenant, Memory: &statev1.Memory{MemoryId: fmt.Sprint(prefix, i), EntityId: user, Text: "likes tea"}})
		b.must(err)
	}
	return f.GetFileId()
}

// erase calls Erase until it is done, and adds up what was removed.
func (b *bench) erase(r *statev1.EraseRequest) *eventv1.Removed {
	b.Helper()
	return b.eraseBy(func() (*statev1.EraseResponse, error) { return b.erasure.Erase(b.Context(), r) })
}

// eraseBy repeats the request until all is erased, and returns the sums.
func (b *bench) eraseBy(request func() (*statev1.EraseResponse, error)) *eventv1.Removed {
	b.Helper()
	sum := &eventv1.Removed{}
	for {
		got, err := request()
		b.must(err)
		addRemoved(sum, got.GetRemoved())
		if got.GetDone() {
			return sum
		}
	}
}

func addRemoved(sum, part *eventv1.Removed) {
	fields := sum.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		n := sum.ProtoReflect().Get(f).Int() + part.ProtoReflect().Get(f).Int()
		sum.ProtoReflect().Set(f, protoreflect.ValueOfInt64(n))
	}
}

// finishLogs forgets the live logs to remove, as a gateway does after it has removed them.
func (b *bench) finishLogs() []*statev1.LogErasure {
	b.Helper()
	b.advance(2 * time.Minute)
	due, err := b.erasure.ListLogErasures(b.Context(), &statev1.ListLogErasuresRequest{})
	b.must(err)
	_, err = b.erasure.FinishLogErasures(b.Context(), &statev1.FinishLogErasuresRequest{Logs: due.GetLogs()})
	b.must(err)
	return due.GetLogs()
}

func TestNothingIsLeftOfAnErasedTenant(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, b *database) {
		s := b.open("e1", 20)
		theirs := b.populate(s, "other", "u", "s")
		before := b.rows("other")
		file := b.populate(s, "acme", "u", "s")
		b.populate(s, "acme", "v", "t")
		if got := b.rows("acme"); len(got) < len(before) || len(got) < 14 {
			t.Fatalf("got rows in %v, want some in nearly every table", got)
		}
		removed := b.erase(&statev1.EraseRequest{Tenant: "acme", ErasureId: "e", Caller: mia()})
		want := &eventv1.Removed{Sessions: 8, Messages: 18, Runs: 6, Checkpoints: 6, States: 8, Calls: 2, UsageEntries: 6, FileLinks: 6, Files: 4, Memories: 6, Agents: 1}
		if !proto.Equal(removed, want) {
			t.Errorf("removed\n%v, want\n%v", removed, want)
		}
		if logs := b.finishLogs(); len(logs) != 1 || logs[0].GetTenant() != "acme" || logs[0].GetRootSessionId() != "" {
			t.Errorf("got live logs %v, want one for the tenant", logs)
		}
		if got := b.rows("acme"); len(got) != 0 {
			t.Errorf("rows are left: %v", got)
		}
		if err := b.store.Blobs.ReadBlob(t.Context(), session.FileKey{Tenant: "acme", FileID: file}, 0, 1, func([]byte) error { return nil }); fault.ReasonOf(err) != "BLOB_NOT_FOUND" {
			t.Errorf("got %v, want the bytes deleted", err)
		}
		if got := b.rows("other"); !maps.Equal(got, before) {
			t.Errorf("the other tenant has rows %v, want %v", got, before)
		}
		if _, _, err := b.readFile(&statev1.ReadFileRequest{Tenant: "other", FileId: theirs}); err != nil {
			t.Error(err)
		}
		b.expectErased(t, "tenant.erased tenant:acme")
		again := b.erase(&statev1.EraseRequest{Tenant: "acme", ErasureId: "again"})
		if !proto.Equal(again, &eventv1.Removed{}) {
			t.Errorf("a repetition removed %v", again)
		}
	})
}

// expectErased checks the entries of an erasure.
func (b *database) expectErased(t *testing.T, what string) {
	t.Helper()
	list := b.audited("acme")
	if len(list) < 2 || list[0] != what+" requested" || !strings.Contains(list[len(list)-1], `"done":true`) || !strings.Contains(list[1], `"sessions":`) {
		t.Errorf("got entries\n%s", strings.Join(list, "\n"))
	}
	for _, text := range b.ask(`SELECT detail FROM audit`) {
		if strings.Contains(text, "hello") || strings.Contains(text, "tea") {
			t.Errorf("an entry holds content: %s", text)
		}
	}
}

func TestNothingIsLeftOfAnErasedUser(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, b *database) {
		s := b.open("e1", 20)
		b.populate(s, "acme", "v", "t")
		before := b.rows("acme")
		file := b.populate(s, "acme", "u", "s")
		removed := b.erase(&statev1.EraseRequest{Tenant: "acme", UserId: "u", ErasureId: "e", Caller: mia()})
		want := &eventv1.Removed{Sessions: 4, Messages: 9, Runs: 3, Checkpoints: 3, States: 4, Calls: 1, UsageEntries: 3, FileLinks: 3, Files: 1, Memories: 3}
		if !proto.Equal(removed, want) {
			t.Errorf("removed\n%v, want\n%v", removed, want)
		}
		if logs := b.finishLogs(); len(logs) != 3 {
			t.Errorf("got live logs %v, want one for each family", logs)
		}
		b.advance(48 * time.Hour) // the uploads of the tenant expire
		b.sweepFiles()
		if _, _, err := b.readFile(&statev1.ReadFileRequest{Tenant: "acme", FileId: file}); fault.ReasonOf(err) != "FILE_NOT_FOUND" {
			t.Errorf("got %v, want the file deleted", err)
		}
		for _, table := range []string{"files", "file_links", "file_chunks"} {
			delete(before, table)
		}
		got := b.rows("acme")
		for _, table := range []string{"files", "file_links", "file_chunks"} {
			delete(got, table)
		}
		if !maps.Equal(got, before) {
			t.Errorf("got rows %v, want those of the other user: %v", got, before)
		}
		b.expectErased(t, "user.erased user:u")
	})
}

func TestAnErasureContinuesAfterACrashBetweenItsParts(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		for i := range eraseSessions + 10 {
			b.must(b.startFor(fmt.Sprint("s", i), "u"))
		}
		b.must(b.startFor("other", "v"))
		first, err := b.erasure.Erase(t.Context(), &statev1.EraseRequest{Tenant: "acme", UserId: "u", ErasureId: "e"})
		b.must(err)
		if first.GetDone() || first.GetRemoved().GetSessions() != eraseSessions || len(first.GetLogs()) != eraseSessions {
			t.Fatalf("got %d sessions, %d logs, done: %t; want a part", first.GetRemoved().GetSessions(), len(first.GetLogs()), first.GetDone())
		}
		// The gateway and the replica are gone, and the answer with them. The live logs are not lost.
		replica := b.replica()
		removed := b.eraseBy(func() (*statev1.EraseResponse, error) {
			return replica.erasure.Erase(t.Context(), &statev1.EraseRequest{Tenant: "acme", UserId: "u", ErasureId: "e2"})
		})
		if removed.GetSessions() != 10 {
			t.Errorf("removed %v, want the rest", removed)
		}
		if logs := b.finishLogs(); len(logs) != eraseSessions+10 {
			t.Errorf("got %d live logs, want all", len(logs))
		}
		if left := b.list(func(*statev1.ListSessionsRequest) {}); len(left.GetSessions()) != 1 || left.GetSessions()[0].GetSessionId() != "other" {
			t.Errorf("got %v, want the other user's session", left.GetSessions())
		}
	})
}

func TestTwoErasuresAtOnceRemoveEachSessionOnce(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		const sessions = 70
		for i := range sessions {
			b.must(b.startFor(fmt.Sprint("s", i), "u"))
		}
		var wg sync.WaitGroup
		removed := make([]*eventv1.Removed, 3)
		for i := range removed {
			wg.Go(func() {
				removed[i] = b.erase(&statev1.EraseRequest{Tenant: "acme", UserId: "u", ErasureId: fmt.Sprint("e", i)})
			})
		}
		wg.Wait()
		sum := &eventv1.Removed{}
		for _, part := range removed {
			addRemoved(sum, part)
		}
		if sum.GetSessions() != sessions || sum.GetMessages() != sessions {
			t.Errorf("removed %v, want each of %d once", sum, sessions)
		}
	})
}

func TestAnErasureIncludesAFamilyThatIsTooLargeForOneWrite(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.Family = 5 })
	b.announce()
	b.must(b.startFor("root", "u"))
	for i := range 12 {
		b.createChild("root", fmt.Sprint("child", i))
	}
	b.createChild("child0", "grandchild")
	_, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "root"})
	b.refuses(err, fault.Conflict, "FAMILY_TOO_LARGE")
	if removed := b.erase(&statev1.EraseRequest{Tenant: "acme", UserId: "u", ErasureId: "e"}); removed.GetSessions() != 14 {
		t.Errorf("removed %v, want 14 sessions", removed)
	}
}

func TestALiveRunLosesItsErasedSession(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.must(b.startFor("s", "u"))
		ref := refTo(s.execute())
		b.commit(step(ref, 1))
		b.erase(&statev1.EraseRequest{Tenant: "acme", UserId: "u", ErasureId: "e"})
		_, err := b.work.CommitStep(t.Context(), step(ref, 2))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.must(b.startFor("s", "u")) // a user under erasure is not blocked
		if got := b.get("s").GetSession().GetMessageCount(); got != 1 {
			t.Errorf("got %d messages, want those of a new session", got)
		}
	})
}

func TestALiveLogIsForgottenOnlyWhenItIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	b.must(b.startFor("s", "u"))
	b.createChild("s", "below")
	_, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "below"})
	b.must(err)
	_, err = b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s"})
	b.must(err)
	early, err := b.erasure.ListLogErasures(t.Context(), &statev1.ListLogErasuresRequest{Tenant: "acme"})
	b.must(err)
	_, err = b.erasure.FinishLogErasures(t.Context(), &statev1.FinishLogErasuresRequest{Logs: early.GetLogs()})
	b.must(err)
	var names []string
	for _, l := range b.finishLogs() {
		names = append(names, l.GetRootSessionId()+"/"+l.GetSessionId())
	}
	slices.Sort(names)
	if want := []string{"s/", "s/below"}; !slices.Equal(names, want) || len(early.GetLogs()) != 2 {
		t.Errorf("got %v, want %v", names, want)
	}
	if left := b.finishLogs(); len(left) != 0 {
		t.Errorf("got %v after they were finished", left)
	}
}
