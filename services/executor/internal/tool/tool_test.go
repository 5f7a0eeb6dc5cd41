package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

type execute = func(ctx context.Context, call *agent.Call) (any, error)

func runner() *tool.Runner {
	return &tool.Runner{Timeout: time.Second, Log: slog.New(slog.DiscardHandler), MaxAbandoned: 2}
}

func run(t *testing.T, r *tool.Runner, scope tool.Scope, f execute) tool.Outcome {
	t.Helper()
	return r.Execute(t.Context(), agent.Tool{Name: "t", Execute: f}, &agent.Call{ID: "call 1"}, scope)
}

func gives(value any, err error) execute {
	return func(context.Context, *agent.Call) (any, error) { return value, err }
}

func TestEveryEndOfAToolIsAResult(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		execute   execute
		want      string // the JSON of a success, or a part of the error
		success   bool
		synthetic bool
	}{
		"an object":         {execute: gives(map[string]string{"a": "<b>&"}, nil), want: `{"a":"<b>&"}`, success: true},
		"a string":          {execute: gives("say \"hi\"\n", nil), want: `"say \"hi\"\n"`, success: true},
		"nothing":           {execute: gives(nil, nil), want: `null`, success: true},
		"an error":          {execute: gives(nil, errors.New("no such city")), want: "no such city"},
		"an error too long": {execute: gives(nil, errors.New(strings.Repeat("é", 100_000))), want: "é…"},
		"an empty error":    {execute: gives(nil, errors.New("")), want: "without a reason"},
		"an unclean error":  {execute: gives(nil, errors.New("a\xffb\x00c")), want: "a\uFFFDb\uFFFDc"},
		"unclean JSON":      {execute: gives(json.RawMessage("{\"caf\xe9\":[\"\xe9t\xe9\"]}"), nil), want: "{\"caf\uFFFD\":[\"\uFFFDt\uFFFD\"]}", success: true},
		"no JSON":           {execute: gives(make(chan int), nil), want: "cannot be written as JSON"},
		"too large":         {execute: gives(strings.Repeat("x", 2000), nil), want: "result_too_large: the tool's result has 2002 bytes", synthetic: true},
		"a panic":           {execute: func(context.Context, *agent.Call) (any, error) { panic("oh") }, want: "has crashed"},
		"an exit":           {execute: func(context.Context, *agent.Call) (any, error) { runtime.Goexit(); return 1, nil }, want: "has crashed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, runner(), tool.Scope{ResultBytes: 1000}, test.execute)
			r := got.Result
			if !got.Begun || got.Canceled || r.CallID != "call 1" || r.Name != "t" || r.Success != test.success || r.Synthetic != test.synthetic {
				t.Errorf("got %+v, want a result of call 1, success %v, synthetic %v", got, test.success, test.synthetic)
			}
			said := r.Error
			if test.success {
				said = string(r.Result)
			}
			if !strings.Contains(said, test.want) || !utf8.ValidString(said) || len(said) > 9000 {
				t.Errorf("got %.200q of %d bytes, want %q", said, len(said), test.want)
			}
		})
	}
}

func TestAPanicIsLoggedOnceWithItsStack(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := runner()
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	run(t, r, tool.Scope{}, func(context.Context, *agent.Call) (any, error) { panic("the very end") })
	if n := strings.Count(log.String(), "the very end"); n != 1 || !strings.Contains(log.String(), "tool_test.go") {
		t.Errorf("log = %s, want the panic once, with its stack", log.String())
	}
}

func TestAResultThatDoesNotFitItsSchemaIsAFailure(t *testing.T) {
	t.Parallel()
	r := runner()
	one := agent.Tool{Name: "t", OutputSchema: json.RawMessage(`{"type":"object","required":["sum"]}`), Execute: gives(map[string]int{"sum": 1}, nil)}
	if got := r.Execute(t.Context(), one, &agent.Call{}, tool.Scope{}); !got.Result.Success {
		t.Errorf("got %+v, want a success", got.Result)
	}
	one.Execute = gives(map[string]int{}, nil)
	if got := r.Execute(t.Context(), one, &agent.Call{}, tool.Scope{}); got.Result.Success || !strings.Contains(got.Result.Error, "/sum is missing") {
		t.Errorf("got %+v, want a failure at /sum", got.Result)
	}
}

