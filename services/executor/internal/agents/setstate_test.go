package agents

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agent/tooltest"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

const ticketAgent = `
agents:
  - name: a
    model: mine/x
    stateSchema: {type: object, properties: {done: {type: boolean}, id: {type: integer}, city: {type: string}}}
    stopWhen: {stateEquals: {done: true, id: 7}}
    tools:
      - name: close
        description: Closes a ticket.
        inputSchema: {type: object, properties: {where: {type: object}}}
        http: {url: %q}
        setState: {done: true, id: {result: ticket.id}, city: {argument: where.city}}
`

func TestAnHTTPToolWritesStateThatStopWhenSees(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("bad") != "" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = w.Write([]byte(`{"ticket":{"id":7}}`))
	}))
	t.Cleanup(server.Close)
	for query, want := range map[string]agent.State{"": {"done": true, "id": 7, "city": "Rome"}, "?bad=1": {}} {
		known := testKnown()
		known.HTTP = httptool.Peers{Policy: outbound.Policy{Hosts: []string{"127.0.0.1"}}}
		set, err := Parse(t.Context(), Source{Name: "a.yaml", Data: fmt.Appendf(nil, ticketAgent, server.URL+"/"+query)}, known)
		if err != nil {
			t.Fatal(err)
		}
		host, err := tooltest.NewHost(nil)
		if err != nil {
			t.Fatal(err)
		}
		a := set.Agents[0]
		_, err = a.Tools[0].Execute(t.Context(), &agent.Call{Input: []byte(`{"where":{"city":"Rome"}}`), Host: host})
		if (err == nil) != (query == "") {
			t.Fatalf("a call of %q: %v", query, err)
		}
		got := host.State()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("state = %v, want %v", got, want)
		}
		if stops, err := a.StopWhen(t.Context(), &agent.Progress{RunView: agent.RunView{State: got}}); err != nil || stops != (query == "") {
			t.Errorf("with %v the run stops: %v, %v", got, stops, err)
		}
	}
}

func TestSetStateDeletesTheKeysOfNulls(t *testing.T) {
	t.Parallel()
	setters := []stateSetter{
		{key: "null", from: "result", path: []string{"null"}}, {key: "missing", from: "result", path: []string{"missing"}},
		{key: "below", from: "result", path: []string{"null", "x"}}, {key: "argument", from: "argument", path: []string{"null"}},
		{key: "constant"}, {key: "found", from: "result", path: []string{"found"}},
	}
	before := agent.State{}
	for _, s := range setters {
		before[s.key] = "before"
	}
	host, err := tooltest.NewHost(before)
	if err != nil {
		t.Fatal(err)
	}
	call := &agent.Call{Input: []byte(`{"null":null}`), Host: host}
	if err := setState(call, setters, map[string]any{"null": nil, "found": "after"}); err != nil {
		t.Fatal(err)
	}
	want := agent.State{"missing": "before", "below": "before", "found": "after"}
	if got := host.State(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the state %v, want %v", got, want)
	}
}

func TestAnInvalidSetStateIsRefused(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]string{
		"{use: note, setState: {other: 1}}":                                 `the stateSchema has no property "other"`,
		"{use: note, setState: {done: {argument: ''}}}":                     "argument must be a path",
		"{use: note, setState: 1}":                                          "setState must be an object",
		"{name: ask, description: x, client: true, setState: {done: true}}": "setState is for tools that the executor runs",
		"{use: note, setState: {done: true}}":                               "",
	} {
		text := "agents:\n  - name: a\n    model: mine/x\n    stateSchema: {type: object, properties: {done: {}}}\n    tools: [" + tool + "]\n"
		_, err := Parse(t.Context(), Source{Name: "agents.yaml", Data: []byte(text)}, testKnown())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", tool, err, want)
		}
	}
}
