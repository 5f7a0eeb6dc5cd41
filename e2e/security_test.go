package e2e

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestAProcessThatWouldServeStrangersDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		binary string
		env    []string
		says   string
	}{
		"a gateway without keys": {"gateway", nil, "HOLDFAST_GATEWAY_API_KEYS"},
		"a gateway without keys beyond loopback": {"gateway",
			[]string{"HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true", "HOLDFAST_GATEWAY_LISTEN=0.0.0.0:0"}, "set HOLDFAST_GATEWAY_LISTEN to a port"},
		"a state service without a token beyond loopback": {"state",
			[]string{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_LISTEN=0.0.0.0:0"}, "set HOLDFAST_STATE_LISTEN to a port"},
		"a stream service without a token beyond loopback": {"stream",
			[]string{"HOLDFAST_STREAM_BUS=memory", "HOLDFAST_STREAM_LISTEN=0.0.0.0:0"}, "set HOLDFAST_STREAM_LISTEN to a port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if said := harness.MustNotStart(t, c.binary, c.env...); !strings.Contains(said, c.says) {
				t.Errorf("it ended with %q, which does not speak of %s", said, c.says)
			}
		})
	}
}

func TestAServiceIsNotForThoseWithoutTheToken(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents()})
	for name, token := range map[string]string{"no token": "", "another token": "another"} {
		conn, err := rpc.Dial(rpc.TCP(), s.State.Address, rpc.ClientConfig{Security: rpc.Security{Token: token}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = statev1.NewSessionServiceClient(conn).ListAgents(t.Context(), &statev1.ListAgentsRequest{})
		if got := fault.KindOf(err); got != fault.Unauthenticated {
			t.Errorf("with %s: got %v, want %v", name, err, fault.Unauthenticated)
		}
	}
}
