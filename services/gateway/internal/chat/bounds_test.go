package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// hostileBodies are bodies of about six MB with as much work for the decoder as a sender can put into them.
func hostileBodies() map[string]string {
	const size = 6 << 20
	list := func(item string) string { return strings.Repeat(item+",", size/(len(item)+1)) + item }
	call := `{"type":"tool-a","toolCallId":"c","state":"output-available","output":1}`
	var calls strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&calls, `{"type":"tool-a","toolCallId":"c%d","state":"output-available","output":1},`, i)
	}
	assistant := func(parts string) string { return `{"role":"assistant","parts":[` + parts + `]}` }
	return map[string]string{
		"answers":               `{"id":"s","messages":[` + assistant(list(call)) + `]}`,
		"texts of an answer":    `{"id":"s","messages":[` + assistant(list(`{"type":"text","text":""}`)) + `]}`,
		"empty parts":           `{"id":"s","messages":[` + assistant(list(`{}`)) + `]}`,
		"repeated lists":        `{"id":"s","messages":[{"role":"assistant","parts":[` + calls.String() + `1],` + list(`"parts":[]`) + `}]}`,
		"earlier answers":       `{"id":"s","messages":[` + assistant(list(call)) + `,{"role":"user","parts":[{"type":"text","text":"x"}]}]}`,
		"messages":              `{"id":"s","messages":[` + list(assistant(`{"type":"text","text":"x"}`)) + `]}`,
		"keys":                  `{"id":"s",` + list(`"":1`) + `}`,
		"lists of messages":     `{"id":"s",` + list(`"messages":[`+assistant(call)+`]`) + `}`,
		"parts of old messages": `{"id":"s","messages":[` + strings.Repeat(assistant(strings.Repeat(call+",", 100)+`1`)+",", 700) + `1]}`,
	}
}

func BenchmarkHostileBodies(b *testing.B) {
	for name, text := range hostileBodies() {
		body := []byte(text)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_ = json.Unmarshal(body, &request{budget: partBudget{max: 10_000}})
			}
		})
	}
}

func TestTheDecodedPartsOfABodyAreCounted(t *testing.T) {
	t.Parallel()
	const most = 3000
	call := `{"type":"tool-a","toolCallId":"c","state":"output-available","output":1}`
	assistant := func(parts int) string {
		return `{"role":"assistant","parts":[` + strings.TrimSuffix(strings.Repeat(call+",", parts), ",") + `]}`
	}
	for name, form := range map[string]string{
		"the last message":           `{"messages":[1,%s]}`,
		"the message alone":          `{"message":%s}`,
		"an earlier message":         `{"messages":[%s,{"role":"user"}]}`,
		"a list twice":               `{"messages":[{"role":"user"}],"messages":[%s]}`,
		"messages that are no reply": `{"messages":[{"id":7,"role":"assistant","parts":[1]},%s,{"role":"user"}]}`,
	} {
		for parts, want := range map[int]string{most - 1: "", most + 1: tooManyParts} {
			r := request{budget: partBudget{max: most}}
			if got := fault.ReasonOf(json.Unmarshal(fmt.Appendf(nil, form, assistant(parts)), &r)); got != want {
				t.Errorf("%s of %d parts: got %q, want %q", name, parts, got, want)
			}
		}
	}
}

func TestThePartsOfAHistoryAreCounted(t *testing.T) {
	t.Parallel()
	p := &post{body: &request{budget: partBudget{max: 2000}}}
	message := rawValue{text: []byte(`{"role":"user","parts":[` + strings.Repeat(`{"type":"text","text":"x"},`, 999) + `{"type":"text","text":"x"}]}`)}
	if got, err := p.history([]rawValue{message, message}, 2); len(got) != 2 || err != nil {
		t.Errorf("got %d messages, %v, want 2", len(got), err)
	}
	if _, err := p.history([]rawValue{message, message, {text: []byte(`{"parts":[1]}`)}}, 3); fault.ReasonOf(err) != tooManyParts {
		t.Errorf("got %v, want %s", err, tooManyParts)
	}
}
