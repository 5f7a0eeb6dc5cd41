package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

var (
	mutations    = flag.Int("mutations", 1000, "the number of mutated streams for each provider")
	mutationSeed = flag.Uint64("mutationseed", 1, "the seed of the mutated streams")
	oneMutation  = flag.Int("mutation", -1, "the number of the only mutated stream to try, to repeat a failure; -1 for all")
)

// maxMutants limits the failures that a test reports.
const maxMutants = 5

// event is an event of a recorded stream.
type event struct {
	name string
	data map[string]any
	raw  string // instead of data
}

// mutant is a stream that is being changed.
type mutant struct {
	*rand.Rand
	scenario Scenario
	want     Reply
	events   []event
	// broken means that the connection breaks at the end.
	broken bool
	// sealed means that the fragments of calls may not be changed further: they only just identify their calls.
	sealed bool
}

// mutation changes a stream within the protocol, as other servers do: the reply must stay the same.
type mutation func(m *mutant)

// RunMutations changes recorded streams in the ways of a protocol, and their framing in the ways of the standard. The model must read
// the same reply from each. The flag -mutations sets their number, -mutationseed the seed.
func RunMutations(t *testing.T, dir string, protocol []mutation, connect func(*http.Client) (model.Model, error)) {
	recorded := map[Scenario][]event{}
	wanted := map[Scenario]Reply{}
	var names []Scenario
	for _, scenario := range append(slices.Sorted(mapsKeys(completeReplies)), OneFragment, UnknownStop, Empty) {
		stream, err := os.ReadFile(filepath.Join(dir, string(scenario)+".sse"))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, scenario)
		recorded[scenario] = parseEvents(t, stream)
		wanted[scenario] = replyTo(t, connect, [][]byte{stream}, nil)
		if wanted[scenario].Err != nil {
			t.Fatalf("%s: got error %v", scenario, wanted[scenario].Err)
		}
	}
	failures := 0
	for n := range *mutations {
		if *oneMutation >= 0 && n != *oneMutation {
			continue
		}
		m := &mutant{Rand: rand.New(rand.NewPCG(*mutationSeed, uint64(n)))}
		m.scenario = names[m.IntN(len(names))]
		m.want = wanted[m.scenario]
		for _, e := range recorded[m.scenario] {
			m.events = append(m.events, event{e.name, clone(e.data).(map[string]any), e.raw})
		}
		for range m.IntN(7) {
			protocol[m.IntN(len(protocol))](m)
		}
		stream := m.frame()
		var end error
		if m.broken {
			end = errors.New("connection reset by peer")
		}
		got := replyTo(t, connect, m.pieces(stream), end)
		if diff := difference(got, m.want); diff != "" {
			t.Errorf("mutation %d of seed %d, %s: %s\n%q", n, *mutationSeed, m.scenario, diff, stream)
			if failures++; failures == maxMutants {
				t.Fatal("and so on")
			}
		}
	}
	t.Logf("%d mutations of seed %d gave the same replies", *mutations-failures, *mutationSeed)
}

func mapsKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// difference compares replies without call ids and provider data, which mutations change.
func difference(got, want Reply) string {
	strip := func(r Reply) string {
		var calls []string
		for _, c := range r.Calls {
			var arguments any
			_ = json.Unmarshal([]byte(c.Arguments), &arguments) // the escapes in them may differ
			calls = append(calls, fmt.Sprint(c.Name, arguments))
		}
		return fmt.Sprintf("text %q, reasoning %q, calls %q, usage %+v, finish %q, error %v", r.Text, r.Reasoning, calls, r.Usage, r.Finish,
			r.Err)
	}
	if g, w := strip(got), strip(want); g != w {
		return "\ngot  " + g + "\nwant " + w
	}
	return ""
}

// pieceReader gives the pieces of a body in turn.
type pieceReader struct {
	pieces [][]byte
	end    error
}

func (r *pieceReader) Read(p []byte) (int, error) {
	if len(r.pieces) == 0 {
		if r.end != nil {
			return 0, r.end
		}
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0])
	if r.pieces[0] = r.pieces[0][n:]; len(r.pieces[0]) == 0 {
		r.pieces = r.pieces[1:]
	}
	return n, nil
}

// RoundTrip implements http.RoundTripper.
func (r *pieceReader) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Request: req,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(r),
	}, nil
}

func replyTo(t *testing.T, connect func(*http.Client) (model.Model, error), pieces [][]byte, end error) Reply {
	t.Helper()
	m, err := connect(&http.Client{Transport: &pieceReader{pieces, end}})
	if err != nil {
		t.Fatal(err)
	}
	return Collect(t, m.Generate(t.Context(), NewRequest("m")))
}

// parseEvents reads a recording with LF line ends and one data line an event.
func parseEvents(t *testing.T, stream []byte) []event {
	t.Helper()
	var events []event
	for _, block := range strings.Split(strings.TrimSpace(string(stream)), "\n\n") {
		var e event
		for line := range strings.Lines(block) {
			field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch field {
			case "event":
				e.name = value
			case "data":
				e.raw = value
			}
		}
		decoder := json.NewDecoder(strings.NewReader(e.raw))
		decoder.UseNumber()
		if decoder.Decode(&e.data) == nil {
			e.raw = ""
		}
		events = append(events, e)
	}
	return events
}

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if value == nil {
			return value
		}
		out := map[string]any{}
		for k, v := range value {
			out[k] = clone(v)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, v := range value {
			out[i] = clone(v)
		}
		return out
	}
	return value
}

// chance reports true once in n times.
func (m *mutant) chance(n int) bool { return m.IntN(n) == 0 }

