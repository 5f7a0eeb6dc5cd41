package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"math"
	mathrand "math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Webhooks bounds the subscriptions of tenants and the deliveries to them.
type Webhooks struct {
	RetryFor      time.Duration `env:"HOLDFAST_STATE_WEBHOOK_RETRY_FOR" envDefault:"72h" doc:"how long after its first attempt a delivery is retried before it is dead"`
	KeepDelivered time.Duration `env:"HOLDFAST_STATE_WEBHOOK_KEEP_DELIVERED" envDefault:"24h" doc:"how long a delivery is listed after its receiver has accepted it"`
	KeepDead      time.Duration `env:"HOLDFAST_STATE_WEBHOOK_KEEP_DEAD" envDefault:"720h" doc:"how long a dead delivery is listed and can be replayed"`
	AtOnce        int           `env:"HOLDFAST_STATE_WEBHOOK_CONCURRENCY" envDefault:"8" doc:"most deliveries to one webhook at the same time, over all executors"`
	PerTenant     int           `env:"HOLDFAST_STATE_MAX_WEBHOOKS" envDefault:"32" doc:"most webhooks of a tenant"`
	Undelivered   int           `env:"HOLDFAST_STATE_MAX_DELIVERIES" envDefault:"100000" doc:"most undelivered and dead deliveries of a webhook; the oldest above it are deleted"`
	ContentBytes  int           `env:"HOLDFAST_STATE_WEBHOOK_MAX_CONTENT_BYTES" envDefault:"262144" doc:"largest output of a run, or input of a call, in a delivery; a larger one is omitted"`
}

func (w Webhooks) retries() session.Retries {
	return session.Retries{
		For: session.Millis(w.RetryFor.Milliseconds()), KeepDelivered: session.Millis(w.KeepDelivered.Milliseconds()),
		KeepDead: session.Millis(w.KeepDead.Milliseconds()),
	}
}

// Bounds of the contract.
const (
	maxDeliveries  = 200 // of a claim and of a report
	maxClaimWait   = 30 * time.Second
	claimTTL       = time.Minute      // of an attempt
	claimPoll      = time.Second      // between two looks for deliveries of other replicas
	idlePoll       = 10 * time.Second // the same while no tenant has a subscription
	wakeFor        = time.Minute      // after a look that found subscriptions, events of this replica wake a claim
	expireAtOnce   = 1000
	maxURLBytes    = 2048
	maxAgentFilter = 64
)

// outboxService implements statev1.OutboxServiceServer.
type outboxService struct {
	statev1.UnimplementedOutboxServiceServer
	store  store.Store
	runner *runner
	config Webhooks
	clock  clock

	looking chan struct{} // one token: one claim at a time looks for deliveries
	woken   chan struct{} // one token: there may be due deliveries
	awake   atomic.Int64  // in milliseconds: until then, events wake a claim
}

func newOutboxService(s store.Store, r *runner, c Webhooks, clock clock) *outboxService {
	return &outboxService{store: s, runner: r, config: c, clock: clock, looking: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
}

func webhookInvalid(x *reader, format string, args ...any) {
	x.refuse("WEBHOOK_INVALID", format, args...)
}

// PutSubscription implements statev1.OutboxServiceServer.
func (s *outboxService) PutSubscription(ctx context.Context, r *statev1.PutSubscriptionRequest) (*statev1.PutSubscriptionResponse, error) {
	x := s.runner.read(r)
	tenant := x.id("tenant", r.GetTenant())
	sub := readSubscription(x, r.GetSubscription())
	sub.CreatedBy = x.by.Actor
	if r.GetRotateSecret() && len(sub.Secrets) > 0 {
		webhookInvalid(x, "rotate_secret makes a secret; give no secrets beside it")
	}
	if x.err != nil {
		return nil, x.err
	}
	before, err := s.store.Subscription(ctx, tenant, sub.ID)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, err
	}
	made := ""
	if before != nil {
		sub.CreatedAt, sub.CreatedBy = before.CreatedAt, before.CreatedBy
		if len(sub.Secrets) == 0 {
			sub.Secrets = before.Secrets
		}
	}
	if before == nil && len(sub.Secrets) == 0 || r.GetRotateSecret() {
		made = newSecret()
		sub.Secrets = append([]string{made}, sub.Secrets[:min(len(sub.Secrets), 1)]...)
	}
	detail := map[string]any{"kinds": len(sub.Kinds), "paused": sub.Paused}
	if err := s.record(ctx, tenant, x.by.Actor, session.ActionWebhookSet, sub.ID, detail); err != nil {
		return nil, err
	}
	if err := s.store.PutSubscription(ctx, tenant, sub, s.config.PerTenant); err != nil {
		return nil, err
	}
	s.stayAwake()
	s.wake()
	out := subscriptionOut(&sub)
	if made != "" {
		out.Secrets = []string{made}
	}
	return &statev1.PutSubscriptionResponse{Subscription: out, Created: before == nil}, nil
}

func newSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// readSubscription gives Invalid (WEBHOOK_INVALID, ID_INVALID, SECRET_INVALID).
func readSubscription(x *reader, w *statev1.Subscription) session.Subscription {
	sub := session.Subscription{
		ID: x.optionalID("id", w.GetId()), URL: w.GetUrl(), Agents: x.eachID("agents", w.GetAgents()), Secrets: w.GetSecrets(),
		Paused: w.GetPaused(), CreatedAt: x.now, UpdatedAt: x.now,
	}
	if sub.ID == "" {
		sub.ID = "wh_" + x.ids()
	}
	switch target, err := url.Parse(sub.URL); {
	case len(sub.URL) > maxURLBytes:
		webhookInvalid(x, "the url has %d bytes; at most %d are allowed", len(sub.URL), maxURLBytes)
	case err != nil || target.Hostname() == "" || target.Scheme != "https" && target.Scheme != "http":
		webhookInvalid(x, "the url must be https://HOST/PATH")
	case target.User != nil || target.Fragment != "":
		webhookInvalid(x, "the url must have no user and no fragment; deliveries are signed")
	}
	for _, kind := range w.GetKinds() {
		if !slices.Contains(session.EventKinds, session.EventKind(kind)) {
			webhookInvalid(x, "there is no kind %q; the kinds are %s", kind, kindNames())
		}
		sub.Kinds = append(sub.Kinds, session.EventKind(kind))
	}
	if n := len(sub.Agents); n > maxAgentFilter {
		webhookInvalid(x, "there are %d agents; give at most %d, or none for all", n, maxAgentFilter)
	}
	if n := len(sub.Secrets); n > 2 {
		webhookInvalid(x, "there are %d secrets; give one, or two while one replaces the other", n)
	}
	for _, secret := range sub.Secrets {
		if _, err := webhook.ParseSecret(secret); err != nil {
			x.fail(err)
		}
	}
	return sub
}

