package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// waitLimit is how long the suite waits for something that should happen soon. It is generous, because many
// tests may share few processors.
const waitLimit = 90 * time.Second

// Scenario names a reply that the suite expects, and its recording.
type Scenario string

// The scenarios of Run.
const (
	// Text is "The sea is calm today." in two or more pieces.
	Text Scenario = "text"
	// Reasoning is the reasoning "Two and two make four." and the text "Four."
	Reasoning Scenario = "reasoning"
	// Call calls weather {"city":"Zürich"}.
	Call Scenario = "call"
	// ParallelCalls calls weather {"city":"Oslo"} and weather {"city":"Rome"}, interleaved if the protocol
	// allows it.
	ParallelCalls Scenario = "parallel_calls"
	// EmptyCall calls clock without arguments.
	EmptyCall Scenario = "empty_call"
	// BrokenCall calls weather with the incomplete arguments {"city":
	BrokenCall Scenario = "broken_call"
	// TextThenCall is the text "Let me look." and a call weather {"city":"Oslo"}.
	TextThenCall Scenario = "text_then_call"
	// Usage is the text "Counted." with 11 prompt tokens (4 cached) and 7 completion tokens (3 reasoning).
	Usage Scenario = "usage"
	// Length is the text "Once upon a", truncated at the length limit.
	Length Scenario = "length"
	// Filtered is the text "I cannot", truncated by a content filter.
	Filtered Scenario = "filtered"
	// CutCall calls clock without arguments, starts a call of weather and reaches the length limit before the
	// arguments.
	CutCall Scenario = "cut_call"
	// HalfCall calls weather with {"city": and reaches the length limit.
	HalfCall Scenario = "half_call"
	// FilteredCall starts a call of clock and is truncated by a content filter.
	FilteredCall Scenario = "filtered_call"
	// Interrupted is the text "The sea " and an overload error.
	Interrupted Scenario = "interrupted"
	// Cut is the text "The sea ", then the connection breaks.
	Cut Scenario = "cut"
	// Ended is the text "The sea ", then a regular end of the body.
	Ended Scenario = "ended"
	// Slow is the text "The sea ", then nothing for an hour.
	Slow Scenario = "slow"

	// The others are HTTP errors: 429 with a Retry-After of 7 s, 401, 403, 404, 400, 500 and 529.
	RateLimited     Scenario = "rate_limited"
	Unauthenticated Scenario = "unauthenticated"
	Denied          Scenario = "denied"
	NotFound        Scenario = "not_found"
	Invalid         Scenario = "invalid"
	ServerError     Scenario = "server_error"
	Overloaded      Scenario = "overloaded"
)

// Harness returns a model that gives the scenario's reply to every request. The suite also sends the scenario as
// the name of the model.
type Harness func(t *testing.T, scenario Scenario) model.Model

// Run runs the suite.
func Run(t *testing.T, harness Harness) {
	runScenarios(t, harness)
	runSequences(t, harness)
}

func runScenarios(t *testing.T, harness Harness) {
	for scenario, want := range completeReplies {
		t.Run(string(scenario), func(t *testing.T) {
			t.Parallel()
			reply := Collect(t, harness(t, scenario).Generate(t.Context(), NewRequest(scenario)))
			if reply.Err != nil {
				t.Fatalf("got error %v, want none", reply.Err)
			}
			if scenario == Text && reply.Deltas < 2 {
				t.Errorf("got the text in %d pieces, want it streamed", reply.Deltas)
			}
			usage := model.Usage{PromptTokens: 11, CompletionTokens: 7, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 18}
			if scenario == Usage && reply.Usage != usage {
				t.Errorf("got usage %+v", reply.Usage)
			}
			reply.expect(t, want)
		})
	}
	for scenario, want := range failedReplies {
		t.Run(string(scenario), func(t *testing.T) {
			t.Parallel()
			reply := Collect(t, harness(t, scenario).Generate(t.Context(), NewRequest(scenario)))
			reply.expect(t, Reply{Text: want.text})
			reply.expectError(t, want.err)
		})
	}
}