func TestTimeStopAndALateReturnAreToldApart(t *testing.T) {
	t.Parallel()
	obedient := func(ctx context.Context, _ *agent.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	finishing := func(ctx context.Context, _ *agent.Call) (any, error) { <-ctx.Done(); return "done", nil }
	deaf := func(context.Context, *agent.Call) (any, error) { time.Sleep(time.Hour); return "late", nil }
	tests := map[string]struct {
		execute execute
		stop    time.Duration // 0 for none
		success bool
		cut     bool
		text    string
		after   time.Duration
	}{
		"time, obedient":  {execute: obedient, text: "did not end within 1s; it is not known", after: time.Second},
		"time, deaf":      {execute: deaf, text: "did not end within 1s; it is not known", after: 1100 * time.Millisecond},
		"time, finishing": {execute: finishing, success: true, after: time.Second},
		"stop, obedient":  {execute: obedient, stop: 300 * time.Millisecond, cut: true, after: 300 * time.Millisecond},
		"stop, deaf":      {execute: deaf, stop: 300 * time.Millisecond, cut: true, after: 400 * time.Millisecond},
		"stop, finishing": {execute: finishing, stop: 300 * time.Millisecond, success: true, after: 300 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.stop > 0 {
					time.AfterFunc(test.stop, cancel)
				}
				r, begin := runner(), time.Now()
				got := r.Execute(ctx, agent.Tool{Name: "t", Execute: test.execute}, &agent.Call{}, tool.Scope{})
				if got.Result.Success != test.success || got.Canceled != test.cut || !got.Begun || !strings.Contains(got.Result.Error, test.text) {
					t.Errorf("got %+v, want success %v, cut %v, %q", got, test.success, test.cut, test.text)
				}
				if took := time.Since(begin); took != test.after {
					t.Errorf("it took %v, want %v", took, test.after)
				}
				if !r.Wait(2*time.Hour) || r.Abandoned() != 0 {
					t.Errorf("%d tools run, want none", r.Abandoned())
				}
			})
		})
	}
}

func TestAToolThatTakesItsTimeLimitsItself(t *testing.T) {
	t.Parallel()
	taking := func(f func(ctx context.Context, limit time.Duration) (any, error)) execute {
		return func(given context.Context, call *agent.Call) (any, error) {
			ctx, limit, ok := call.Host.(*tool.Host).TakeTime()
			if _, bounded := ctx.Deadline(); !ok || bounded || limit != time.Second {
				t.Errorf("TakeTime = %v, %v", limit, ok)
			}
			if _, bounded := given.Deadline(); !bounded {
				t.Error("the given context has no deadline")
			}
			return f(ctx, limit)
		}
	}
	sleeping := taking(func(ctx context.Context, _ time.Duration) (any, error) {
		select {
		case <-time.After(time.Hour):
			return "done", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	for name, test := range map[string]struct {
		execute execute
		stop    time.Duration // 0 for none
		success bool
		cut     bool
		text    string
		after   time.Duration
	}{
		"waiting": {execute: sleeping, success: true, after: time.Hour},
		"a stop":  {execute: sleeping, stop: time.Minute, cut: true, after: time.Minute},
		"its limit": {
			execute: taking(func(_ context.Context, limit time.Duration) (any, error) { return nil, tool.TimedOut(limit) }),
			text:    "did not end within 1s; it is not known",
		},
		"without a result": {
			execute: taking(func(context.Context, time.Duration) (any, error) { return nil, tool.RuntimeError("lost") }),
			text:    "lost",
		},
		"deaf after a stop": {
			execute: taking(func(context.Context, time.Duration) (any, error) {
				time.Sleep(time.Hour)
				return 1, nil
			}),
			stop: time.Minute, cut: true, after: time.Minute + 100*time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.stop > 0 {
					time.AfterFunc(test.stop, cancel)
				}
				r, begin := runner(), time.Now()
				got := r.Execute(ctx, agent.Tool{Name: "t", Execute: test.execute}, &agent.Call{}, tool.Scope{})
				if got.Result.Success != test.success || got.Canceled != test.cut || !strings.Contains(got.Result.Error, test.text) || got.Result.Synthetic != (test.text != "") {
					t.Errorf("got %+v, want success %v, cut %v, %q", got, test.success, test.cut, test.text)
				}
				if took := time.Since(begin); took != test.after {
					t.Errorf("it took %v, want %v", took, test.after)
				}
				if !r.Wait(2*time.Hour) || r.Abandoned() != 0 {
					t.Errorf("%d tools run, want none", r.Abandoned())
				}
			})
		})
	}
	if _, _, ok := tool.NewHost(agent.State{}, nil, 0, nil).TakeTime(); ok {
		t.Error("a hook has taken its time")
	}
}

