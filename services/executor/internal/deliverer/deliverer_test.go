package deliverer_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/deliverer"
	"github.com/holdfast-run/holdfast/services/state"
)

// receivers answer requests by the host of their URL, and keep a ledger.
type receivers struct {
	mu      sync.Mutex
	answer  map[string]func(r *http.Request, body []byte) int // the status
	ledger  map[string][]string                               // the webhook-ids of accepted requests, by host
	session map[string][]string                               // the sessions of these
}

// RoundTrip implements http.RoundTripper.
func (r *receivers) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	host := request.URL.Host
	status := http.StatusNoContent
	if answer := r.answer[host]; answer != nil {
		status = answer(request, body)
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	var event struct{ Data struct{ SessionID string } }
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	if status < 300 {
		r.mu.Lock()
		r.ledger[host] = append(r.ledger[host], request.Header.Get(webhook.IDHeader))
		r.session[host] = append(r.session[host], event.Data.SessionID)
		r.mu.Unlock()
	}
	recorder := httptest.NewRecorder()
	recorder.WriteHeader(status)
	return recorder.Result(), nil
}

func (r *receivers) accepted(host string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ledger[host])
}

// system is a state service in memory, and executors that deliver. It needs a bubble.
type system struct {
	*testing.T
	*receivers
	conn   *grpc.ClientConn
	outbox statev1.OutboxServiceClient
	stop   func() // ends the deliverer
}

// seldom makes the rest of the state service idle through hours.
var seldom = []string{"HOLDFAST_STATE_SWEEP_EVERY=1h", "HOLDFAST_STATE_SILENT_AFTER=99h", "HOLDFAST_STATE_EXPIRE_EVERY=99h"}

func newSystem(t *testing.T, environ ...string) *system {
	t.Helper()
	var c state.Config
	if err := config.Load(&c, append(environ, "HOLDFAST_STATE_STORE=memory")); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	service, err := state.New(t.Context(), c, state.Peers{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	network := rpc.NewMemory()
	server, err := rpc.NewServer(rpc.ServerConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	service.Register(server)
	listener, err := network.Listen(t.Context(), "state")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rpc.Dial(network, "state", rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = service.Run(running) })
	all.Go(func() { _ = rpc.Serve(running, server, listener, time.Second) })
	s := &system{T: t, conn: conn, outbox: statev1.NewOutboxServiceClient(conn), receivers: &receivers{
		answer: map[string]func(*http.Request, []byte) int{}, ledger: map[string][]string{}, session: map[string][]string{},
	}}
	s.start("executor-1")
	t.Cleanup(func() {
		s.stop()
		end()
		all.Wait()
		if err := service.Close(); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
	return s
}

// start registers an executor, keeps it alive, and delivers.
func (s *system) start(id string) {
	s.Helper()
	work := statev1.NewWorkServiceClient(s.conn)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := work.ClaimRuns(ctx)
	if err != nil {
		s.Fatal(err)
	}
	if err := stream.Send(&statev1.ClaimRunsRequest{ExecutorId: id, Agents: []*statev1.Agent{{AgentType: "support"}}}); err != nil {
		s.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-tick.C:
				_, _ = work.Heartbeat(ctx, &statev1.HeartbeatRequest{ExecutorId: id})
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
	d := deliverer.New(deliverer.Config{AtOnce: 16, Timeout: 15 * time.Second, Grace: 5 * time.Second}, deliverer.Peers{
		ExecutorID: id, Outbox: s.outbox, Log: slog.New(slog.DiscardHandler), Now: time.Now, HTTP: &http.Client{Transport: s.receivers},
	})
	all.Go(func() { d.Run(ctx) })
	s.stop = func() { cancel(); all.Wait() }
}

func (s *system) subscribe(tenant, host string, secrets ...string) {
	s.Helper()
	_, err := s.outbox.PutSubscription(s.Context(), &statev1.PutSubscriptionRequest{
		Tenant: tenant, Subscription: &statev1.Subscription{Id: host, Url: "https://" + host + "/hooks", Secrets: secrets},
	})
	if err != nil {
		s.Fatal(err)
	}
}

// happen makes one event in a session: its deletion.
func (s *system) happen(tenant, session string) {
	s.Helper()
	sessions := statev1.NewSessionServiceClient(s.conn)
	if _, err := sessions.CreateSession(s.Context(), &statev1.CreateSessionRequest{Tenant: tenant, SessionId: session, AgentType: "support"}); err != nil {
		s.Fatal(err)
	}
	if _, err := sessions.DeleteSession(s.Context(), &statev1.DeleteSessionRequest{Tenant: tenant, SessionId: session}); err != nil {
		s.Fatal(err)
	}
}

func (s *system) list(tenant string, status statev1.DeliveryStatus) []*statev1.Delivery {
	s.Helper()
	list, err := s.outbox.ListDeliveries(s.Context(), &statev1.ListDeliveriesRequest{Tenant: tenant, Status: status, Limit: 200})
	if err != nil {
		s.Fatal(err)
	}
	return list.GetDeliveries()
}

func secret(n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%032d", n))
}

func TestAReceiverThatIsDownForAnHourMissesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, seldom...)
		up := time.Now().Add(time.Hour)
		attempts := map[string]int{}
		var mu sync.Mutex
		s.answer["down"] = func(r *http.Request, _ []byte) int {
			mu.Lock()
			defer mu.Unlock()
			attempts[r.Header.Get(webhook.IDHeader)]++
			if time.Now().Before(up) {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}
		s.subscribe("acme", "down")
		s.subscribe("other", "elsewhere")
		for i := range 20 {
			s.happen("acme", fmt.Sprint("s", i%5)) // four events of each session
			time.Sleep(2 * time.Minute)
		}
		numbers := map[string]int64{}
		for _, d := range s.list("acme", statev1.DeliveryStatus_DELIVERY_STATUS_PENDING) {
			numbers[d.GetEventId()] = d.GetNumber()
		}
		time.Sleep(2 * time.Hour)
		got := s.accepted("down")
		if len(got) != 20 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 20 {
			t.Errorf("the receiver accepted %d events, want 20, each once", len(got))
		}
		for id, n := range attempts {
			if n > 15 {
				t.Errorf("%s was tried %d times in two hours; the pauses must grow", id, n)
			}
		}
		last := map[string]int64{}
		for i, id := range got {
			session := s.session["down"][i]
			if numbers[id] <= last[session] {
				t.Errorf("event %d of %s came after %d", numbers[id], session, last[session])
			}
			last[session] = numbers[id]
		}
		if got := s.accepted("elsewhere"); len(got) != 0 {
			t.Errorf("another tenant was told %v", got)
		}
	})
}

func TestASlowReceiverDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		s.answer["slow"] = func(r *http.Request, _ []byte) int { <-r.Context().Done(); return 0 }
		s.subscribe("acme", "slow")
		s.subscribe("acme", "fast")
		for i := range 100 {
			s.happen("acme", fmt.Sprint("s", i))
		}
		time.Sleep(10 * time.Second) // less than one attempt at the slow one
		if got := s.accepted("fast"); len(got) != 100 {
			t.Errorf("the fast receiver has %d events, want all 100", len(got))
		}
		time.Sleep(10 * time.Second)
		failed := slices.DeleteFunc(s.list("acme", statev1.DeliveryStatus_DELIVERY_STATUS_PENDING), func(d *statev1.Delivery) bool {
			return !strings.Contains(d.GetError(), "did not answer within 15s")
		})
		if len(failed) != 8 {
			t.Errorf("%d attempts at the slow receiver have ended, want those that may run at once, 8", len(failed))
		}
	})
}

