// Package deliverer sends the deliveries of the outbox to the receivers of webhooks.
//
// It claims due deliveries from the state service, sends each as a signed POST, and reports. It keeps nothing: a delivery whose
// report is lost is claimed again, by this executor or another, and sent with the same webhook-id.
package deliverer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Config configures a Deliverer.
type Config struct {
	AtOnce  int           // deliveries in progress
	Timeout time.Duration // of one request, with its answer
	Grace   time.Duration // for the deliveries in progress at the end
	Policy  outbound.Policy
}

// Peers are the dependencies of a Deliverer; all but HTTP and Passed are set.
type Peers struct {
	ExecutorID string
	Outbox     statev1.OutboxServiceClient
	Log        *slog.Logger
	Now        func() time.Time
	HTTP       *http.Client // nil is a client of the policy
	// Passed is called at the points of an attempt, for tests that end the process there; it may be nil.
	Passed func(ctx context.Context, point string)
}

// The points of an attempt.
const (
	PointClaimed = "delivery-claimed"
	PointSent    = "delivery-sent"
)

// Times of the calls to the state service.
const (
	claimWait     = 20 * time.Second
	claimTimeout  = claimWait + 10*time.Second
	reportTimeout = 10 * time.Second
	pause         = time.Second      // after a failed call
	longPause     = 30 * time.Second // after a state service without an outbox
	claimMargin   = 5 * time.Second  // of a claim, for the report
)

const (
	maxClaims    = 200 // of a claim and of a report
	maxAnswer    = 64 << 10
	maxRetryWait = time.Hour
	perReceiver  = 64 // connections to one host
)

// Deliverer sends deliveries.
type Deliverer struct {
	config Config
	peers  Peers
	http   *http.Client
	slots  chan struct{}

	mu      sync.Mutex
	reports []*statev1.DeliveryReport
	pending chan struct{} // one token: there are reports
}

// New returns a deliverer that does nothing yet.
func New(c Config, p Peers) *Deliverer {
	d := &Deliverer{config: c, peers: p, slots: make(chan struct{}, c.AtOnce), pending: make(chan struct{}, 1)}
	if d.http = p.HTTP; d.http == nil {
		d.http = c.Policy.Direct(nil, perReceiver)
	}
	if d.peers.Passed == nil {
		d.peers.Passed = func(context.Context, string) {}
	}
	return d
}

// Run claims and sends deliveries until ctx ends. It then waits for those in progress, at most for the grace, and reports them.
func (d *Deliverer) Run(ctx context.Context) {
	live, end := context.WithCancel(context.WithoutCancel(ctx))
	reported, stopReports := context.WithCancel(context.WithoutCancel(ctx))
	var reporter, sends sync.WaitGroup
	reporter.Go(func() { d.report(reported) })
	for ctx.Err() == nil {
		claims := d.claim(ctx)
		for _, c := range claims {
			sends.Go(func() {
				defer func() { <-d.slots }()
				d.deliver(live, c)
			})
		}
	}
	grace := time.AfterFunc(d.config.Grace, end)
	sends.Wait()
	grace.Stop()
	end()
	stopReports()
	reporter.Wait()
	d.http.CloseIdleConnections()
}

// claim waits for free slots and for deliveries, and takes a slot for each. After a failure it pauses and returns none.
func (d *Deliverer) claim(ctx context.Context) []*statev1.DeliveryClaim {
	free := 0
	take := func() bool {
		select {
		case d.slots <- struct{}{}:
			free++
			return true
		default:
			return false
		}
	}
	select {
	case d.slots <- struct{}{}:
		free = 1
	case <-ctx.Done():
		return nil
	}
	for free < maxClaims && take() {
	}
	within, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	answer, err := d.peers.Outbox.ClaimDeliveries(within, &statev1.ClaimDeliveriesRequest{
		ExecutorId: d.peers.ExecutorID, Limit: int32(free), WaitMs: claimWait.Milliseconds(),
	})
	claims := answer.GetClaims()
	for range free - min(free, len(claims)) {
		<-d.slots
	}
	if err == nil || ctx.Err() != nil {
		return claims[:min(free, len(claims))]
	}
	wait := pause
	switch status.Code(err) {
	case codes.Unimplemented: // the state service of an earlier release
		wait = longPause
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
	default:
		d.peers.Log.WarnContext(ctx, "deliveries cannot be claimed", "error", err)
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return nil
}

// deliver sends one delivery and reports it.
func (d *Deliverer) deliver(ctx context.Context, c *statev1.DeliveryClaim) {
	d.peers.Passed(ctx, PointClaimed)
	report := &statev1.DeliveryReport{Tenant: c.GetTenant(), Number: c.GetNumber(), ClaimId: c.GetClaimId()}
	timeout := min(d.config.Timeout, time.Duration(c.GetTtlMs())*time.Millisecond-claimMargin)
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	retryAfter, err := d.send(within, c)
	if ctx.Err() != nil {
		return // its outcome is unknown: another executor sends it again
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the receiver did not answer within %v", timeout)
	}
	if err != nil {
		report.Error, report.RetryAfterMs = err.Error(), retryAfter.Milliseconds()
	}
	d.peers.Passed(ctx, PointSent)
	d.mu.Lock()
	d.reports = append(d.reports, report)
	d.mu.Unlock()
	select {
	case d.pending <- struct{}{}:
	default:
	}
}

// send posts a delivery. retryAfter is what the receiver asks for.
func (d *Deliverer) send(ctx context.Context, c *statev1.DeliveryClaim) (retryAfter time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.GetUrl(), bytes.NewReader(c.GetBody()))
	if err != nil {
		return 0, errors.New("the url cannot be requested")
	}
	var secrets []webhook.Secret
	for _, text := range c.GetSecrets() {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			return 0, err
		}
		secrets = append(secrets, secret)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Holdfast")
	webhook.Sign(request.Header, c.GetEventId(), d.peers.Now(), c.GetBody(), secrets...)
	response, err := d.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // nothing of it is needed
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return 0, nil
	}
	if seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 32); err == nil && seconds > 0 {
		retryAfter = min(time.Duration(seconds)*time.Second, maxRetryWait)
	}
	return retryAfter, fmt.Errorf("the receiver answered %d", response.StatusCode)
}

// report sends reports until ctx ends, and then the last ones once. Those that it cannot send are sent again by another claim.
func (d *Deliverer) report(ctx context.Context) {
	for ended := false; !ended; {
		select {
		case <-d.pending:
		case <-ctx.Done():
			ended = true
		}
		d.mu.Lock()
		reports := d.reports
		d.reports = nil
		d.mu.Unlock()
		for len(reports) > 0 {
			n := min(len(reports), maxClaims)
			d.reportSome(ctx, reports[:n], ended)
			reports = reports[n:]
		}
	}
}

// reportSome repeats a report until the claims are over, or once at the end.
func (d *Deliverer) reportSome(ctx context.Context, reports []*statev1.DeliveryReport, once bool) {
	request := &statev1.ReportDeliveriesRequest{ExecutorId: d.peers.ExecutorID, Reports: reports}
	for over := time.Now().Add(claimMargin); ; {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
		_, err := d.peers.Outbox.ReportDeliveries(within, request)
		cancel()
		if err == nil {
			return
		}
		if once || time.Now().After(over) {
			d.peers.Log.WarnContext(ctx, "sent deliveries cannot be reported and will be sent again", "deliveries", len(reports), "error", err)
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			once = true
		}
	}
}
