package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

const receiver = "https://receiver.example/hooks"

// subscribe adds a subscription to a tenant's events.
func (b *bench) subscribe(tenant, id string, change ...func(*statev1.Subscription)) *statev1.PutSubscriptionResponse {
	b.Helper()
	sub := &statev1.Subscription{Id: id, Url: receiver}
	for _, c := range change {
		c(sub)
	}
	put, err := b.outbox.PutSubscription(b.Context(), &statev1.PutSubscriptionRequest{Tenant: tenant, Subscription: sub, Caller: caller("user:admin")})
	b.must(err)
	return put
}

func caller(actor string) *statev1.Caller { return &statev1.Caller{Actor: actor} }

// body is a payload as a receiver reads it.
type body struct {
	Type      string
	Timestamp time.Time
	Version   int
	Data      struct {
		SessionID, Agent, UserID string
		Metadata                 map[string]string
		Deleted                  bool
		Run                      *struct {
			ID, Status, CompletionReason string
			Output                       any
			OutputOmitted                bool
			Failure                      *struct{ Error string }
		}
		Call *struct {
			ID, RunID, ToolName, Kind, Answer string
			Input                             any
		}
	}
}

func (b *bench) claimDeliveries(executor string) []*statev1.DeliveryClaim {
	b.Helper()
	claimed, err := b.outbox.ClaimDeliveries(b.Context(), &statev1.ClaimDeliveriesRequest{ExecutorId: executor, Limit: 200})
	b.must(err)
	return claimed.GetClaims()
}

// deliver claims and reports all due deliveries, and returns their bodies in the order of their attempts.
func (b *bench) deliver(executor string) (all []body) {
	b.Helper()
	for claims := b.claimDeliveries(executor); len(claims) > 0; claims = b.claimDeliveries(executor) {
		report := &statev1.ReportDeliveriesRequest{ExecutorId: executor}
		for _, c := range claims {
			var got body
			b.must(json.Unmarshal(c.GetBody(), &got))
			all = append(all, got)
			report.Reports = append(report.Reports, &statev1.DeliveryReport{Tenant: c.GetTenant(), Number: c.GetNumber(), ClaimId: c.GetClaimId()})
		}
		_, err := b.outbox.ReportDeliveries(b.Context(), report)
		b.must(err)
	}
	return all
}

func kindsOf(bodies []body) (kinds []string) {
	for _, got := range bodies {
		kinds = append(kinds, got.Type)
	}
	return kinds
}

func TestSubscribersAreToldWhatHappensToASession(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.subscribe("acme", "all")
		b.subscribe("acme", "ends", func(s *statev1.Subscription) { s.Kinds = []string{"run.completed"}; s.Agents = []string{"support"} })
		b.subscribe("acme", "elsewhere", func(s *statev1.Subscription) { s.Agents = []string{"sales"} })
		b.subscribe("other", "all")
		s := b.open("e1", 10)
		first := s.suspend("s", "c1", "c2")
		b.submit("s", "c2", result(`{"n":2}`))
		b.submit("s", "c1", result(`1`))
		claim := s.execute()
		commit := endingStep(refTo(claim), 2, completed)
		commit.Outcome.Output = `{"done":true}`
		commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: "c1", Revision: 1}, {ToolCallId: "c2", Revision: 1}}
		b.commit(commit)
		if again, err := b.work.CommitStep(t.Context(), commit); err != nil { // is not told twice
			t.Fatal(again, err)
		}
		told := b.deliver("e1")
		want := []string{"call.pending", "call.pending", "run.suspended", "call.answered", "call.answered", "run.completed", "run.completed"}
		if got := slices.Sorted(slices.Values(kindsOf(told))); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Fatalf("told %v, want %v", got, want)
		}
		told = slices.DeleteFunc(told, func(e body) bool { return e.Type == "run.completed" })
		if got := kindsOf(told); !slices.Equal(got, want[:5]) {
			t.Errorf("told %v, want the order %v", got, want[:5])
		}
		pending, answered := told[0], told[3]
		if c := pending.Data.Call; c == nil || c.ID != "c1" || c.RunID != first.GetRunId() || c.ToolName == "" || fmt.Sprint(c.Input) != "map[q:1]" || c.Answer != "" ||
			pending.Version != 1 || pending.Data.SessionID != "s" || pending.Data.Agent != "support" || pending.Timestamp.IsZero() {
			t.Errorf("got %+v of a pending call", pending)
		}
		if c := answered.Data.Call; c == nil || c.ID != "c2" || c.Answer != "client" {
			t.Errorf("got %+v of an answered call", answered)
		}
		_, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s"})
		b.must(err)
		if told := b.deliver("e1"); len(told) != 1 || told[0].Type != "session.deleted" || !told[0].Data.Deleted || told[0].Data.Run != nil {
			t.Errorf("told %+v of a deletion", told)
		}
	})
}