// runSequences checks cancellation, concurrency and reuse of sequences.
func runSequences(t *testing.T, harness Harness) {
	t.Run("a cancelled call ends soon without leaks", func(t *testing.T) {
		t.Parallel()
		checkCancel(t, harness(t, Slow))
	})
	t.Run("a stopped consumer gets no further events, and nothing leaks", func(t *testing.T) {
		t.Parallel()
		checkStop(t, harness(t, Slow))
	})
	t.Run("a call cancelled before its start yields no events", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reply := Collect(t, harness(t, Text).Generate(ctx, NewRequest(Text)))
		reply.expect(t, Reply{})
		if !errors.Is(reply.Err, context.Canceled) {
			t.Errorf("got error %v, want context.Canceled", reply.Err)
		}
	})
	t.Run("concurrent calls do not mix", func(t *testing.T) {
		t.Parallel()
		m := harness(t, ParallelCalls)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				Collect(t, m.Generate(t.Context(), NewRequest(ParallelCalls))).expect(t, completeReplies[ParallelCalls])
			})
		}
		wg.Wait()
	})
	t.Run("a sequence can be iterated twice", func(t *testing.T) {
		t.Parallel()
		sequence := harness(t, Text).Generate(t.Context(), NewRequest(Text))
		Collect(t, sequence).expect(t, completeReplies[Text])
		Collect(t, sequence).expect(t, completeReplies[Text])
	})
}

// completeReplies are the expected replies of the scenarios without an error.
var completeReplies = map[Scenario]Reply{
	Text:      {Text: "The sea is calm today.", Finish: model.FinishStop},
	Reasoning: {Reasoning: []string{"Two and two make four."}, Text: "Four.", Finish: model.FinishStop},
	Call: {Finish: model.FinishToolCalls, Calls: []ReplyCall{
		{Name: "weather", Arguments: `{"city":"Zürich"}`},
	}},
	ParallelCalls: {Finish: model.FinishToolCalls, Calls: []ReplyCall{
		{Name: "weather", Arguments: `{"city":"Oslo"}`},
		{Name: "weather", Arguments: `{"city":"Rome"}`},
	}},
	EmptyCall:  {Finish: model.FinishToolCalls, Calls: []ReplyCall{{Name: "clock", Arguments: `{}`}}},
	BrokenCall: {Finish: model.FinishToolCalls, Calls: []ReplyCall{{Name: "weather", Arguments: `"{\"city\":"`}}},
	TextThenCall: {Text: "Let me look.", Finish: model.FinishToolCalls, Calls: []ReplyCall{
		{Name: "weather", Arguments: `{"city":"Oslo"}`},
	}},
	Usage:    {Text: "Counted.", Finish: model.FinishStop},
	Length:   {Text: "Once upon a", Finish: model.FinishLength},
	Filtered: {Text: "I cannot", Finish: model.FinishContentFilter},
	CutCall: {Finish: model.FinishLength, Calls: []ReplyCall{
		{Name: "clock", Arguments: `{}`}, {Name: "weather", Arguments: `""`},
	}},
	HalfCall:     {Finish: model.FinishLength, Calls: []ReplyCall{{Name: "weather", Arguments: `"{\"city\":"`}}},
	FilteredCall: {Finish: model.FinishContentFilter, Calls: []ReplyCall{{Name: "clock", Arguments: `""`}}},
}

