package tooltest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agent/tooltest"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestACallHasTheFactsOfItsTest(t *testing.T) {
	t.Parallel()
	whose := agent.NewTool("whose", "", func(_ context.Context, call *agent.Call, in struct{ N int }) (string, error) {
		return fmt.Sprint(call.Tool, " ", call.UserID, " ", call.Metadata["plan"], " ", in.N), nil
	})
	call := &agent.Call{UserID: "ann", Metadata: map[string]string{"plan": "gold"}, Input: json.RawMessage(`{"N":7}`)}
	got, err := tooltest.RunCall(t.Context(), whose, call)
	if err != nil || string(got) != `"whose ann gold 7"` || call.Tool != "" {
		t.Errorf("got %s, %v, and the call %+v; want what the call has, unchanged", got, err, call)
	}
	call.Input = json.RawMessage(`{"N":"x"}`)
	if got, err := tooltest.RunCall(t.Context(), whose, call); err == nil {
		t.Errorf("with another argument: got %s, want a refusal", got)
	}
}

func TestAnEventWithAnInvalidIDIsRefusedAsInProduction(t *testing.T) {
	t.Parallel()
	host, err := tooltest.NewHost(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "a\nb", "a\xff"} {
		if err := host.Emit(t.Context(), "e", 1, agent.WithID(id)); fault.ReasonOf(err) != "EVENT_INVALID" {
			t.Errorf("Emit with the id %q = %v, want EVENT_INVALID", id, err)
		}
	}
	if got := host.Events(); len(got) != 0 {
		t.Errorf("events = %v, want none", got)
	}
}