func TestAnEndedRunIsToldWithItsOutcome(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Webhooks.ContentBytes = 20 })
	s := b.open("e1", 10)
	b.subscribe("acme", "all")
	for i, end := range []struct {
		status statev1.RunStatus
		output string
	}{{completed, `{"twelve":12}`}, {completed, `{"far":"too long for the limit"}`}, {failed, ""}} {
		id := fmt.Sprint("s", i)
		b.queue(id)
		commit := endingStep(refTo(s.execute()), 1, end.status)
		commit.Outcome.Output = end.output
		if end.status == failed {
			commit.Outcome.Failure = &statev1.Failure{Error: "broken"}
		}
		b.commit(commit)
	}
	told := b.deliver("e1")
	if len(told) != 3 {
		t.Fatalf("told %+v, want three ends", told)
	}
	whole, long, broken := told[0].Data.Run, told[1].Data.Run, told[2].Data.Run
	if fmt.Sprint(whole.Output) != "map[twelve:12]" || whole.OutputOmitted || whole.Status != "completed" {
		t.Errorf("got %+v", whole)
	}
	if long.Output != nil || !long.OutputOmitted {
		t.Errorf("got %+v, want the output omitted", long)
	}
	if told[2].Type != "run.failed" || broken.Failure == nil || broken.Failure.Error != "broken" {
		t.Errorf("got %+v", told[2])
	}
}

func TestASubscriptionIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Webhooks.PerTenant = 1 })
	long := "https://a.example/" + strings.Repeat("x", maxURLBytes)
	for _, test := range []struct {
		change func(*statev1.PutSubscriptionRequest)
		reason string
	}{
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Url = "" }, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Url = "ftp://a.example" }, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Url = "https://user:pass@a.example" }, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Url = long }, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Kinds = []string{"run.exploded"} }, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Agents = slices.Repeat([]string{"a"}, 65) }, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Secrets = []string{"short"} }, "SECRET_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) {
			r.Subscription.Secrets = []string{newSecret(), newSecret(), newSecret()}
		}, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) {
			r.Subscription.Secrets, r.RotateSecret = []string{newSecret()}, true
		}, "WEBHOOK_INVALID"},
		{func(r *statev1.PutSubscriptionRequest) { r.Subscription.Id = "\x01" }, "ID_INVALID"},
	} {
		r := &statev1.PutSubscriptionRequest{Tenant: "acme", Subscription: &statev1.Subscription{Id: "w", Url: receiver}}
		test.change(r)
		_, err := b.outbox.PutSubscription(t.Context(), r)
		b.refuses(err, fault.Invalid, test.reason)
	}
	b.subscribe("acme", "w", func(s *statev1.Subscription) { s.Url = long[:maxURLBytes]; s.Agents = slices.Repeat([]string{"a"}, 64) })
	_, err := b.outbox.PutSubscription(t.Context(), &statev1.PutSubscriptionRequest{Tenant: "acme", Subscription: &statev1.Subscription{Url: receiver}})
	b.refuses(err, fault.Exhausted, "SUBSCRIPTIONS_FULL")
	_, err = b.outbox.TestSubscription(t.Context(), &statev1.TestSubscriptionRequest{Tenant: "other", Id: "w"})
	b.refuses(err, fault.NotFound, "SUBSCRIPTION_NOT_FOUND")
	_, err = b.outbox.ReplayDeliveries(t.Context(), &statev1.ReplayDeliveriesRequest{Tenant: "acme", SubscriptionId: "w", Number: 5})
	b.refuses(err, fault.NotFound, "DELIVERY_NOT_FOUND")
	_, err = b.outbox.ListDeliveries(t.Context(), &statev1.ListDeliveriesRequest{Tenant: "acme", Status: 9})
	b.refuses(err, fault.Invalid, "WEBHOOK_INVALID")
	_, err = b.outbox.ClaimDeliveries(t.Context(), &statev1.ClaimDeliveriesRequest{ExecutorId: "e", Limit: 201})
	b.refuses(err, fault.Invalid, "LIMIT_INVALID")
}

