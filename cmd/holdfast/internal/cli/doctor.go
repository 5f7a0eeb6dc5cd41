package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// The results of a check.
const (
	Passed  = "ok"
	Failed  = "fail"
	Skipped = "skip"
)

// Check is one thing that was checked.
type Check struct {
	Name   string `json:"check"`
	Result string `json:"result"` // Passed, Failed or Skipped
	Text   string `json:"text"`
}

// Limits of the checks.
const (
	checkTimeout = 10 * time.Second // of one request
	maxReadiness = 64 << 10         // bytes of the answer of /readyz
	maxClockSkew = 5 * time.Second  // a larger difference makes tokens and deadlines wrong
	maxActive    = 1000             // active sessions to examine
	maxInspected = 100              // the oldest ones, which are read one by one
)

// CheckUp checks the gateway, and the sessions behind it. A run queued for longer than patience is stuck.
func (g *Gateway) CheckUp(ctx context.Context, patience time.Duration) []Check {
	address, err := g.URL()
	if err != nil {
		return []Check{FailedCheck("gateway", err)}
	}
	health := httpGet(ctx, address+"/healthz")
	if health.err != nil || health.status != http.StatusOK {
		return []Check{
			{"gateway", Failed, fmt.Sprintf("%s does not answer as a gateway: %s", address, health.problem())},
			{"sessions", Skipped, "the gateway does not answer"},
		}
	}
	checks := []Check{
		{"gateway", Passed, fmt.Sprintf("%s answers in %v", address, health.took.Round(time.Millisecond))},
		readiness(httpGet(ctx, address+"/readyz")), clock(health),
	}
	_ = g.with(ctx, shortPatience, func(h *client.Client) error {
		checks = append(checks, g.checkSystem(ctx, h, patience)...)
		return nil
	})
	return checks
}

// checkSystem makes the checks that need a credential.
func (g *Gateway) checkSystem(ctx context.Context, h *client.Client, patience time.Duration) []Check {
	found, err := h.Agents(ctx)
	if kind := fault.KindOf(err); err != nil && (kind == fault.Unauthenticated || kind == fault.Denied) {
		return []Check{FailedCheck("credentials", explain(ctx, err, "")), {"sessions", Skipped, "the credential is refused"}}
	}
	credential := Check{"credentials", Passed, "the API key is accepted"}
	if g.Key() == "" {
		credential.Text = "the gateway asks for none"
	}
	if err != nil {
		return []Check{credential, FailedCheck("agents", err)}
	}
	return []Check{credential, agentsCheck(found), stuckCheck(ctx, h, patience)}
}

func agentsCheck(found *agentv1.ListAgentsResponse) Check {
	var names []string
	for _, a := range found.GetAgents() {
		names = append(names, Clean(a.GetAgentType()))
	}
	if len(names) == 0 {
		return Check{"agents", Failed, "no executor has announced an agent: start one with HOLDFAST_EXECUTOR_STATE_ADDRESS"}
	}
	var broken []string
	for _, p := range found.GetProblems() {
		text := partName(p)
		if p.GetText() != "" {
			text += ": " + flat(p.GetText())
		}
		broken = append(broken, text)
	}
	if len(broken) > 0 {
		return Check{
			"agents", Failed, fmt.Sprintf("announced: %s; out of service: %s", strings.Join(names, ", "), strings.Join(broken, "; ")),
		}
	}
	return Check{"agents", Passed, "announced: " + strings.Join(names, ", ")}
}

