// Package audit reports to the audit log what only gateways know, such as refused credentials, and exports
// the log.
//
// A change of a session is not reported here: the state service writes its entry with the change.
//
// Requests only count in memory, and Run sends in the background. So a flood of refusals neither slows requests
// nor fills the log: a gateway writes one entry for each caller, action and minute, and of each tenant at most
// MaxRefusals and MaxEvents of them. It counts what is beyond them and reports the number to the tenant. Added and removed
// keys are never left out: only the operator's file brings them about. Refused credentials of no tenant have limits of their own.
// What is not yet sent is lost when the process is killed.
package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// The most entries of a gateway for each tenant and minute.
const (
	MaxRefusals = 100
	MaxEvents   = 1000
)

const (
	sendEvery = time.Second
	window    = time.Minute     // of one entry for refusals
	lastSend  = 5 * time.Second // for what is left at shutdown
	batch     = 200             // events of a request
	maxText   = 256             // bytes of an id
)

// Reporter implements auth.Auditor. All fields must be set.
type Reporter struct {
	State statev1.AuditServiceClient // of a connection without callers
	Now   func() time.Time
	NewID func() string
	Log   *slog.Logger

	mu      sync.Mutex
	minute  int64 // of the counts
	counts  map[bucket]int
	open    map[entry]*statev1.TenantEvent // refusals of this minute
	numbers map[entry]int64
	ready   []*statev1.TenantEvent
	dropped map[string]int64 // by tenant
}

var _ auth.Auditor = (*Reporter)(nil)

// entry names what one entry stands for.
type entry struct{ tenant, action, actor, target string }

// bucket is what shares a limit.
type bucket struct {
	tenant  string
	refusal bool
}

func isRefusal(action string) bool {
	switch action {
	case auth.CredentialRefused, auth.ScopeMissing, auth.ActionDenied, auth.EntryRefused:
		return true
	default:
		return false
	}
}

// isUnlimited reports an act of the operator. Clients cannot cause such acts.
func isUnlimited(action string) bool { return action == auth.KeyAdded || action == auth.KeyRemoved }

// Record implements auth.Auditor.
func (r *Reporter) Record(_ context.Context, e auth.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn()
	refusal := isRefusal(e.Action)
	name := entry{tenant: clean(e.Tenant), action: e.Action, actor: clean(cmp.Or(e.Actor, "address:"+e.Address))}
	switch {
	case e.Action == auth.ActionDenied || e.Action == auth.EntryRefused:
		name.target = clean(e.Detail["session_id"] + " " + e.Detail["tool_call_id"])
	case !refusal:
		name.target = clean(e.Target)
	}
	if r.open[name] != nil {
		r.numbers[name]++
		return
	}
	if of := (bucket{name.tenant, refusal}); !isUnlimited(e.Action) {
		limit := MaxEvents
		if refusal {
			limit = MaxRefusals
		}
		if r.counts[of] >= limit {
			r.dropped[name.tenant]++
			return
		}
		r.counts[of]++
	}
	r.open[name], r.numbers[name] = r.event(name, e), 1
}

// turn closes the entries of the last minute.
func (r *Reporter) turn() {
	minute := r.Now().UnixMilli() / window.Milliseconds()
	if minute == r.minute && r.open != nil {
		return
	}
	r.close(func(entry) bool { return true })
	for tenant, n := range r.dropped {
		r.ready = append(r.ready, &statev1.TenantEvent{Tenant: tenant, Event: &eventv1.AuditEvent{
			Id: r.NewID(), Actor: "gateway", Action: "audit.dropped", Outcome: "done", Detail: fmt.Sprintf(`{"count":%d}`, n),
		}})
	}
	r.minute, r.dropped = minute, map[string]int64{}
	r.counts, r.open, r.numbers = map[bucket]int{}, map[entry]*statev1.TenantEvent{}, map[entry]int64{}
}

