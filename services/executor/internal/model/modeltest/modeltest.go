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

// patience is how long the suite waits for what must happen soon. Many tests may share
// few processors.
const patience = 90 * time.Second

// Reply names a logical reply.
type Reply string

// The replies that a harness provides.
const (
	// Text says "The sea is calm today." in two or more pieces and stops.
	Text Reply = "text"
	// Reasoning thinks "Two and two make four." and says "Four."
	Reasoning Reply = "reasoning"
	// Call calls weather {"city":"Zürich"}.
	Call Reply = "call"
	// ParallelCalls calls weather {"city":"Oslo"} and weather {"city":"Rome"},
	// interleaved where the wire can.
	ParallelCalls Reply = "parallel_calls"
	// EmptyCall calls clock without arguments.
	EmptyCall Reply = "empty_call"
	// BrokenCall calls weather with {"city": as its arguments, and no more of them.
	BrokenCall Reply = "broken_call"
	// TextThenCall says "Let me look." and calls weather {"city":"Oslo"}.
	TextThenCall Reply = "text_then_call"
	// Usage says "Counted." for 11 prompt tokens, 4 of them cached, and 7
	// completion tokens, 3 of them reasoning.
	Usage Reply = "usage"
	// Length says "Once upon a" and is at its limit.
	Length Reply = "length"
	// Filtered says "I cannot" and is stopped by a filter.
	Filtered Reply = "filtered"
	// CutCall calls clock without arguments, begins a call of weather and is at its limit
	// before the arguments.
	CutCall Reply = "cut_call"
	// HalfCall calls weather with {"city": and is at its limit.
	HalfCall Reply = "half_call"
	// FilteredCall begins a call of clock and is stopped by a filter.
	FilteredCall Reply = "filtered_call"
	// Interrupted says "The sea " and then that it is overloaded.
	Interrupted Reply = "interrupted"
	// Cut says "The sea " and then the connection breaks.
	Cut Reply = "cut"
	// Ended says "The sea " and then the body ends, as if that were all.
	Ended Reply = "ended"
	// Slow says "The sea " and then nothing for an hour.
	Slow Reply = "slow"

	// The rest is refused before anything is said: with HTTP 429 and 7 s to
	// wait, 401, 403, 404, 400, 500 and 529.
	RateLimited     Reply = "rate_limited"
	Unauthenticated Reply = "unauthenticated"
	Denied          Reply = "denied"
	NotFound        Reply = "not_found"
	Invalid         Reply = "invalid"
	ServerError     Reply = "server_error"
	Overloaded      Reply = "overloaded"
)

// Harness makes a model that makes the reply to every request. The suite names
// the model of its requests after the reply.
type Harness func(t *testing.T, reply Reply) model.Model

// Run is the suite.
func Run(t *testing.T, harness Harness) {
	for reply, want := range whole {
		t.Run(string(reply), func(t *testing.T) {
			t.Parallel()
			heard := Listen(t, harness(t, reply).Generate(t.Context(), Ask(reply)))
			if heard.Err != nil {
				t.Fatalf("got error %v, want none", heard.Err)
			}
			if reply == Text && heard.Deltas < 2 {
				t.Errorf("got the text in %d pieces, want it streamed", heard.Deltas)
			}
			if reply == Usage && heard.Usage != (model.Usage{PromptTokens: 11, CompletionTokens: 7, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 18}) {
				t.Errorf("got usage %+v", heard.Usage)
			}
			heard.expect(t, want)
		})
	}
	for reply, want := range broken {
		t.Run(string(reply), func(t *testing.T) {
			t.Parallel()
			heard := Listen(t, harness(t, reply).Generate(t.Context(), Ask(reply)))
			heard.expect(t, Heard{Text: want.said})
			heard.expectError(t, want.err)
		})
	}
	t.Run("a cancelled call ends soon and leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		endsWhenCancelled(t, harness(t, Slow))
	})
	t.Run("a consumer that stops is not called again and leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		endsWhenLeft(t, harness(t, Slow))
	})
	t.Run("a call that is cancelled before it begins says nothing", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		heard := Listen(t, harness(t, Text).Generate(ctx, Ask(Text)))
		heard.expect(t, Heard{})
		if !errors.Is(heard.Err, context.Canceled) {
			t.Errorf("got error %v, want context.Canceled", heard.Err)
		}
	})
	t.Run("calls at the same time do not mix", func(t *testing.T) {
		t.Parallel()
		m := harness(t, ParallelCalls)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				Listen(t, m.Generate(t.Context(), Ask(ParallelCalls))).expect(t, whole[ParallelCalls])
			})
		}
		wg.Wait()
	})
	t.Run("a sequence may be ranged over again", func(t *testing.T) {
		t.Parallel()
		sequence := harness(t, Text).Generate(t.Context(), Ask(Text))
		Listen(t, sequence).expect(t, whole[Text])
		Listen(t, sequence).expect(t, whole[Text])
	})
}