// stuckCheck looks for runs that no executor takes. It reads the oldest active sessions.
func stuckCheck(ctx context.Context, h *client.Client, patience time.Duration) Check {
	active, err := first(maxActive, h.Sessions(ctx, &agentv1.ListSessionsRequest{Statuses: []string{"active"}}))
	if err != nil {
		return FailedCheck("sessions", err)
	}
	var stuck []string
	for _, s := range active[max(len(active)-maxInspected, 0):] {
		found, err := h.Session(ctx, s.GetSessionId())
		if errors.Is(err, fault.NotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return FailedCheck("sessions", err)
		}
		if why := found.GetRun().GetQueuedReason(); why != nil && time.Since(time.UnixMilli(why.GetSince())) > patience {
			stuck = append(stuck, fmt.Sprintf("%s (for %s: %s)", Clean(s.GetSessionId()), since(why.GetSince()), Clean(why.GetDetail())))
		}
	}
	if len(stuck) > 0 {
		slices.Sort(stuck)
		return Check{"sessions", Failed, fmt.Sprintf("%s queued: %s", plural(len(stuck), "run"), strings.Join(stuck, ", "))}
	}
	return Check{"sessions", Passed, plural(len(active), "active session") + ", and none is stuck in the queue"}
}

// FailedCheck is a check that has failed with an error.
func FailedCheck(name string, err error) Check {
	text := err.Error()
	if f, ok := fault.From(err); ok && f.Detail != "" {
		text = f.Detail
	}
	return Check{name, Failed, flat(text)}
}

// reply is the answer to a plain request.
type reply struct {
	status int
	date   time.Time // of the server; zero if unknown
	body   []byte
	begun  time.Time
	took   time.Duration
	err    error
}

func (r reply) problem() string {
	if r.err != nil {
		return flat(r.err.Error())
	}
	return http.StatusText(r.status)
}

// httpGet makes a request on a connection of its own.
func httpGet(ctx context.Context, address string) reply {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return reply{err: err}
	}
	request.Close = true
	r := reply{begun: time.Now()}
	answer, err := http.DefaultClient.Do(request)
	r.took = time.Since(r.begun)
	if err != nil {
		r.err = err
		return r
	}
	defer answer.Body.Close()
	r.status = answer.StatusCode
	r.date, _ = http.ParseTime(answer.Header.Get("Date")) // zero if it is missing
	r.body, r.err = io.ReadAll(io.LimitReader(answer.Body, maxReadiness))
	return r
}

// readiness checks what the gateway says about the other services.
func readiness(r reply) Check {
	var ready struct {
		NotReady, Reasons, Warnings []string
	}
	if r.err == nil && json.Unmarshal(r.body, &ready) != nil {
		return Check{"readiness", Failed, "the answer of /readyz cannot be read"}
	}
	switch {
	case r.err != nil:
		return Check{"readiness", Failed, r.problem()}
	case r.status == http.StatusOK && len(ready.Warnings) > 0:
		return Check{"readiness", Failed, flat(strings.Join(ready.Warnings, "; "))}
	case r.status == http.StatusOK:
		return Check{"readiness", Passed, "the other services answer the gateway"}
	case len(ready.Reasons) > 0:
		return Check{"readiness", Failed, flat(strings.Join(ready.Reasons, "; "))}
	}
	return Check{"readiness", Failed, "the gateway misses " + flat(strings.Join(ready.NotReady, ", "))}
}

// clock compares the clocks of this machine and the gateway. A Date header has whole seconds.
func clock(r reply) Check {
	if r.date.IsZero() {
		return Check{"clock", Skipped, "the gateway does not tell its time"}
	}
	difference := r.begun.Add(r.took / 2).Sub(r.date.Add(time.Second / 2)).Round(time.Second)
	if difference.Abs() > maxClockSkew {
		return Check{
			"clock", Failed, fmt.Sprintf("the clocks of this machine and the gateway differ by %v: synchronize them", difference.Abs()),
		}
	}
	return Check{"clock", Passed, fmt.Sprintf("the gateway's clock differs by %v", difference.Abs())}
}

// PrintCheck prints a check in one line.
func (t *Terminal) PrintCheck(c Check) error {
	color := map[string]string{Passed: green, Failed: red, Skipped: dim}[c.Result]
	return t.printf("%s  %-11s  %s\n", t.paint(color, fmt.Sprintf("%-4s", c.Result)), c.Name, flat(c.Text))
}