func TestASecretIsShownOnceAndRotated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open("e1", 1)
	first := b.subscribe("acme", "w")
	if !first.GetCreated() || len(first.GetSubscription().GetSecrets()) != 1 {
		t.Fatalf("got %v, want a new secret", first)
	}
	again := b.subscribe("acme", "w", func(s *statev1.Subscription) { s.Kinds = []string{"run.failed"} })
	if again.GetCreated() || len(again.GetSubscription().GetSecrets()) != 0 {
		t.Errorf("got %v, want no secret", again)
	}
	rotated, err := b.outbox.PutSubscription(t.Context(), &statev1.PutSubscriptionRequest{
		Tenant: "acme", Subscription: &statev1.Subscription{Id: "w", Url: receiver}, RotateSecret: true, Caller: caller("user:admin"),
	})
	b.must(err)
	_, err = b.outbox.TestSubscription(t.Context(), &statev1.TestSubscriptionRequest{Tenant: "acme", Id: "w"})
	b.must(err)
	claims := b.claimDeliveries("e1")
	want := slices.Concat(rotated.GetSubscription().GetSecrets(), first.GetSubscription().GetSecrets())
	if len(claims) != 1 || !slices.Equal(claims[0].GetSecrets(), want) || len(want) != 2 {
		t.Errorf("got %v, want a test with the new secret and the former one", claims)
	}
	for _, list := range [][]*statev1.Subscription{b.subscriptions("acme"), {b.subscription("acme", "w")}} {
		if len(list) != 1 || len(list[0].GetSecrets()) != 0 || list[0].GetCreatedBy() != "user:admin" {
			t.Errorf("got %v, want it without secrets", list)
		}
	}
	_, err = b.outbox.DeleteSubscription(t.Context(), &statev1.DeleteSubscriptionRequest{Tenant: "acme", Id: "w", Caller: caller("user:admin")})
	b.must(err)
	_, err = b.outbox.DeleteSubscription(t.Context(), &statev1.DeleteSubscriptionRequest{Tenant: "acme", Id: "w"})
	b.refuses(err, fault.NotFound, "SUBSCRIPTION_NOT_FOUND")
	list, err := b.audit.ListEvents(t.Context(), &statev1.ListEventsRequest{Tenant: "acme", Limit: 200})
	b.must(err)
	var acts []string
	for _, e := range list.GetEvents() {
		acts = append(acts, e.GetActor()+" "+e.GetAction()+" "+e.GetTargetKind()+" "+e.GetTargetId())
	}
	const set, deleted = "user:admin webhook.set webhook w", "user:admin webhook.deleted webhook w"
	if want := []string{deleted, set, set, set}; !slices.Equal(acts, want) {
		t.Errorf("audited %v, want %v", acts, want)
	}
}

func (b *bench) subscriptions(tenant string) []*statev1.Subscription {
	b.Helper()
	list, err := b.outbox.ListSubscriptions(b.Context(), &statev1.ListSubscriptionsRequest{Tenant: tenant})
	b.must(err)
	return list.GetSubscriptions()
}

