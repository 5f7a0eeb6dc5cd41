package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// auditExchanges are requests for the audit log and for erasures, which come last.
func auditExchanges() map[string][]exchange {
	return map[string][]exchange{
		"GET /audit": {
			{about: "the newest entries", path: "/audit", status: http.StatusOK},
			{about: "all conditions", path: "/audit?sessionId=any&actor=local&action=session.deleted&from=1&before=2&oldestFirst=true&limit=200", status: http.StatusOK},
			{about: "a larger page", path: "/audit?limit=201", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			{about: "another cursor", path: "/audit?cursor=x", status: http.StatusBadRequest, code: "CURSOR_INVALID"},
		},
		"GET /audit/export": {
			{about: "all entries", path: "/audit/export", status: http.StatusOK},
			{about: "no time", path: "/audit/export?from=yesterday", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			{about: "another cursor", path: "/audit/export?cursor=x", status: http.StatusBadRequest, code: "CURSOR_INVALID"},
		},
		"DELETE /users/{id}": {
			{about: "a user", path: "/users/nobody", status: http.StatusOK},
			{about: "a long id", path: "/users/" + longID, status: http.StatusBadRequest, code: "ID_INVALID"},
		},
		"DELETE /tenant": {{about: "the tenant", path: "/tenant", status: http.StatusOK}},
	}
}

// liveRecords returns the number of stored records in the live log of a family.
func liveRecords(t *testing.T, h *fixture, tenant, root string) (n int) {
	t.Helper()
	conn, err := rpc.Dial(h.Network, StreamAddress, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	read, err := streamv2.NewStreamServiceClient(conn).Read(t.Context(), &streamv2.ReadRequest{
		Stream: &streamv2.StreamRef{Tenant: tenant, RootSessionId: root, SessionId: root}, Family: true, StoredOnly: true,
	})
	for err == nil {
		var got *streamv2.ReadResponse
		if got, err = read.Recv(); err == nil {
			n += len(got.GetRecords().GetRecords())
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return n
}

func TestAnErasureRemovesLiveLogsAndSaysWhatItRemoved(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for id, user := range map[string]string{"mine": "mia", "gone": "mia", "other": "leo"} {
		if _, err := h.State.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "default", SessionId: id, AgentType: "demo", UserId: user}); err != nil {
			t.Fatal(err)
		}
		h.AwaitRun(t, "default", id, nil).Show(1, Started(), Text("One"))
		if liveRecords(t, h, "default", id) == 0 {
			t.Fatal("the live log is empty")
		}
	}
	deleted := answerJSON[erased](t, h, http.MethodDelete, "/sessions/gone")
	if deleted.Deleted != 1 || deleted.Removed["runs"] != 1 || liveRecords(t, h, "default", "gone") != 0 {
		t.Errorf("got %v, and %d live records", deleted, liveRecords(t, h, "default", "gone"))
	}
	user := answerJSON[erased](t, h, http.MethodDelete, "/users/mia")
	if !user.Done || user.Removed["sessions"] != 1 || liveRecords(t, h, "default", "mine") != 0 {
		t.Errorf("got %v, and %d live records", user, liveRecords(t, h, "default", "mine"))
	}
	if liveRecords(t, h, "default", "other") == 0 {
		t.Error("the live log of another user is gone")
	}
	all := answerJSON[erased](t, h, http.MethodDelete, "/tenant")
	if !all.Done || all.Removed["sessions"] != 1 || liveRecords(t, h, "default", "other") != 0 {
		t.Errorf("got %v", all)
	}
	log := answerJSON[struct {
		Events []struct{ Action, Outcome, Actor string }
	}](t, h, http.MethodGet, "/audit")
	var actions []string
	for _, e := range log.Events {
		if e.Actor != "local" {
			t.Errorf("got the actor %q", e.Actor)
		}
		actions = append(actions, e.Action+" "+e.Outcome)
	}
	slices.Sort(actions) // entries of one millisecond have no order
	if got, want := strings.Join(actions, ", "), "session.deleted done, tenant.erased done, tenant.erased done, tenant.erased requested, user.erased done, user.erased done, user.erased requested"; got != want {
		t.Errorf("got entries %s, want %s", got, want)
	}
}

// erased is the answer to a deletion or an erasure.
type erased struct {
	Deleted int
	Done    bool
	Removed map[string]int64
}

// answerJSON sends a request and decodes its answer.
func answerJSON[T any](t *testing.T, h *fixture, method, path string) (into T) {
	t.Helper()
	answer := h.request(t, method, path, "")
	body := text(t, answer)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: got %d %s", method, path, answer.StatusCode, body)
	}
	if err := json.Unmarshal([]byte(body), &into); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return into
}

func TestAnErasureThatRunsOutOfTimeSaysThatMoreIsLeft(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.ErasureTime = time.Nanosecond })
	for _, id := range []string{"a", "b"} {
		if _, err := h.State.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "default", SessionId: id, AgentType: "demo", UserId: "mia"}); err != nil {
			t.Fatal(err)
		}
	}
	calls, done := 0, false
	for ; !done && calls < 9; calls++ {
		done = answerJSON[erased](t, h, http.MethodDelete, "/users/mia").Done
	}
	if !done || calls < 2 {
		t.Errorf("done: %t after %d calls, want it after several", done, calls)
	}
}

func TestAnExportIsCompleteAndContinuesBehindACursor(t *testing.T) {
	t.Parallel()
	bubble(t, exportsAll)
}

func exportsAll(t *testing.T, w *World, client *http.Client) {
	conn, err := rpc.Dial(w.Network, StateAddress, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const count = 450
	for first := 0; first < count; first += 150 {
		var events []*statev1.TenantEvent
		for i := range 150 {
			events = append(events, &statev1.TenantEvent{Tenant: "default", Event: &eventv1.AuditEvent{
				Id: fmt.Sprintf("e%03d", first+i), Actor: "key:k", Action: "key.added", Outcome: "done", Detail: `{"a":1}`,
			}})
		}
		if _, err := statev1.NewAuditServiceClient(conn).RecordEvents(t.Context(), &statev1.RecordEventsRequest{Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	if body := bodyOf(t, client, "/audit/export"); body != "" {
		t.Fatalf("got %d bytes of entries that may still have others before them", len(body))
	}
	time.Sleep(time.Minute)
	lines := strings.Split(strings.TrimSpace(bodyOf(t, client, "/audit/export")), "\n")
	if len(lines) != count {
		t.Fatalf("got %d lines, want %d", len(lines), count)
	}
	var middle struct{ Cursor string }
	if err := json.Unmarshal([]byte(lines[299]), &middle); err != nil {
		t.Fatal(err)
	}
	rest := strings.TrimSpace(bodyOf(t, client, "/audit/export?cursor="+middle.Cursor))
	if rest != strings.Join(lines[300:], "\n") {
		t.Errorf("got %d bytes behind the cursor, want the last 150 lines", len(rest))
	}
}

// bodyOf returns the body of an answer.
func bodyOf(t *testing.T, client *http.Client, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %d %s, %v", path, answer.StatusCode, body, err)
	}
	return string(body)
}