func TestAToolOfWhichTooManyCallsDoNotEndIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runner()
		deaf := func(context.Context, *agent.Call) (any, error) { time.Sleep(time.Minute); return nil, nil }
		for range 2 {
			run(t, r, tool.Scope{}, deaf)
		}
		got := run(t, r, tool.Scope{}, deaf)
		if got.Begun || got.Result.Success || !got.Result.Synthetic || !strings.Contains(got.Result.Error, "2 earlier calls") {
			t.Errorf("got %+v, want a refusal", got)
		}
		if got := r.Execute(t.Context(), agent.Tool{Name: "other", Execute: gives(1, nil)}, &agent.Call{}, tool.Scope{}); !got.Result.Success {
			t.Errorf("another tool = %+v, want a success", got.Result)
		}
		if r.Wait(time.Second) {
			t.Error("Wait = true while tools run")
		}
		if !r.Wait(time.Hour) {
			t.Error("Wait = false although all tools have ended")
		}
		if got := run(t, r, tool.Scope{}, gives(1, nil)); !got.Result.Success {
			t.Errorf("got %+v, want a success again", got.Result)
		}
	})
}

func TestWhatASuccessfulCallChangesComesWithItsOutcome(t *testing.T) {
	t.Parallel()
	state := agent.State{"count": json.Number("1"), "log": []any{"a"}}
	var told []string
	scope := tool.Scope{State: state, Emit: func(_ context.Context, e tool.Event) error {
		told = append(told, e.Name+string(e.Data))
		return nil
	}}
	work := func(end error) execute {
		return func(ctx context.Context, call *agent.Call) (any, error) {
			if err := agent.UpdateState(call, func(s *struct {
				Count int      `json:"count"`
				Log   []string `json:"log"`
			}) error {
				s.Count++
				s.Log = append(s.Log, "b")
				return nil
			}); err != nil {
				return nil, err
			}
			call.RecordUsage("cost", "cents", 2)
			call.RecordUsage("cost", "cents", 0.5)
			return call.State()["count"], errors.Join(end, call.Emit(ctx, "progress", map[string]int{"done": 1}))
		}
	}
	got := run(t, runner(), scope, work(nil))
	want := []agent.Op{
		{Key: "count", Kind: agent.OpReplace, Value: json.RawMessage("2")},
		{Key: "log", Kind: agent.OpAppend, Value: json.RawMessage(`["b"]`)},
	}
	if fmt.Sprint(got.Ops) != fmt.Sprint(want) || string(got.Result.Result) != "2" {
		t.Errorf("ops = %s, result = %s, want %s and 2", got.Ops, got.Result.Result, want)
	}
	if !slices.Equal(got.Usage, []tool.Usage{{Kind: "cost", Name: "cents", Value: 2.5}}) || !slices.Equal(told, []string{`progress{"done":1}`}) {
		t.Errorf("usage = %v, told = %v, want 2.5 cents, progress", got.Usage, told)
	}
	if len(state["log"].([]any)) != 1 {
		t.Errorf("the state of the step has changed: %v", state)
	}
	got = run(t, runner(), scope, work(errors.New("no")))
	if got.Ops != nil || len(got.Usage) != 1 {
		t.Errorf("a failed call gives ops %v, usage %v, want none, and what was counted", got.Ops, got.Usage)
	}
}

func TestAnEventSaysItsIDAndWhetherItIsTransient(t *testing.T) {
	t.Parallel()
	var got []tool.Event
	h := tool.NewHost(nil, nil, 0, func(_ context.Context, e tool.Event) error { got = append(got, e); return nil })
	longest := strings.Repeat("i", 256)
	if err := errors.Join(
		h.Emit(t.Context(), "plain", 1),
		h.Emit(t.Context(), "progress", 2, agent.WithID("upload")),
		h.Emit(t.Context(), "typing", 3, agent.Transient()),
		h.Emit(t.Context(), "both", 4, agent.Transient(), agent.WithID("early"), agent.WithID(longest)), // the last id counts
	); err != nil {
		t.Fatal(err)
	}
	want := []tool.Event{
		{Name: "plain", Data: json.RawMessage("1")},
		{Name: "progress", ID: "upload", Data: json.RawMessage("2")},
		{Name: "typing", Transient: true, Data: json.RawMessage("3")},
		{Name: "both", ID: longest, Transient: true, Data: json.RawMessage("4")},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("emitted %v, want %v", got, want)
	}
}

func TestALateToolWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := runner()
		errs := make(chan error, 2)
		told := 0
		got := run(t, r, tool.Scope{Emit: func(context.Context, tool.Event) error { told++; return nil }}, func(ctx context.Context, call *agent.Call) (any, error) {
			if err := call.Update(func(s agent.State) error { s["early"] = true; return nil }); err != nil {
				return nil, err
			}
			time.Sleep(time.Minute)
			errs <- call.Update(func(s agent.State) error { s["late"] = true; return nil })
			errs <- call.Emit(ctx, "late", nil)
			call.RecordUsage("late", "late", 1)
			return "late", nil
		})
		if got.Ops != nil || got.Result.Success {
			t.Errorf("got %+v, want no ops", got)
		}
		r.Wait(time.Hour)
		for range 2 {
			if err := <-errs; fault.ReasonOf(err) != "CALL_ENDED" {
				t.Errorf("a late write = %v, want CALL_ENDED", err)
			}
		}
		if told != 0 {
			t.Errorf("%d events were told late", told)
		}
	})
}

