package eventv1_test

import (
	"encoding/json"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func chunk(set func(*eventv1.Chunk)) *eventv1.Chunk {
	c := &eventv1.Chunk{AgentId: "run-1", AgentType: "demo", Timestamp: 1700000000123, Step: 2}
	set(c)
	return c
}

func TestAChunkIsOneFlatObjectWithTheNamesOfTheSpecification(t *testing.T) {
	t.Parallel()
	const base = `"agentId":"run-1","agentType":"demo","timestamp":1700000000123,"step":2`
	for name, tc := range map[string]struct {
		set  func(*eventv1.Chunk)
		want string
	}{
		"text": {
			func(c *eventv1.Chunk) {
				c.Event = &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "a\n\"b\" ☃"}}
			},
			`{"type":"text_delta",` + base + `,"delta":"a\n\"b\" ☃"}`,
		},
		"arguments are embedded, on one line": {
			func(c *eventv1.Chunk) {
				c.Event = &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "c1", ToolName: "add", Arguments: "{\n\"n\": 9007199254740993\n}"}}
			},
			`{"type":"tool_start",` + base + `,"toolCallId":"c1","toolName":"add","arguments":{"n": 9007199254740993},"awaitsClient":false,"dynamic":false}`,
		},
		"no result": {
			func(c *eventv1.Chunk) {
				c.Event = &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: "c1", ToolName: "add", Error: "boom"}}
			},
			`{"type":"tool_end",` + base + `,"toolCallId":"c1","toolName":"add","success":false,"error":"boom"}`,
		},
		"a nested object": {
			func(c *eventv1.Chunk) {
				c.Event = &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{Output: `"hi"`, FinishReason: "stop", Usage: &eventv1.Usage{PromptTokens: 3, TotalTokens: 3}}}
			},
			`{"type":"run_completed",` + base + `,"output":"hi","finishReason":"stop","usage":{"promptTokens":3,"completionTokens":0,"reasoningTokens":0,"cachedTokens":0,"totalTokens":3},"completionReason":""}`,
		},
		"an event without fields": {
			func(c *eventv1.Chunk) { c.Event = &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}} },
			`{"type":"step_started",` + base + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := eventv1.MarshalChunk(chunk(tc.set))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if !json.Valid(got) {
				t.Error("not JSON")
			}
		})
	}
}

func TestEveryTextIsQuotedAsPackageJSONDoes(t *testing.T) {
	t.Parallel()
	texts := []string{"", "plain text, 100 % {of} [it]!", "\u2028", "☃", "a\xffb"}
	for c := range 256 {
		texts = append(texts, string([]byte{'a', byte(c), 'b'}), string(rune(c)))
	}
	for _, text := range texts {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"type":"text_delta","agentId":"run-1","agentType":"demo","timestamp":1700000000123,"step":2,"delta":` + string(quoted) + "}"
		got, err := eventv1.MarshalChunk(chunk(func(c *eventv1.Chunk) {
			c.Event = &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}}
		}))
		if string(got) != want || err != nil {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
}

func BenchmarkMarshalChunk(b *testing.B) {
	c := chunk(func(c *eventv1.Chunk) {
		c.Event = &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: " some words of a text"}}
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := eventv1.MarshalChunk(c); err != nil {
			b.Fatal(err)
		}
	}
}

func TestEveryEventHasANativeForm(t *testing.T) {
	t.Parallel()
	m := (&eventv1.Chunk{}).ProtoReflect()
	events := m.Descriptor().Oneofs().ByName("event").Fields()
	for i := range events.Len() {
		f := events.Get(i)
		c := &eventv1.Chunk{}
		r := c.ProtoReflect()
		r.Set(f, r.NewField(f))
		b, err := eventv1.MarshalChunk(c)
		if err != nil || !json.Valid(b) {
			t.Errorf("%s: %s, %v", f.Name(), b, err)
		}
		if got := c.Type(); got != string(f.Name()) {
			t.Errorf("type: got %q, want %q", got, f.Name())
		}
	}
}

func TestAChunkWithoutANativeFormIsAnError(t *testing.T) {
	t.Parallel()
	broken := chunk(func(c *eventv1.Chunk) {
		c.Event = &eventv1.Chunk_Custom{Custom: &eventv1.Custom{EventName: "x", Data: "{"}}
	})
	for name, c := range map[string]*eventv1.Chunk{"no event": {AgentId: "r"}, "not JSON": broken} {
		if b, err := eventv1.MarshalChunk(c); err == nil {
			t.Errorf("%s: got %s, want an error", name, b)
		}
	}
}