// pick returns one of several values.
func pick[T any](m *mutant, values ...T) T { return values[m.IntN(len(values))] }

// insert puts an event at a random place between from and the end less behind.
func (m *mutant) insert(e event, from, behind int) {
	last := max(from, len(m.events)-behind)
	at := from + m.IntN(last-from+1)
	m.events = slices.Insert(m.events, at, e)
}

// frame encodes the events with random framing.
func (m *mutant) frame() []byte {
	eol := pick(m, "\n", "\r\n", "\r")
	mixed := m.chance(4)
	var out bytes.Buffer
	line := func(text string) {
		out.WriteString(text)
		if mixed {
			// CR before LF would be one line end.
			eol = pick(m, "\n", "\r\n")
		}
		out.WriteString(eol)
	}
	if m.chance(5) {
		out.WriteString("\uFEFF")
	}
	noise := func() {
		switch m.IntN(12) {
		case 0:
			line(": keep-alive")
		case 1:
			line(":")
		case 2:
			line("id: " + strconv.Itoa(m.IntN(100)))
		case 3:
			line("retry: 3000")
		case 4:
			line("x-unknown: {\"a\":1}")
		case 5:
			line("")
		}
	}
	for i, e := range m.events {
		for m.chance(3) {
			noise()
		}
		switch {
		case e.name != "":
			line("event:" + pick(m, " ", "") + e.name)
		case e.data != nil && m.chance(8):
			line("event: " + pick(m, "message", "chunk", "completion"))
		}
		text := e.raw
		if e.data != nil {
			text = m.encode(e.data)
		}
		for _, part := range strings.Split(text, "\n") {
			line("data:" + pick(m, " ", "") + part)
		}
		if i < len(m.events)-1 || !m.chance(4) || m.broken {
			line("")
		}
	}
	return out.Bytes()
}

// encode returns JSON with its members in random order, random white space, also line ends, and random escapes.
func (m *mutant) encode(value any) string {
	space := func() string {
		if m.chance(40) {
			return pick(m, " ", "\n", "\t")
		}
		return ""
	}
	switch value := value.(type) {
	case map[string]any:
		keys := slices.Sorted(mapsKeys(value))
		m.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		var members []string
		for _, k := range keys {
			members = append(members, space()+m.encode(k)+space()+":"+space()+m.encode(value[k]))
		}
		return "{" + strings.Join(members, ",") + space() + "}"
	case []any:
		var items []string
		for _, v := range value {
			items = append(items, space()+m.encode(v))
		}
		return "[" + strings.Join(items, ",") + space() + "]"
	case string:
		return m.quote(value)
	}
	text, err := json.Marshal(value)
	if err != nil { // the values come from JSON
		panic(err)
	}
	return string(text)
}

func (m *mutant) quote(text string) string {
	plain := m.chance(2)
	out := []byte{'"'}
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		case r < ' ' || r > '~' && !plain || !plain && m.chance(30):
			for _, unit := range utf16Units(r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return string(append(out, '"'))
}

func utf16Units(r rune) []rune {
	const surrogates, low, high = 0x10000, 0xDC00, 0xD800
	if r < surrogates {
		return []rune{r}
	}
	r -= surrogates
	return []rune{high + r>>10, low + r&0x3FF}
}

// pieces splits a stream into reads of random sizes, also within characters and line ends.
func (m *mutant) pieces(stream []byte) [][]byte {
	largest := pick(m, 1, 3, 17, 200, 1<<20)
	var pieces [][]byte
	for len(stream) > 0 {
		n := min(len(stream), 1+m.IntN(largest))
		pieces = append(pieces, stream[:n])
		stream = stream[n:]
	}
	return pieces
}

// at returns a value within an event: names of members, and numbers of items.
func at(value any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[p]
		case int:
			list, _ := value.([]any)
			if p >= len(list) {
				return nil
			}
			value = list[p]
		}
	}
	return value
}

func textAt(value any, path ...any) string {
	text, _ := at(value, path...).(string)
	return text
}

func objectAt(value any, path ...any) map[string]any {
	object, _ := at(value, path...).(map[string]any)
	return object
}

// splitText splits a text at a random index between characters.
func (m *mutant) splitText(text string) (string, string) {
	runes := []rune(text)
	n := m.IntN(len(runes) + 1)
	return string(runes[:n]), string(runes[n:])
}

// splitEvent replaces a random event with a text at path by two events with a part each.
func (m *mutant) splitEvent(isOne func(event) bool, path ...any) {
	var places []int
	for i, e := range m.events {
		if e.data != nil && isOne(e) && textAt(e.data, path...) != "" {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return
	}
	i := places[m.IntN(len(places))]
	first, second := m.events[i], event{m.events[i].name, clone(m.events[i].data).(map[string]any), ""}
	head, tail := m.splitText(textAt(first.data, path...))
	name := path[len(path)-1].(string)
	objectAt(first.data, path[:len(path)-1]...)[name] = head
	objectAt(second.data, path[:len(path)-1]...)[name] = tail
	m.events = slices.Insert(m.events, i+1, second)
}

// addUnknown adds members that no protocol has to random objects, except to those below the members in opaque.
func (m *mutant) addUnknown(value any, opaque ...string) {
	switch value := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(mapsKeys(value)) {
			if !slices.Contains(opaque, k) {
				m.addUnknown(value[k], opaque...)
			}
		}
		if m.chance(3) {
			value["x_"+strconv.Itoa(m.IntN(10))] = pick[any](m, nil, "new", json.Number("1.5"), true, []any{"a"}, map[string]any{"b": nil})
		}
	case []any:
		for _, v := range value {
			m.addUnknown(v, opaque...)
		}
	}
}