func TestAnEventThatIsBeingToldIsCutWithTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		blocked := func(ctx context.Context, _ tool.Event) error { <-ctx.Done(); return ctx.Err() }
		begin := time.Now()
		got := run(t, runner(), tool.Scope{Emit: blocked}, func(_ context.Context, call *agent.Call) (any, error) {
			return nil, call.Emit(context.WithoutCancel(t.Context()), "stuck", 1) // a context without an end
		})
		if got.Result.Success || time.Since(begin) != 1100*time.Millisecond {
			t.Errorf("got %+v after %v, want a failure after 1.1s", got.Result, time.Since(begin))
		}
	})
}

func TestAHostTakesNoMoreThanCanBeKept(t *testing.T) {
	t.Parallel()
	h := tool.NewHost(nil, nil, 100, nil)
	set := func(key string, value any) error {
		return h.Update(func(s agent.State) error { s[key] = value; return nil })
	}
	for name, test := range map[string]struct {
		err    error
		kind   fault.Kind
		reason string
	}{
		"too large":      {set("big", strings.Repeat("x", 200)), fault.TooLarge, "STATE_SIZE_EXCEEDED"},
		"no JSON":        {set("f", func() {}), fault.Invalid, "STATE_INVALID"},
		"no key":         {set("", 1), fault.Invalid, "STATE_INVALID"},
		"a long key":     {set(strings.Repeat("k", 257), 1), fault.Invalid, "STATE_INVALID"},
		"no event name":  {h.Emit(t.Context(), "", 1), fault.Invalid, "EVENT_INVALID"},
		"no event data":  {h.Emit(t.Context(), "e", func() {}), fault.Invalid, "EVENT_INVALID"},
		"an empty id":    {h.Emit(t.Context(), "e", 1, agent.WithID("")), fault.Invalid, "EVENT_INVALID"},
		"a long id":      {h.Emit(t.Context(), "e", 1, agent.WithID(strings.Repeat("i", 257))), fault.Invalid, "EVENT_INVALID"},
		"a broken id":    {h.Emit(t.Context(), "e", 1, agent.WithID("a\xff")), fault.Invalid, "EVENT_INVALID"},
		"an id on lines": {h.Emit(t.Context(), "e", 1, agent.WithID("a\nb")), fault.Invalid, "EVENT_INVALID"},
		"a large event":  {h.Emit(t.Context(), "e", strings.Repeat("x", 1<<20)), fault.TooLarge, "EVENT_TOO_LARGE"},
		"a usual update": {set("ok", 1), fault.Internal, ""},
	} {
		if fault.KindOf(test.err) != test.kind || fault.ReasonOf(test.err) != test.reason {
			t.Errorf("%s: %v, want %v (%s)", name, test.err, test.kind, test.reason)
		}
	}
	if f, _ := fault.From(set("big", strings.Repeat("x", 200))); f.Meta["changedKeys"] != "big,ok" || f.Meta["limitBytes"] != "100" {
		t.Errorf("metadata = %v, want the changed keys and the limit", f.Meta)
	}
	h.RecordUsage("a", "b", 1e16)
	for i := range 300 {
		h.RecordUsage("a", fmt.Sprint(i), 1)
	}
	ops, usage := h.End()
	if len(ops) != 1 || ops[0].Key != "ok" || len(usage) != 100 {
		t.Errorf("ops = %v, %d values, want ok and 100", ops, len(usage))
	}
}

func TestStateIsUpdatedFromManyGoroutinesAtOnce(t *testing.T) {
	t.Parallel()
	got := run(t, runner(), tool.Scope{State: agent.State{"n": json.Number("0")}}, func(ctx context.Context, call *agent.Call) (any, error) {
		errs := make(chan error, 20)
		for range 20 {
			go func() {
				errs <- agent.UpdateState(call, func(s *struct {
					N int `json:"n"`
				}) error {
					s.N += len(call.State()) // State may be called within Update
					return nil
				})
				call.RecordUsage("a", "b", 1)
				_ = call.Emit(ctx, "e", 1)
			}()
		}
		var all error
		for range 20 {
			all = errors.Join(all, <-errs)
		}
		return nil, all
	})
	if !got.Result.Success || len(got.Ops) != 1 || string(got.Ops[0].Value) != "20" {
		t.Errorf("got %+v, want n = 20", got)
	}
}
