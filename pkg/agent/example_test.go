package agent_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agent/tooltest"
)

// A tool with typed input and output. Its schema comes from the type.
func ExampleNewTool() {
	type place struct {
		City string `json:"city" jsonschema:"name of the city"`
		Days int    `json:"days,omitempty" jsonschema:"how many days, 1 by default"`
	}
	type forecast struct {
		Days []string `json:"days"`
	}
	tool := agent.NewTool("forecast", "Tells the weather.", func(_ context.Context, _ *agent.Call, in place) (forecast, error) {
		return forecast{Days: []string{"sun in " + in.City}}, nil
	}, agent.Safe())

	fmt.Println(string(tool.InputSchema))
	result, err := tool.Execute(context.Background(), &agent.Call{Input: json.RawMessage(`{"city":"Rome"}`)})
	fmt.Println(result, err)
	// Output:
	// {"type":"object","properties":{"city":{"type":"string","description":"name of the city"},"days":{"type":"integer","description":"how many days, 1 by default"}},"required":["city"],"additionalProperties":false}
	// {[sun in Rome]} <nil>
}

// A human must approve expensive calls, except in sessions with the plan gold.
func ExampleApproveWhen() {
	type order struct {
		Euros int `json:"euros"`
	}
	tool := agent.NewTool("order", "Orders.", func(context.Context, *agent.Call, order) (string, error) {
		return "ordered", nil
	}, agent.ApproveWhen(func(_ context.Context, call *agent.Call, in order) (bool, error) {
		return in.Euros > 100 && call.Metadata["plan"] != "gold", nil
	}))

	ctx, input := context.Background(), json.RawMessage(`{"euros":2000}`)
	fmt.Println(tool.NeedsApproval(ctx, &agent.Call{Input: input}))
	fmt.Println(tool.NeedsApproval(ctx, &agent.Call{Input: input, Metadata: map[string]string{"plan": "gold"}}))
	// Output:
	// true
	// false
}

// A tool that stores data in the custom state of its session.
func ExampleUpdateState() {
	type basket struct {
		Items []string `json:"items,omitempty"`
	}
	tool := agent.NewTool("add_item", "Puts an item into the basket.", func(_ context.Context, call *agent.Call, in struct {
		Item string `json:"item"`
	}) (string, error) {
		return "added", agent.UpdateState(call, func(b *basket) error {
			b.Items = append(b.Items, in.Item)
			return nil
		})
	})
	fmt.Println(tool.Name)
	// Output: add_item
}

// An event with an id that counts up as one entry, and a transient event for current readers.
func ExampleWithID() {
	type folder struct {
		Files []string `json:"files"`
	}
	upload := agent.NewTool("upload", "Uploads files.", func(ctx context.Context, call *agent.Call, in folder) (string, error) {
		for i, file := range in.Files {
			if err := call.Emit(ctx, "current", file, agent.Transient()); err != nil {
				return "", err
			}
			if err := call.Emit(ctx, "uploaded", i+1, agent.WithID("count")); err != nil {
				return "", err
			}
		}
		return "uploaded", nil
	})

	host, err := tooltest.NewHost(nil)
	if err != nil {
		panic(err)
	}
	if _, err := tooltest.Run(context.Background(), upload, host, `{"files":["a.txt","b.txt"]}`); err != nil {
		panic(err)
	}
	for _, e := range host.Events() {
		fmt.Printf("%s %s id=%q transient=%v\n", e.Name, e.Data, e.ID, e.Transient)
	}
	// Output:
	// current "a.txt" id="" transient=true
	// uploaded 1 id="count" transient=false
	// current "b.txt" id="" transient=true
	// uploaded 2 id="count" transient=false
}

// Check explains to a model how to repair a value.
func ExampleSchema_Check() {
	schema, err := agent.CompileSchema(json.RawMessage(`{
		"type": "object",
		"properties": {"days": {"type": "integer", "maximum": 10}, "unit": {"enum": ["celsius", "fahrenheit"]}},
		"required": ["days"],
		"additionalProperties": false
	}`))
	if err != nil {
		panic(err)
	}
	fmt.Println(schema.Check(json.RawMessage(`{"days": 12, "unit": "kelvin"}`)))
	fmt.Println(schema.Check(json.RawMessage(`{"dys": 1}`)))
	// Output:
	// /days must be at most 10, not 12; /unit must be one of "celsius", "fahrenheit"
	// /days is missing; /dys is not known; known are days, unit
}

// Problems returns all mistakes in an agent.
func ExampleAgent_Check() {
	a := agent.Agent{Name: "weather", Model: "gpt-5", Tools: []agent.Tool{{Name: "my tool"}}}
	for _, p := range a.Problems() {
		fmt.Println(p.Field + ": " + p.Text)
	}
	// Output:
	// model: it is "gpt-5", and must be provider/name, for example openai/gpt-5
	// tools[0].name: "my tool" must have 1 to 64 characters of A-Z a-z 0-9 _ -
	// tools[0].inputSchema: it is missing
	// tools[0]: the tool "my tool" has neither Execute, Client nor SubAgent
}