// whole is what is heard of the replies that come to their end.
var whole = map[Reply]Heard{
	Text:      {Text: "The sea is calm today.", Finish: model.FinishStop},
	Reasoning: {Reasoning: []string{"Two and two make four."}, Text: "Four.", Finish: model.FinishStop},
	Call: {Finish: model.FinishToolCalls, Calls: []HeardCall{
		{Name: "weather", Arguments: `{"city":"Zürich"}`},
	}},
	ParallelCalls: {Finish: model.FinishToolCalls, Calls: []HeardCall{
		{Name: "weather", Arguments: `{"city":"Oslo"}`},
		{Name: "weather", Arguments: `{"city":"Rome"}`},
	}},
	EmptyCall:  {Finish: model.FinishToolCalls, Calls: []HeardCall{{Name: "clock", Arguments: `{}`}}},
	BrokenCall: {Finish: model.FinishToolCalls, Calls: []HeardCall{{Name: "weather", Arguments: `"{\"city\":"`}}},
	TextThenCall: {Text: "Let me look.", Finish: model.FinishToolCalls, Calls: []HeardCall{
		{Name: "weather", Arguments: `{"city":"Oslo"}`},
	}},
	Usage:    {Text: "Counted.", Finish: model.FinishStop},
	Length:   {Text: "Once upon a", Finish: model.FinishLength},
	Filtered: {Text: "I cannot", Finish: model.FinishContentFilter},
	CutCall: {Finish: model.FinishLength, Calls: []HeardCall{
		{Name: "clock", Arguments: `{}`}, {Name: "weather", Arguments: `""`},
	}},
	HalfCall:     {Finish: model.FinishLength, Calls: []HeardCall{{Name: "weather", Arguments: `"{\"city\":"`}}},
	FilteredCall: {Finish: model.FinishContentFilter, Calls: []HeardCall{{Name: "clock", Arguments: `""`}}},
}

// broken is what is heard of the others.
var broken = map[Reply]struct {
	said string
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

// Ask is the request of the suite: the shortest that there is.
func Ask(reply Reply) model.Request {
	return model.Request{
		Model:    string(reply),
		Messages: []agent.Message{{ID: "m1", Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "How is the sea?"}}}},
		Tools: []model.Tool{
			{Name: "weather", InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)},
			{Name: "clock"},
		},
	}
}

func endsWhenCancelled(t *testing.T, m model.Model) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var heard Heard
	watched(ctx, t, func(ctx context.Context) {
		heard = Listen(t, func(yield func(model.Event, error) bool) {
			for e, err := range m.Generate(ctx, Ask(Slow)) {
				if !yield(e, err) {
					return
				}
				cancel()
			}
		})
	})
	if !strings.HasPrefix("The sea ", heard.Text) || heard.Text == "" {
		t.Errorf("got text %q, want the beginning of %q", heard.Text, "The sea ")
	}
	if !errors.Is(heard.Err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", heard.Err)
	}
}

func endsWhenLeft(t *testing.T, m model.Model) {
	watched(t.Context(), t, func(ctx context.Context) {
		for _, err := range m.Generate(ctx, Ask(Slow)) {
			if err != nil {
				t.Errorf("got error %v, want a first event", err)
			}
			break // an event after this would panic
		}
	})
}

// watched runs f and fails where it, or a goroutine that it started, does not end.
func watched(ctx context.Context, t *testing.T, f func(context.Context)) {
	t.Helper()
	// Goroutines inherit the labels of those that start them.
	mark := fmt.Sprintf("%p", t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		pprof.Do(ctx, pprof.Labels("modeltest", mark), f)
	}()
	deadline := time.After(patience)
	select {
	case <-done:
	case <-deadline:
		t.Fatalf("the sequence did not end within %v", patience)
	}
	tick := time.NewTicker(20 * time.Millisecond) // a profile is of all goroutines, also those of other tests
	defer tick.Stop()
	for {
		var profile strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(profile.String(), mark) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("goroutines are left behind:\n%s", profile.String())
		}
	}
}

// expect compares what was heard with what was to be heard, leaving out what
// differs between providers: ids, usage, pieces and provider data.
func (h Heard) expect(t *testing.T, want Heard) {
	t.Helper()
	got := Heard{Text: h.Text, Reasoning: h.Reasoning, Finish: h.Finish}
	for _, c := range h.Calls {
		got.Calls = append(got.Calls, HeardCall{Name: c.Name, Arguments: c.Arguments})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func (h Heard) expectError(t *testing.T, want model.Error) {
	t.Helper()
	got, ok := errors.AsType[*model.Error](h.Err)
	if !ok {
		t.Fatalf("got error %T %v, want a *model.Error", h.Err, h.Err)
	}
	if got.Message == "" {
		t.Error("got an error without a message")
	}
	bare := model.Error{Code: got.Code, Retryable: got.Retryable, StatusCode: got.StatusCode, RetryAfter: got.RetryAfter}
	if bare != want {
		t.Errorf("got error %+v, want %+v", *got, want)
	}
}
