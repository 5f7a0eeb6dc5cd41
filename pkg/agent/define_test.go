package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

type trip struct {
	City  string    `json:"city" jsonschema:"name of the city"`
	Days  int       `json:"days,omitempty"`
	Tags  []string  `json:"tags,omitempty"`
	Any   any       `json:"any,omitempty"`
	Begin time.Time `json:"begin,omitzero"`
}

func TestTheSchemaOfATypeDescribesItsJSON(t *testing.T) {
	t.Parallel()
	type all struct {
		Raw     json.RawMessage `json:"raw"`
		Bytes   []byte          `json:"bytes"`
		Number  json.Number     `json:"number"`
		Address netip.Addr      `json:"address"`
		Time    time.Time       `json:"time"`
		Big     *big.Int        `json:"big"`
		Pointer *int            `json:"pointer"`
		Lists   [][]string      `json:"lists"`
		Map     map[string]bool `json:"map"`
		hidden  func()
	}
	_ = all{}.hidden
	for _, test := range []struct {
		got  json.RawMessage
		want string
	}{
		{agent.SchemaOf[trip](), `{"type":"object","properties":{"city":{"type":"string","description":"name of the city"},"days":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}},"any":true,"begin":{"type":"string"}},"required":["city"],"additionalProperties":false}`},
		{agent.SchemaOf[struct{}](), `{"type":"object","properties":{},"additionalProperties":false}`},
		{agent.SchemaOf[[]int](), `{"type":"array","items":{"type":"integer"}}`},
		{agent.SchemaOf[map[string]int](), `{"type":"object","additionalProperties":{"type":"integer"}}`},
	} {
		if string(test.got) != test.want {
			t.Errorf("got  %s\nwant %s", test.got, test.want)
		}
	}
	schema, err := agent.CompileSchema(agent.SchemaOf[all]())
	if err != nil {
		t.Fatal(err)
	}
	one := 1
	data, err := json.Marshal(all{Raw: json.RawMessage(`[1]`), Bytes: []byte("x"), Number: "1.5", Address: netip.MustParseAddr("::1"), Big: big.NewInt(7), Pointer: &one, Lists: [][]string{{"a"}}, Map: map[string]bool{"a": true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(data); err != nil {
		t.Errorf("%s does not fit %s: %v", data, agent.SchemaOf[all](), err)
	}
}

func TestFieldsWithTheOptionStringAreStrings(t *testing.T) {
	t.Parallel()
	type account struct {
		ID   int64  `json:"id,string" jsonschema:"of the account"`
		Name string `json:"name"`
	}
	type accounts struct {
		account
		Limit *float64           `json:"limit,omitempty,string"`
		Live  bool               `json:"live,string"`
		More  map[string]account `json:"more"`
		List  []*account         `json:"list"`
	}
	limit := 1.5
	data, err := json.Marshal(accounts{account: account{ID: 1 << 62}, Limit: &limit, More: map[string]account{"a": {ID: 2}}, List: []*account{{ID: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	var got accounts
	tool := agent.NewTool("count", "", func(_ context.Context, _ *agent.Call, in accounts) (string, error) {
		got = in
		return "", nil
	})
	schema, err := agent.CompileSchema(tool.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(data); err != nil {
		t.Errorf("%s does not fit %s: %v", data, tool.InputSchema, err)
	}
	if _, err := tool.Execute(t.Context(), &agent.Call{Input: data}); err != nil || got.ID != 1<<62 || *got.Limit != limit || got.List[0].ID != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
	if want := `"id":{"type":"string","description":"of the account"}`; !strings.Contains(string(tool.InputSchema), want) {
		t.Errorf("the schema is %s, want %s in it", tool.InputSchema, want)
	}
	if err := schema.Check(json.RawMessage(`{"id":1,"name":"","live":"true","more":{},"list":[]}`)); err == nil {
		t.Error("a number fits, which the tool cannot read")
	}
}

func TestATypeWithoutASchemaPanicsWithAnExplanation(t *testing.T) {
	t.Parallel()
	type endless struct{ Next *endless }
	for want, define := range map[string]func(){
		`the input func() of the tool "t" has no JSON Schema`: func() { agent.ClientTool[func()]("t", "") },
		`is not an object; use a struct`:                      func() { agent.ClientTool[string]("t", "") },
		`cycle`:                                               func() { agent.SchemaOf[endless]() },
		`the type chan int has no JSON Schema`:                func() { agent.SchemaOf[chan int]() },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) {
					t.Errorf("panic with %s, want %s", text, want)
				}
			}()
			define()
		}()
	}
}

func TestATypedToolReadsItsInputExactly(t *testing.T) {
	t.Parallel()
	tool := agent.NewTool("t", "", func(_ context.Context, _ *agent.Call, in trip) (string, error) {
		return fmt.Sprintf("%s %d %v %T", in.City, in.Days, in.Any, in.Any), nil
	})
	for input, want := range map[string]string{
		`{"city":"Rome","days":3,"any":12345678901234567890}`: "Rome 3 12345678901234567890 json.Number",
		`{"city":"Rome","days":3.0,"any":1.50}`:               "Rome 3 1.50 json.Number",
		`{"city":"Rome","days":-12e2}`:                        "Rome -1200 <nil> <nil>",
		`{"city":"Rome","days":0.0e5}`:                        "Rome 0 <nil> <nil>",
		``:                                                    " 0 <nil> <nil>",
		`{"days":3.5}`:                                        "error: the arguments cannot be read",
		`{"days":1e99}`:                                       "error: the arguments cannot be read",
		`{"city":1}`:                                          "error: the arguments cannot be read",
		`[]`:                                                  "error: the arguments cannot be read",
	} {
		got, err := tool.Execute(t.Context(), &agent.Call{Input: json.RawMessage(input)})
		if err != nil {
			got = "error: " + err.Error()
		}
		if text := fmt.Sprint(got); text != want && !(strings.HasPrefix(want, "error") && strings.HasPrefix(text, want)) {
			t.Errorf("%s: %s, want %s", input, text, want)
		}
	}
}

func TestAMemberThatDiffersFromAFieldByCaseIsRefused(t *testing.T) {
	t.Parallel()
	type amount struct {
		Cents int `json:"cents"`
	}
	type base struct {
		Kind string `json:"kind,omitempty"`
	}
	type pay struct {
		base
		Amount int               `json:"amount"`
		To     []*amount         `json:"to"`
		By     map[string]amount `json:"by"`
		Any    any               `json:"any"`
		Begin  time.Time         `json:"begin"`
		Hidden int               `json:"-"`
	}
	tool := agent.NewTool("pay", "", func(_ context.Context, _ *agent.Call, in pay) (int, error) { return in.Amount, nil },
		agent.WithInputSchema(json.RawMessage(`{"type":"object"}`)), agent.ApproveWhen(func(_ context.Context, _ *agent.Call, in pay) (bool, error) { return in.Amount > 10, nil }))
	for input, want := range map[string]string{
		`{"amount":5,"other":1,"hidden":1,"Hidden":2}`:                      "",
		`{"amount":5,"any":{"Amount":1,"amount":2},"by":{"Amount":{}}}`:     "",
		`{"amount":5,"Amount":1000000}`:                                     `there is no member "Amount"; it is called "amount"`,
		`{"AMOUNT":1000000}`:                                                `there is no member "AMOUNT"; it is called "amount"`,
		`{"amount":5.0,"Amount":1e6}`:                                       `there is no member "Amount"; it is called "amount"`,
		`{"\u212aind":"x"}`:                                                 `it is called "kind"`,
		`{"to":[{"cents":1},{"centS":2}]}`:                                  `there is no member "centS"; it is called "cents"`,
		`{"by":{"x":{"Cents":2}}}`:                                          `there is no member "Cents"; it is called "cents"`,
		`{"to":[null],"by":null,"begin":"2020-01-01T00:00:00Z","amount":5}`: "",
	} {
		_, err := tool.Execute(t.Context(), &agent.Call{Input: json.RawMessage(input)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", input, err, want)
		}
		if asks := tool.NeedsApproval(t.Context(), &agent.Call{Input: json.RawMessage(input)}); asks != (want != "") {
			t.Errorf("%s needs approval = %v", input, asks)
		}
	}
}

func TestOptionsSetTheFieldsOfATool(t *testing.T) {
	t.Parallel()
	expensive := agent.ApproveWhen(func(_ context.Context, call *agent.Call, in trip) (bool, error) {
		switch in.City {
		case "panic":
			panic("oh")
		case "error":
			return false, errors.New("oh")
		}
		return in.Days > 3 && call.State()["rich"] == nil && call.UserID != "admin", nil
	})
	tool := agent.NewTool("book", "Books.", func(context.Context, *agent.Call, trip) (int, error) { return 0, nil },
		agent.Safe(), agent.Timeout(time.Minute), agent.FinishWith(), agent.StrictArguments(), agent.AnswerWithin(time.Hour), expensive,
		agent.WithOutputSchema(json.RawMessage(`{"type":"integer"}`)))
	if tool.Retry != agent.RetrySafe || tool.Timeout != time.Minute || !tool.FinishWith || !tool.Strict || tool.AnswerWithin != time.Hour || tool.OutputSchema == nil || tool.Client {
		t.Errorf("tool = %+v, want all that the options say", tool)
	}
	for _, test := range []struct {
		input, user string
		state       agent.State
		want        bool
	}{
		{`{"city":"x","days":4}`, "", nil, true}, {`{"city":"x","days":3}`, "", nil, false}, {`{"city":"x","days":4}`, "", agent.State{"rich": true}, false},
		{`{"city":"x","days":4}`, "admin", nil, false}, {`{"city":"panic"}`, "", nil, true}, {`{"city":"error"}`, "", nil, true}, {`{"city":1}`, "", nil, true},
	} {
		call := &agent.Call{Input: json.RawMessage(test.input), UserID: test.user, Host: draftHost{agent.NewDraft(test.state, nil, 0)}}
		if got := tool.NeedsApproval(t.Context(), call); got != test.want {
			t.Errorf("%s of %q with %v needs approval = %v, want %v", test.input, test.user, test.state, got, test.want)
		}
	}
	client := agent.ClientTool[trip]("ask", "Asks.", agent.WithInputSchema(json.RawMessage(`{"type":"object"}`)))
	if !client.Client || client.Execute != nil || string(client.InputSchema) != `{"type":"object"}` {
		t.Errorf("client tool = %+v, want one with its own schema", client)
	}
	look := agent.NewTool("look", "", func(context.Context, *agent.Call, struct{}) (any, error) { return nil, nil }, agent.ReadOnly())
	if !look.ReadOnly || !look.Repeatable() || tool.ReadOnly || !tool.Repeatable() {
		t.Errorf("look = %+v, book = %+v; want one that is read-only, and one that is safe to repeat", look, tool)
	}
	if gated := agent.NewTool("x", "", func(context.Context, *agent.Call, struct{}) (any, error) { return nil, nil }, agent.RequireApproval()); !gated.NeedsApproval(t.Context(), &agent.Call{}) || gated.Repeatable() {
		t.Errorf("gated tool = %+v, want one that always asks and never repeats", gated)
	}
}

// draftHost is a host with a state only.
type draftHost struct{ *agent.Draft }

func (draftHost) Emit(context.Context, string, any, ...agent.EmitOption) error { return nil }
func (draftHost) RecordUsage(kind, name string, _ float64)                     {}

func TestTypedStateWritesOnlyWhatItChanges(t *testing.T) {
	t.Parallel()
	type cart struct {
		Items []string       `json:"items"`
		Note  string         `json:"note,omitempty"`
		Total json.Number    `json:"total,omitempty"`
		Open  map[string]any `json:"open,omitempty"`
	}
	state, err := agent.ParseState([]byte(`{"items":["a"],"note":"x","total":1.10,"other":{"deep":1},"open":{"n":12345678901234567890}}`))
	if err != nil {
		t.Fatal(err)
	}
	d := agent.NewDraft(state, nil, 0)
	call := &agent.Call{Host: draftHost{d}}
	got, err := agent.GetState[cart](call)
	if err != nil || got.Note != "x" || got.Total != "1.10" {
		t.Errorf("GetState = %+v, %v, want the cart", got, err)
	}
	if err := agent.UpdateState(call, func(c *cart) error {
		c.Items = append(c.Items, "b")
		c.Note = ""
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if err := agent.UpdateState(call, func(c *cart) error { c.Items = nil; return no }); !errors.Is(err, no) {
		t.Errorf("UpdateState = %v, want the error", err)
	}
	if _, err := agent.GetState[struct {
		Items int `json:"items"`
	}](call); err == nil {
		t.Error("GetState of another type succeeds")
	}
	if err := agent.UpdateState(call, func(s *[]int) error { return nil }); err == nil {
		t.Error("UpdateState of a list succeeds")
	}
	if got := text(t, d.End()); got != `[{"Key":"items","Kind":"append","Value":["b"]},{"Key":"note","Kind":"delete","Value":null}]` {
		t.Errorf("ops = %s, want the append and the delete", got)
	}
	if got, err := agent.GetState[cart](&agent.Call{}); err != nil || got.Note != "" {
		t.Errorf("GetState without a run = %+v, %v, want the zero value", got, err)
	}
	if got, err := agent.DecodeState[cart](state); err != nil || got.Note != "x" || len(got.Items) != 1 {
		t.Errorf("DecodeState = %+v, %v, want the cart before the change", got, err)
	}
	for _, unfit := range []agent.State{{"items": 1}, {"items": make(chan int)}} {
		if _, err := agent.DecodeState[cart](unfit); fault.ReasonOf(err) != "STATE_INVALID" {
			t.Errorf("DecodeState of %v = %v, want STATE_INVALID", unfit, err)
		}
	}
}
