package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// readyTimeout bounds one health check of the other services.
const readyTimeout = 2 * time.Second

// Health reports whether the gateway can serve.
//
// A gateway is ready when the other services answer, and when an executor has ever announced an agent: before
// that, every message would be refused. It stays ready while no executor is connected. Conversations can be
// read then, messages are stored, and their runs wait; and a probe that took all gateways out of service for
// an outage of the executors would make it worse.
type Health struct {
	Services []Dependency
	Agents   func(context.Context) (AgentHealth, error)
}

// AgentHealth is what the executors have announced.
type AgentHealth struct {
	Known  int // all agents ever announced
	Served int // those with an executor now
	// Broken names the parts of the agents out of service, as PartName does.
	Broken []string
}

// PartName names a part out of service, without its reason and without folders: the route is public.
func PartName(kind, name, agent string) string {
	if kind == "file" {
		name = path.Base(filepath.ToSlash(name))
	}
	text := fmt.Sprintf("%s %.100q", kind, name)
	if agent != "" {
		text += fmt.Sprintf(" of agent %.100q", agent)
	}
	return text
}

// maxBroken is the most parts that GET /readyz names.
const maxBroken = 20

// Dependency is a service without which the gateway cannot serve.
type Dependency struct {
	Name string
	// Variable is the environment variable with the address. The route is public, so it does not show the address.
	Variable string
	Conn     grpc.ClientConnInterface
}

// Problem is a reason why the gateway is not ready.
type Problem struct {
	Service string // the missing service: state, stream or executor
	Text    string
}

type health struct {
	NotReady []string `json:"notReady,omitempty" doc:"the services that are missing: state, stream, executor"`
	Reasons  []string `json:"reasons,omitempty" doc:"what is missing, for people: a text for each of notReady"`
	Status   string   `json:"status" enum:"ok,unavailable"`
	Warnings []string `json:"warnings,omitempty" doc:"what delays answers although the gateway is ready, for people"`
}

// Routes are the routes of health checks.
func (h *Health) Routes() []Route {
	return []Route{
		{Method: http.MethodGet, Pattern: "/healthz", Handler: h.Live, Public: true, About: About{
			Name: "getHealth", Summary: "Tells whether the process runs.",
			Answers: []Answer{{Status: http.StatusOK, About: "it runs", Body: health{}}},
		}},
		{Method: http.MethodGet, Pattern: "/readyz", Handler: h.Ready, Public: true, About: About{
			Name: "getReadiness", Summary: "Tells whether the gateway can serve. It stays ready while no executor is connected.",
			Answers: []Answer{
				{Status: http.StatusOK, About: "it can", Body: health{}},
				{Status: http.StatusServiceUnavailable, About: "a service does not answer, or no executor has announced an agent yet", Body: health{}},
			},
		}},
	}
}

// Live is GET /healthz: the process runs.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request, _ string) error {
	WriteJSON(w, http.StatusOK, health{Status: "ok"})
	return nil
}

// Ready is GET /readyz. 503 says what is missing.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request, _ string) error {
	problems, warnings := h.Check(r.Context())
	answer, status := health{Status: "ok", Warnings: warnings}, http.StatusOK
	if len(problems) > 0 {
		answer, status = health{Status: "unavailable"}, http.StatusServiceUnavailable
	}
	for _, p := range problems {
		answer.NotReady, answer.Reasons = append(answer.NotReady, p.Service), append(answer.Reasons, p.Text)
	}
	WriteJSON(w, status, answer)
	return nil
}

// Check returns why the gateway is not ready, and what delays the answers of a ready one.
func (h *Health) Check(ctx context.Context) (problems []Problem, warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	missing := make([]bool, len(h.Services))
	var agents AgentHealth
	var err error
	var wg sync.WaitGroup
	for i, d := range h.Services {
		wg.Go(func() { missing[i] = !d.answers(ctx) })
	}
	wg.Go(func() { agents, err = h.Agents(ctx) })
	wg.Wait()
	for i, d := range h.Services {
		if missing[i] {
			problems = append(problems, Problem{d.Name, fmt.Sprintf("the %s service does not answer at the address in %s", d.Name, d.Variable)})
		}
	}
	switch {
	case len(problems) > 0:
	case err != nil:
		problems = append(problems, Problem{"state", "the state service answers, but cannot list the agents: see the logs of both services"})
	case agents.Known == 0:
		problems = append(
			problems,
			Problem{
				"executor",
				"no executor has announced an agent yet: start one, with HOLDFAST_EXECUTOR_STATE_ADDRESS set to the same state service",
			},
		)
	case agents.Served == 0:
		warnings = append(warnings, "no executor serves an agent now: messages are stored, and their runs wait for an executor")
	}
	broken := slices.Compact(slices.Sorted(slices.Values(agents.Broken)))
	if more := len(broken) - maxBroken; more > 0 {
		broken = append(broken[:maxBroken], fmt.Sprintf("and %d more", more))
	}
	if len(broken) > 0 {
		warnings = append(
			warnings,
			"out of service: "+strings.Join(broken, ", ")+"; everything else is served (holdfast agents list has the reasons)",
		)
	}
	return problems, warnings
}

// answers reports whether the service serves.
func (d Dependency) answers(ctx context.Context) bool {
	got, err := grpc_health_v1.NewHealthClient(d.Conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err == nil && got.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
}
