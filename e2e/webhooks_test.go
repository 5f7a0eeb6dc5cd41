package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// toldRun is an accepted request of the receiver.
type toldRun struct{ id, kind, session, run string }

// toldRuns is the ledger of a receiver.
type toldRuns struct {
	mu  sync.Mutex
	all []toldRun
}

// inOrder returns the events without their repetitions, in the order of their first arrival. It fails for an id with two meanings.
func (l *toldRuns) inOrder(t *testing.T) (events []toldRun) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]toldRun{}
	for _, e := range l.all {
		if former, again := seen[e.id]; again {
			if former != e {
				t.Errorf("one id means %v and %v", former, e)
			}
			continue
		}
		seen[e.id] = e
		events = append(events, e)
	}
	return events
}

// receive starts a receiver that verifies each request. It is down for every seventh one.
func (l *toldRuns) receive(t *testing.T, secret string) *httptest.Server {
	t.Helper()
	parsed, err := webhook.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.Verifier{Secrets: []webhook.Secret{parsed}}.Verify(r.Header, body, time.Now())
		}
		var event struct {
			Type string
			Data struct {
				SessionID string
				Run       struct{ ID string }
			}
		}
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		requests++
		if err != nil {
			t.Errorf("the receiver got %s: %v", body, err)
		}
		if err != nil || requests%7 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		l.all = append(l.all, toldRun{r.Header.Get(webhook.IDHeader), event.Type, event.Data.SessionID, event.Data.Run.ID})
	}))
	t.Cleanup(server.Close)
	return server
}

// wait waits until the receiver was told that many events.
func (l *toldRuns) wait(t *testing.T, events int) {
	t.Helper()
	harness.WaitFor(t, chaosLimit, "events arrive", func() (bool, string) {
		got := len(l.inOrder(t))
		return got >= events, fmt.Sprintf("%d of %d events", got, events)
	})
}

func TestAReceiverIsToldEachRunWhateverDies(t *testing.T) {
	t.Parallel()
	const sessions, turns = 20, 5
	s := harness.Start(t, harness.Options{
		Agents: agents(), Executors: 2, ExecutorEnv: []string{"HOLDFAST_EXECUTOR_WEBHOOK_PRIVATE_HOSTS=127.0.0.1"},
	})
	outbox := statev1.NewOutboxServiceClient(callerWith(t, s, harness.InternalToken).state)
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	var ledger, other toldRuns
	for tenant, to := range map[string]*toldRuns{"first": &ledger, "other": &other} {
		_, err := outbox.PutSubscription(t.Context(), &statev1.PutSubscriptionRequest{Tenant: tenant, Subscription: &statev1.Subscription{
			Id: "w", Url: to.receive(t, secret).URL, Kinds: []string{"run.completed"}, Secrets: []string{secret},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), chaosLimit)
	defer cancel()
	var talking sync.WaitGroup
	for i := range sessions {
		talking.Go(func() {
			for turn := range turns {
				if _, err := s.Client.Converse(ctx, fmt.Sprintf("webhooks/%d", i), "talker", fmt.Sprintf("turn %d", turn)); err != nil {
					t.Errorf("session %d, turn %d: %v", i, turn, err)
					return
				}
			}
		})
	}
	victims := []*harness.Process{s.Executors[0], s.State, s.Executors[1], s.State, s.Executors[0], s.State}
	for i, victim := range victims { // each dies after a part of the events
		ledger.wait(t, (i+1)*sessions*turns/(len(victims)+2))
		victim.Restart()
	}
	talking.Wait()
	ledger.wait(t, sessions*turns)

	told := map[string][]string{} // the runs of each session, in the order in which the receiver was told
	for _, e := range ledger.inOrder(t) {
		told[e.session] = append(told[e.session], e.run)
	}
	runs := statev1.NewRunServiceClient(callerWith(t, s, harness.InternalToken).state)
	for i := range sessions {
		id := fmt.Sprintf("webhooks/%d", i)
		list, err := runs.ListRuns(t.Context(), &statev1.ListRunsRequest{Tenant: "first", SessionId: id, Limit: 200})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, r := range slices.Backward(list.GetRuns()) {
			if r.GetStatus() == statev1.RunStatus_RUN_STATUS_COMPLETED {
				want = append(want, r.GetRunId())
			}
		}
		if got := told[id]; !slices.Equal(got, want) {
			t.Errorf("%s: told the runs %v, want %v", id, got, want)
		}
	}
	if got := other.inOrder(t); len(got) != 0 {
		t.Errorf("another tenant was told %v", got)
	}
	t.Logf("%d requests were accepted for %d events", len(ledger.all), sessions*turns)
}