func kindNames() string {
	var names []string
	for _, kind := range session.EventKinds {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

// record writes an entry of the audit log, before the act.
func (s *outboxService) record(
	ctx context.Context, tenant, actor string, action session.AuditAction, id string, detail map[string]any,
) error {
	if actor == "" {
		return nil
	}
	return s.store.RecordAudit(ctx, tenant, []session.AuditEvent{{
		ID: newAuditID(), At: s.clock.millis(), Actor: actor, Action: action, TargetKind: "webhook", TargetID: id,
		Outcome: session.OutcomeDone, Detail: session.AuditDetail(detail),
	}})
}

// GetSubscription implements statev1.OutboxServiceServer.
func (s *outboxService) GetSubscription(ctx context.Context, r *statev1.GetSubscriptionRequest) (*statev1.GetSubscriptionResponse, error) {
	x := s.runner.read(r)
	tenant, id := x.id("tenant", r.GetTenant()), x.id("id", r.GetId())
	if x.err != nil {
		return nil, x.err
	}
	sub, err := s.store.Subscription(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	return &statev1.GetSubscriptionResponse{Subscription: subscriptionOut(sub)}, nil
}

// ListSubscriptions implements statev1.OutboxServiceServer.
func (s *outboxService) ListSubscriptions(
	ctx context.Context, r *statev1.ListSubscriptionsRequest,
) (*statev1.ListSubscriptionsResponse, error) {
	x := s.runner.read(r)
	tenant := x.id("tenant", r.GetTenant())
	if x.err != nil {
		return nil, x.err
	}
	all, err := s.store.Subscriptions(ctx, tenant)
	if err != nil {
		return nil, err
	}
	answer := &statev1.ListSubscriptionsResponse{}
	for i := range all {
		answer.Subscriptions = append(answer.Subscriptions, subscriptionOut(&all[i]))
	}
	return answer, nil
}

// DeleteSubscription implements statev1.OutboxServiceServer.
func (s *outboxService) DeleteSubscription(
	ctx context.Context, r *statev1.DeleteSubscriptionRequest,
) (*statev1.DeleteSubscriptionResponse, error) {
	x := s.runner.read(r)
	tenant, id := x.id("tenant", r.GetTenant()), x.id("id", r.GetId())
	if x.err != nil {
		return nil, x.err
	}
	if _, err := s.store.Subscription(ctx, tenant, id); err != nil {
		return nil, err
	}
	if err := s.record(ctx, tenant, x.by.Actor, session.ActionWebhookDeleted, id, nil); err != nil {
		return nil, err
	}
	known, err := s.store.DeleteSubscription(ctx, tenant, id)
	if err == nil && !known {
		err = store.SubscriptionNotFound(id)
	}
	if err != nil {
		return nil, err
	}
	return &statev1.DeleteSubscriptionResponse{}, nil
}

// TestSubscription implements statev1.OutboxServiceServer.
func (s *outboxService) TestSubscription(
	ctx context.Context, r *statev1.TestSubscriptionRequest,
) (*statev1.TestSubscriptionResponse, error) {
	x := s.runner.read(r)
	tenant, id := x.id("tenant", r.GetTenant()), x.id("id", r.GetId())
	if x.err != nil {
		return nil, x.err
	}
	e := session.Event{ID: newEventID(), Kind: session.EventTest, At: x.now}
	number, err := s.store.AddDelivery(ctx, tenant, id, e.ID, e) // in a session of its own, so that it waits for no other
	if err != nil {
		return nil, err
	}
	s.stayAwake()
	s.wake()
	return &statev1.TestSubscriptionResponse{Number: number, EventId: e.ID}, nil
}

// newEventID returns a unique id. A receiver takes an event with a known id for a repetition, so it is random for all kinds of ids
// of the service.
func newEventID() string { return "evt_" + strings.ToLower(rand.Text()) }

// ListDeliveries implements statev1.OutboxServiceServer.
func (s *outboxService) ListDeliveries(ctx context.Context, r *statev1.ListDeliveriesRequest) (*statev1.ListDeliveriesResponse, error) {
	x := s.runner.read(r)
	tenant, limit := x.id("tenant", r.GetTenant()), x.pageLimit(r.GetLimit())
	q := store.DeliveryQuery{
		SubscriptionID: x.optionalID("subscription_id", r.GetSubscriptionId()),
		Before:         number(x, "LIMIT_INVALID", "before", r.GetBefore(), math.MaxInt64, "give the number of a delivery, or 0"),
		Limit:          limit + 1,
	}
	var known bool
	if q.Status, known = deliveryStatuses[r.GetStatus()]; !known {
		webhookInvalid(x, "there is no status %d of a delivery", r.GetStatus())
	}
	if x.err != nil {
		return nil, x.err
	}
	rows, err := s.store.Deliveries(ctx, tenant, q)
	if err != nil {
		return nil, err
	}
	page, more := splitPage(rows, limit)
	answer := &statev1.ListDeliveriesResponse{HasMore: more}
	for i := range page {
		answer.Deliveries = append(answer.Deliveries, deliveryOut(&page[i]))
	}
	return answer, nil
}

// ReplayDeliveries implements statev1.OutboxServiceServer.
func (s *outboxService) ReplayDeliveries(
	ctx context.Context, r *statev1.ReplayDeliveriesRequest,
) (*statev1.ReplayDeliveriesResponse, error) {
	x := s.runner.read(r)
	tenant, id := x.id("tenant", r.GetTenant()), x.id("subscription_id", r.GetSubscriptionId())
	one := number(x, "WEBHOOK_INVALID", "number", r.GetNumber(), math.MaxInt64, "give the number of a delivery, or 0 for all dead ones")
	if x.err != nil {
		return nil, x.err
	}
	if _, err := s.store.Subscription(ctx, tenant, id); err != nil {
		return nil, err
	}
	if err := s.record(ctx, tenant, x.by.Actor, session.ActionWebhookReplayed, id, map[string]any{"number": one}); err != nil {
		return nil, err
	}
	replayed, err := s.store.Replay(ctx, tenant, id, one, x.now)
	if err == nil && one > 0 && replayed == 0 {
		err = fault.New(fault.NotFound, "DELIVERY_NOT_FOUND", "the webhook has no delivery %d that has ended", one)
	}
	if err != nil {
		return nil, err
	}
	s.stayAwake()
	s.wake()
	return &statev1.ReplayDeliveriesResponse{Replayed: replayed}, nil
}

// ClaimDeliveries implements statev1.OutboxServiceServer. Of the claims that wait at this replica, one at a time looks for
// deliveries, so waiting executors cost no more than one.
func (s *outboxService) ClaimDeliveries(ctx context.Context, r *statev1.ClaimDeliveriesRequest) (*statev1.ClaimDeliveriesResponse, error) {
	x := s.runner.read(r)
	executor := x.id("executor_id", r.GetExecutorId())
	limit := number(x, "LIMIT_INVALID", "limit", r.GetLimit(), maxDeliveries, "give 1 to 200")
	wait := number(x, "LIMIT_INVALID", "wait_ms", r.GetWaitMs(), maxClaimWait.Milliseconds(), "at most 30000")
	if x.err != nil {
		return nil, x.err
	}
	until := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer until.Stop()
	answer := &statev1.ClaimDeliveriesResponse{}
	select {
	case s.looking <- struct{}{}:
	default: // also a claim that does not wait takes a free token
		select {
		case s.looking <- struct{}{}:
		case <-until.C:
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-s.looking }()
	for {
		now := s.clock.millis()
		claimed, idle, err := s.store.ClaimDeliveries(ctx, store.DeliveryClaim{
			ExecutorID: executor, ClaimID: rand.Text(), Now: now, Until: now + session.Millis(claimTTL.Milliseconds()),
			Each: s.config.AtOnce, Limit: int(max(limit, 1)), MaxBytes: s.config.ContentBytes,
		})
		if err != nil {
			return nil, err
		}
		for i := range claimed {
			answer.Claims = append(answer.Claims, deliveryClaimOut(&claimed[i]))
		}
		if len(claimed) > 0 {
			s.stayAwake()
			s.wake() // for the next claim
			return answer, nil
		}
		pause := claimPoll
		if idle {
			pause = idlePoll
		} else {
			s.stayAwake()
		}
		select {
		case <-s.woken:
		case <-time.After(pause):
		case <-until.C:
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ReportDeliveries implements statev1.OutboxServiceServer.
func (s *outboxService) ReportDeliveries(
	ctx context.Context, r *statev1.ReportDeliveriesRequest,
) (*statev1.ReportDeliveriesResponse, error) {
	x := s.runner.read(r)
	x.id("executor_id", r.GetExecutorId())
	if n := len(r.GetReports()); n == 0 || n > maxDeliveries {
		x.refuse("LIMIT_INVALID", "there are %d reports; send 1 to %d", n, maxDeliveries)
	}
	refs := make([]store.DeliveryRef, len(r.GetReports()))
	reports := map[int64]*statev1.DeliveryReport{}
	for i, report := range r.GetReports() {
		refs[i] = store.DeliveryRef{
			Tenant: x.id("tenant", report.GetTenant()), Number: report.GetNumber(), ClaimID: x.id("claim_id", report.GetClaimId()),
		}
		reports[report.GetNumber()] = report
	}
	if x.err != nil {
		return nil, x.err
	}
	retries := s.config.retries()
	_, err := s.store.UpdateDeliveries(ctx, refs, x.now, func(d *session.Delivery) {
		report := reports[d.Number]
		if report.GetError() == "" {
			d.Delivered(retries, x.now)
			return
		}
		text := strings.ToValidUTF8(strings.ReplaceAll(report.GetError(), "\x00", ""), "")
		text = strings.ToValidUTF8(text[:min(len(text), session.MaxDeliveryError)], "")
		d.Failed(retries, x.now, text, session.Millis(max(report.GetRetryAfterMs(), 0)), mathrand.Float64()) //nolint:gosec // no secret
	})
	if err != nil {
		return nil, err
	}
	s.wake() // the next events of the same sessions are due
	return &statev1.ReportDeliveriesResponse{}, nil
}

// wake makes the waiting claim look now.
func (s *outboxService) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *outboxService) stayAwake() { s.awake.Store(int64(s.clock.millis()) + wakeFor.Milliseconds()) }

// told wakes a claim after events of this replica, unless nobody seems to be told. The claims poll anyway.
func (s *outboxService) told(changes []*session.Change) {
	if s.awake.Load() < int64(s.clock.millis()) {
		return
	}
	if slices.ContainsFunc(changes, func(c *session.Change) bool { return c != nil && len(c.Events) > 0 }) {
		s.wake()
	}
}

// expire deletes old deliveries.
func (s *outboxService) expire(ctx context.Context) error {
	for {
		expired, err := s.store.ExpireDeliveries(ctx, s.clock.millis(), s.config.Undelivered, expireAtOnce)
		if err != nil || expired < expireAtOnce {
			return err
		}
	}
}
