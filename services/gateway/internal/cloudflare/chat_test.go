package cloudflare

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

func TestTheToolsOfAPageAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := &connection{ctx: t.Context(), Sockets: &Sockets{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	for _, tools := range []string{``, `7`, `[]`, `[{"name":"locate"},{"name":"beep"}]`, `[{"name":"locate"}]`} {
		if got := c.pageTools(json.RawMessage(tools)); got != nil {
			t.Errorf("%s: got %s, want no tools of an agent that takes none", tools, got)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `tools="[locate beep]"`) {
		t.Errorf("got %s", got)
	}
}
