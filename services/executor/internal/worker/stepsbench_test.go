package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// BenchmarkSteps measures the executor's own cost of a step with a tool: model, tool, state and stream services
// take no time.
func BenchmarkSteps(b *testing.B) {
	for _, readOnly := range []bool{true, false} {
		for _, steps := range []int{20, 200} {
			b.Run(fmt.Sprintf("readOnly=%t/steps=%d", readOnly, steps), func(b *testing.B) {
				b.ReportAllocs()
				before := processorTime(b)
				for b.Loop() {
					benchmarkRun(b, steps, readOnly)
				}
				b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N*steps), "cpu-us/step")
			})
		}
	}
}

// processorTime returns the processor time of the process.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func benchmarkRun(b *testing.B, steps int, readOnly bool) {
	look := agent.Tool{
		Name: "look", ReadOnly: readOnly, InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`),
		Execute: func(context.Context, *agent.Call) (any, error) { return map[string]int{"value": 42}, nil },
	}
	instant := &instantServices{}
	w := New(Config{
		CallTimeout: 5 * time.Second, ModelTimeout: time.Minute, ToolTimeout: time.Minute, ParallelCalls: 8, MaxResultBytes: 1 << 20,
		MaxDeltaBytes: 256 << 10, MaxQueuedBytes: 1 << 20, StreamPatience: 10 * time.Second,
	}, Peers{
		Work: instant, Stream: instantStream{}, Log: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""), Now: time.Now,
		Agents: catalog.Static([]catalog.Agent{{
			Agent:  agent.Agent{Name: "demo", Model: "instant/mind", MaxSteps: steps + 1, Tools: []agent.Tool{look}},
			Models: map[string]model.Model{"instant/mind": instantModel(steps)},
		}}),
	})
	claim := &statev1.Claim{
		Epoch:   1,
		Session: &statev1.Session{Tenant: "acme", SessionId: "s", RootSessionId: "s", AgentType: "demo", MessageCount: 1, UserId: "u", Metadata: map[string]string{"a": "b"}},
		Run:     &statev1.Run{RunId: "r", SessionId: "s", AgentType: "demo", Turn: 1, Attempt: 1, MessageId: "m"},
		Messages: []*statev1.StoredMessage{{Message: &eventv1.Message{
			Id: "u", Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "Hello"}}}},
		}}},
	}
	newRunner(w, claim, &stopper{}, make(chan struct{})).run(b.Context())
	if instant.outcome.GetStatus() != statev1.RunStatus_RUN_STATUS_COMPLETED {
		b.Fatalf("the run ended as %v", instant.outcome)
	}
}

// instantModel calls a tool in each step but the last.
type instantModel int

func (m instantModel) Generate(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		events := []model.Event{
			model.TextDelta{Text: "Let me see."}, model.CallStart{ID: fmt.Sprintf("toolu_%dxYz", len(r.Messages)), Name: "look"}, model.CallDelta{Text: `{"q":"weather"}`},
			model.CallEnd{}, model.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15}, model.Finish{Reason: model.FinishToolCalls},
		}
		if len(r.Messages) >= 2*int(m)-1 {
			events = []model.Event{model.TextDelta{Text: "Done."}, model.Finish{Reason: model.FinishStop}}
		}
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// instantServices accepts every write.
type instantServices struct {
	statev1.WorkServiceClient
	outcome *statev1.Outcome
}

func (*instantServices) RecordPlan(context.Context, *statev1.RecordPlanRequest, ...grpc.CallOption) (*statev1.RecordPlanResponse, error) {
	return &statev1.RecordPlanResponse{}, nil
}

func (*instantServices) RecordResult(context.Context, *statev1.RecordResultRequest, ...grpc.CallOption) (*statev1.RecordResultResponse, error) {
	return &statev1.RecordResultResponse{}, nil
}

func (s *instantServices) CommitStep(_ context.Context, r *statev1.CommitStepRequest, _ ...grpc.CallOption) (*statev1.CommitStepResponse, error) {
	s.outcome = r.GetOutcome()
	return &statev1.CommitStepResponse{CheckpointId: "c"}, nil
}

func (s *instantServices) FinishRun(_ context.Context, r *statev1.FinishRunRequest, _ ...grpc.CallOption) (*statev1.FinishRunResponse, error) {
	s.outcome = r.GetOutcome()
	return &statev1.FinishRunResponse{}, nil
}

type instantStream struct{ streamv2.StreamServiceClient }

func (instantStream) Append(context.Context, *streamv2.AppendRequest, ...grpc.CallOption) (*streamv2.AppendResponse, error) {
	return &streamv2.AppendResponse{}, nil
}
