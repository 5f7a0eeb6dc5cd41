package holdfast_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

// nats starts a NATS server that ends with the test.
func nats(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(limit) {
		t.Fatal("the NATS server does not start")
	}
	return s.ClientURL()
}

func TestCopiesOfTheProgramShareAllSessions(t *testing.T) {
	t.Parallel()
	database, servers := pgtest.URL(t), nats(t)
	run := func() *holdfast.Runtime {
		o := options(t, "", nothing)
		o.InMemory, o.Postgres, o.NATS = false, database, servers
		o.Data = "/dev/null/none" // nothing is stored there
		return start(t, o)
	}
	first, second := run(), run()
	waiting := say(t, within(t, first, holdfast.Caller{}), "shared", "refund 4")
	if got := approve(t, within(t, second, holdfast.Caller{}), waiting).Text; got != "Refunded 4." {
		t.Errorf("the second copy continues with %q", got)
	}
	if _, text := request(t, http.MethodPost, first.URL()+"/chat", message("live", "hello")); !strings.Contains(text, "You said: hello.") {
		t.Errorf("the first copy streams %s", text)
	}
	end(t, first)
	if got := say(t, within(t, second, holdfast.Caller{}), "shared", "thanks").Text; got != "You said: refund 4, thanks." {
		t.Errorf("without the first copy, the second says %q", got)
	}
}