func (b *bench) subscription(tenant, id string) *statev1.Subscription {
	b.Helper()
	got, err := b.outbox.GetSubscription(b.Context(), &statev1.GetSubscriptionRequest{Tenant: tenant, Id: id})
	b.must(err)
	return got.GetSubscription()
}

func TestAWaitingClaimGetsTheNextEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open("e1", 1)
	b.subscribe("acme", "w")
	b.create("s")
	claimed := make(chan []*statev1.DeliveryClaim, 1)
	go func() {
		got, err := b.outbox.ClaimDeliveries(t.Context(), &statev1.ClaimDeliveriesRequest{ExecutorId: "e1", Limit: 1, WaitMs: maxClaimWait.Milliseconds()})
		if err != nil {
			t.Error(err)
		}
		claimed <- got.GetClaims()
	}()
	_, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s"})
	b.must(err)
	if got := <-claimed; len(got) != 1 || got[0].GetUrl() != receiver {
		t.Errorf("got %v, want the deletion", got)
	}
}

func TestAnErasedTenantHasNoWebhooks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open("e1", 1)
	for _, tenant := range []string{"acme", "other"} {
		b.subscribe(tenant, "w")
	}
	b.create("s")
	b.erase(&statev1.EraseRequest{Tenant: "acme", ErasureId: "x"})
	if got := b.subscriptions("acme"); len(got) != 0 {
		t.Errorf("got %v after the erasure", got)
	}
	if got := b.claimDeliveries("e1"); len(got) != 0 {
		t.Errorf("got deliveries %v after the erasure", got)
	}
	if got := b.subscriptions("other"); len(got) != 1 {
		t.Errorf("got %v of another tenant", got)
	}
}

func TestDeliveriesAreListedAndReplayed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open("e1", 1)
	b.subscribe("acme", "w")
	test, err := b.outbox.TestSubscription(t.Context(), &statev1.TestSubscriptionRequest{Tenant: "acme", Id: "w"})
	b.must(err)
	fail := func() {
		t.Helper()
		claims := b.claimDeliveries("e1")
		if len(claims) != 1 || claims[0].GetEventId() != test.GetEventId() {
			t.Fatalf("got %v, want the test", claims)
		}
		_, err := b.outbox.ReportDeliveries(t.Context(), &statev1.ReportDeliveriesRequest{ExecutorId: "e1", Reports: []*statev1.DeliveryReport{{
			Tenant: "acme", Number: claims[0].GetNumber(), ClaimId: claims[0].GetClaimId(), Error: strings.Repeat("é", session.MaxDeliveryError),
		}}})
		b.must(err)
	}
	listed := func(status statev1.DeliveryStatus) []*statev1.Delivery {
		t.Helper()
		list, err := b.outbox.ListDeliveries(t.Context(), &statev1.ListDeliveriesRequest{Tenant: "acme", SubscriptionId: "w", Status: status})
		b.must(err)
		return list.GetDeliveries()
	}
	fail()
	b.advance(80 * time.Hour) // beyond the time for retries
	fail()
	dead := listed(statev1.DeliveryStatus_DELIVERY_STATUS_DEAD)
	if len(dead) != 1 || dead[0].GetAttempts() != 2 || len(dead[0].GetError()) != session.MaxDeliveryError || dead[0].GetSessionId() != "" {
		t.Fatalf("got %v, want the dead test", dead)
	}
	replayed, err := b.outbox.ReplayDeliveries(t.Context(), &statev1.ReplayDeliveriesRequest{Tenant: "acme", SubscriptionId: "w"})
	b.must(err)
	if replayed.GetReplayed() != 1 || len(b.deliver("e1")) != 1 || len(listed(statev1.DeliveryStatus_DELIVERY_STATUS_DELIVERED)) != 1 {
		t.Errorf("got %v, want the test delivered", replayed)
	}
	b.advance(25 * time.Hour)
	b.must(b.server.ExpireDeliveries(t.Context()))
	if got := listed(0); len(got) != 0 {
		t.Errorf("got %v, want none after a day", got)
	}
}