// close makes the chosen entries ready.
func (r *Reporter) close(chosen func(entry) bool) {
	for name, e := range r.open {
		if !chosen(name) {
			continue
		}
		if n := r.numbers[name]; n > 1 {
			var detail map[string]any
			_ = json.Unmarshal([]byte(e.GetEvent().GetDetail()), &detail) // made by event
			detail["count"] = n
			e.Event.Detail = encode(detail)
		}
		r.ready = append(r.ready, e)
		delete(r.open, name)
	}
}

// event returns the entry of an event.
func (r *Reporter) event(name entry, e auth.Event) *statev1.TenantEvent {
	detail := map[string]any{}
	for key, value := range e.Detail {
		detail[clean(key)] = clean(value)
	}
	if e.Address != "" {
		detail["address"] = clean(e.Address)
	}
	out := &eventv1.AuditEvent{
		Id: r.NewID(), Actor: name.actor, Action: name.action, TargetKind: "route", TargetId: clean(e.Target), Outcome: "refused",
	}
	if !isRefusal(e.Action) {
		out.Outcome = "done"
		out.TargetKind, _, _ = strings.Cut(e.Action, ".")
	}
	if file := e.Detail[auth.KeysFile]; file != "" {
		hour := r.Now().UnixMilli() / time.Hour.Milliseconds() // the file may have the same content again, later
		digest := sha256.Sum256(fmt.Appendf(nil, "%q", []any{name, file, hour}))
		out.Id, out.Actor = hex.EncodeToString(digest[:16]), cmp.Or(clean(e.Actor), "gateway")
	}
	out.Detail = encode(detail)
	return &statev1.TenantEvent{Tenant: name.tenant, Event: out}
}

func encode(detail map[string]any) string {
	const most = 4 << 10
	text, err := json.Marshal(detail)
	if err != nil || len(text) > most { // texts always encode
		return `{}`
	}
	return string(text)
}

// clean returns the text as an id: valid UTF-8 without control characters, cut to its limit.
func clean(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == unicode.ReplacementChar {
			return -1
		}
		return c
	}, text[:min(len(text), maxText)])
	return strings.ToValidUTF8(text, "")
}

// Run sends until ctx ends, and then what is left.
func (r *Reporter) Run(ctx context.Context) {
	ticker := time.NewTicker(sendEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSend)
			defer cancel()
			r.send(last, r.take(func(entry) bool { return true }))
			return
		case <-ticker.C:
			r.send(ctx, r.take(func(name entry) bool { return !isRefusal(name.action) }))
		}
	}
}

// take returns the ready entries. All but refusals are ready at once.
func (r *Reporter) take(chosen func(entry) bool) []*statev1.TenantEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn()
	r.close(chosen)
	taken := r.ready
	r.ready = nil
	return taken
}

// send sends the entries. It sends failed entries again, up to a minute's worth of each tenant.
func (r *Reporter) send(ctx context.Context, events []*statev1.TenantEvent) {
	for chunk := range slices.Chunk(events, batch) {
		_, err := r.State.RecordEvents(ctx, &statev1.RecordEventsRequest{Events: chunk})
		switch {
		case err == nil:
		case fault.KindOf(err) == fault.Invalid && len(chunk) > 1: // one of them must not keep the others out
			for i := range chunk {
				r.send(ctx, chunk[i:i+1])
			}
		default:
			r.Log.WarnContext(ctx, "entries of the audit log could not be written", "count", len(chunk), "error", err)
			if fault.KindOf(err) != fault.Invalid {
				r.keep(chunk)
			}
		}
	}
}

func (r *Reporter) keep(events []*statev1.TenantEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := map[string]int{}
	for _, e := range r.ready {
		waiting[e.GetTenant()]++
	}
	for _, e := range events {
		if !isUnlimited(e.GetEvent().GetAction()) && waiting[e.GetTenant()] >= MaxRefusals+MaxEvents {
			r.dropped[e.GetTenant()]++
			continue
		}
		waiting[e.GetTenant()]++
		r.ready = append(r.ready, e)
	}
}
