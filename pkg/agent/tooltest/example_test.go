package tooltest_test

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agent/tooltest"
)

type basket struct {
	Items []string `json:"items"`
}

var addItem = agent.NewTool("add_item", "Puts an item into the basket.", func(ctx context.Context, call *agent.Call, in struct {
	Item string `json:"item"`
}) (string, error) {
	call.RecordUsage("basket", "items", 1)
	if err := call.Emit(ctx, "basket", in.Item); err != nil {
		return "", err
	}
	return "added " + in.Item, agent.UpdateState(call, func(b *basket) error {
		b.Items = append(b.Items, in.Item)
		return nil
	})
})

// The result of a tool, and what it does to its run.
func Example() {
	host, err := tooltest.NewHost(agent.State{"items": []string{"bread"}})
	if err != nil {
		panic(err)
	}
	result, err := tooltest.Run(context.Background(), addItem, host, `{"item":"milk"}`)
	fmt.Println(string(result), err)
	fmt.Println(host.State()["items"], host.Usage(), host.Events()[0].Name)

	_, err = tooltest.Run(context.Background(), addItem, host, `{"itm":"milk"}`)
	fmt.Println(err)
	// Output:
	// "added milk" <nil>
	// [bread milk] [{basket items 1}] basket
	// the arguments do not fit: /item is missing; /itm is not known; known are item
}