// failedReplies are the expected texts and errors of the other scenarios.
var failedReplies = map[Scenario]struct {
	text string
	err  model.Error
}{
	Interrupted:     {"The sea ", model.Error{Code: model.CodeOverloaded, Retryable: true}},
	Cut:             {"The sea ", model.Error{Code: model.CodeUnavailable, Retryable: true}},
	Ended:           {"The sea ", model.Error{Code: model.CodeUnavailable, Retryable: true}},
	RateLimited:     {"", model.Error{Code: model.CodeRateLimited, Retryable: true, StatusCode: 429, RetryAfter: 7 * time.Second}},
	Unauthenticated: {"", model.Error{Code: model.CodeUnauthenticated, StatusCode: 401}},
	Denied:          {"", model.Error{Code: model.CodeDenied, StatusCode: 403}},
	NotFound:        {"", model.Error{Code: model.CodeNotFound, StatusCode: 404}},
	Invalid:         {"", model.Error{Code: model.CodeInvalidRequest, StatusCode: 400}},
	ServerError:     {"", model.Error{Code: model.CodeUnavailable, Retryable: true, StatusCode: 500}},
	Overloaded:      {"", model.Error{Code: model.CodeOverloaded, Retryable: true, StatusCode: 529}},
}

// NewRequest returns a minimal request for a scenario.
func NewRequest(scenario Scenario) model.Request {
	return model.Request{
		Model:    string(scenario),
		Messages: []agent.Message{{ID: "m1", Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "How is the sea?"}}}},
		Tools: []model.Tool{
			{Name: "weather", InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)},
			{Name: "clock"},
		},
	}
}

func checkCancel(t *testing.T, m model.Model) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reply Reply
	checkLeaks(ctx, t, func(ctx context.Context) {
		reply = Collect(t, func(yield func(model.Event, error) bool) {
			for e, err := range m.Generate(ctx, NewRequest(Slow)) {
				if !yield(e, err) {
					return
				}
				cancel()
			}
		})
	})
	if !strings.HasPrefix("The sea ", reply.Text) || reply.Text == "" {
		t.Errorf("got text %q, want the beginning of %q", reply.Text, "The sea ")
	}
	if !errors.Is(reply.Err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", reply.Err)
	}
}

func checkStop(t *testing.T, m model.Model) {
	checkLeaks(t.Context(), t, func(ctx context.Context) {
		for _, err := range m.Generate(ctx, NewRequest(Slow)) {
			if err != nil {
				t.Errorf("got error %v, want a first event", err)
			}
			break // another event would panic
		}
	})
}

// checkLeaks runs f and fails if f or a goroutine started by it does not end.
func checkLeaks(ctx context.Context, t *testing.T, f func(context.Context)) {
	t.Helper()
	// Goroutines inherit the labels of their creator.
	label := fmt.Sprintf("%p", t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		pprof.Do(ctx, pprof.Labels("modeltest", label), f)
	}()
	deadline := time.After(waitLimit)
	select {
	case <-done:
	case <-deadline:
		t.Fatalf("the sequence did not end within %v", waitLimit)
	}
	tick := time.NewTicker(20 * time.Millisecond) // profiles are expensive: they cover the goroutines of other tests too
	defer tick.Stop()
	for {
		var profile strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(profile.String(), label) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("leaked goroutines:\n%s", profile.String())
		}
	}
}

// expect compares a reply. It ignores ids, usage, the number of deltas and provider data, because they differ
// between providers.
func (r Reply) expect(t *testing.T, want Reply) {
	t.Helper()
	got := Reply{Text: r.Text, Reasoning: r.Reasoning, Finish: r.Finish}
	for _, c := range r.Calls {
		got.Calls = append(got.Calls, ReplyCall{Name: c.Name, Arguments: c.Arguments})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func (r Reply) expectError(t *testing.T, want model.Error) {
	t.Helper()
	got, ok := errors.AsType[*model.Error](r.Err)
	if !ok {
		t.Fatalf("got error %T %v, want a *model.Error", r.Err, r.Err)
	}
	if got.Message == "" {
		t.Error("got an error without a message")
	}
	bare := model.Error{Code: got.Code, Retryable: got.Retryable, StatusCode: got.StatusCode, RetryAfter: got.RetryAfter}
	if bare != want {
		t.Errorf("got error %+v, want %+v", *got, want)
	}
}