func TestADeliveryIsDeadAfterItsTimeAndReplayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, append(seldom, "HOLDFAST_STATE_WEBHOOK_RETRY_FOR=20m")...)
		up := false
		s.answer["down"] = func(*http.Request, []byte) int {
			if up {
				return http.StatusOK
			}
			return http.StatusInternalServerError
		}
		s.subscribe("acme", "down")
		s.happen("acme", "s")
		s.happen("acme", "s")
		time.Sleep(6 * time.Minute)
		if dead := s.list("acme", statev1.DeliveryStatus_DELIVERY_STATUS_DEAD); len(dead) != 0 {
			t.Errorf("got dead deliveries %v before their time", dead)
		}
		time.Sleep(15 * time.Minute)
		if dead := s.list("acme", statev1.DeliveryStatus_DELIVERY_STATUS_DEAD); len(dead) != 1 || dead[0].GetError() != "the receiver answered 500" {
			t.Errorf("got dead deliveries %v, want the first of the session: the next begins its time after it", dead)
		}
		time.Sleep(30 * time.Minute)
		if dead := s.list("acme", statev1.DeliveryStatus_DELIVERY_STATUS_DEAD); len(dead) != 2 {
			t.Errorf("got dead deliveries %v, want both", dead)
		}
		up = true
		if _, err := s.outbox.ReplayDeliveries(t.Context(), &statev1.ReplayDeliveriesRequest{Tenant: "acme", SubscriptionId: "down"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := s.accepted("down"); len(got) != 2 {
			t.Errorf("got %v after the replay, want both", got)
		}
	})
}

func TestADeliveryIsSignedWithBothSecrets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		verified := map[int]error{}
		s.answer["hooks"] = func(r *http.Request, body []byte) int {
			for n := range 3 {
				parsed, err := webhook.ParseSecret(secret(n))
				if err != nil {
					t.Error(err)
				}
				verified[n] = webhook.Verifier{Secrets: []webhook.Secret{parsed}}.Verify(r.Header, body, time.Now())
			}
			return http.StatusOK
		}
		s.subscribe("acme", "hooks", secret(1), secret(0))
		if _, err := s.outbox.TestSubscription(t.Context(), &statev1.TestSubscriptionRequest{Tenant: "acme", Id: "hooks"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if len(verified) != 3 || verified[0] != nil || verified[1] != nil || verified[2] == nil {
			t.Errorf("got %v, want the first two secrets to fit", verified)
		}
	})
}

func TestAnExecutorThatEndsLeavesItsDeliveriesToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		hang := true
		s.answer["hooks"] = func(r *http.Request, _ []byte) int {
			if hang {
				<-r.Context().Done()
			}
			return http.StatusOK
		}
		s.subscribe("acme", "hooks")
		s.happen("acme", "s")
		time.Sleep(2 * time.Second)
		s.stop()
		hang = false
		s.start("executor-2")
		time.Sleep(10 * time.Second) // far less than the time of a claim
		if got := s.accepted("hooks"); len(got) != 1 {
			t.Errorf("got %v, want the event from the second executor", got)
		}
	})
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a private address was reached") }))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(host, ":")
	public := outbound.Policy{Public: true, PrivateVariable: "PRIVATE"}.Direct(nil, 1)
	for _, url := range []string{
		"https://" + host, "https://localhost:" + port, "https://[::1]:" + port, "https://169.254.169.254", "https://10.0.0.1", "https://[::ffff:127.0.0.1]:" + port,
		"http://" + host, "http://receiver.example",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := public.Do(request)
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%s was reached", url)
		} else if text := err.Error(); !strings.Contains(text, "private address") && !strings.Contains(text, "needs https") {
			t.Errorf("%s: got %v, want the rule", url, err)
		}
	}
}
