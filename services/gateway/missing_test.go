package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// cutConversation has two turns, and returns the message and the answer of the first, and the run of the second.
func cutConversation(t *testing.T, h *fixture) (message, answer uiPart, last *Run) {
	t.Helper()
	message, answer = userMessage("u1", "one"), assistant("msg_run1", textPart("One."))
	stream := h.chat(t, postOf("s1", message))
	run := playText(t, h, nil, 1, "One.")
	stream.rest()
	stream = h.chat(t, postOf("s1", message, answer, userMessage("u2", "two")))
	last = playText(t, h, run, 2, "Two.")
	stream.rest()
	return message, answer, last
}

// Editors of conversations cut the messages behind the edited one, and send its new form as a new message.
func TestAConversationThatAClientHasCutIsCut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change                 func(*gateway.Config)
		removed, missing, want string
		status                 int
	}{
		"by default": {nil, "2", "", "u1: one; msg_run1: One.; u3: zwei; msg_run3: Zwei.", http.StatusOK},
		"kept":       {func(c *gateway.Config) { c.ChatMissing = "keep" }, "", "", "u1: one; msg_run1: One.; u2: two; msg_run2: Two.; u3: zwei; msg_run3: Zwei.", http.StatusOK},
		"refused":    {func(c *gateway.Config) { c.ChatMissing = "refuse" }, "", "", "u1: one; msg_run1: One.; u2: two; msg_run2: Two.", http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, test.change)
			message, answer, last := cutConversation(t, h)
			body := postOf("s1", message, answer, userMessage("u3", "zwei"))
			response := h.request(t, http.MethodPost, "/chat", body)
			if response.StatusCode != test.status {
				t.Fatalf("status: got %d, want %d", response.StatusCode, test.status)
			}
			for header, want := range map[string]string{"X-Holdfast-Removed-Messages": test.removed, "X-Holdfast-Missing-Messages": test.missing} {
				if got := response.Header.Get(header); got != want {
					t.Errorf("%s: got %q, want %q", header, got, want)
				}
			}
			if test.status != http.StatusOK {
				if got := text(t, response); !strings.Contains(got, "newer messages") {
					t.Errorf("got %q", got)
				}
			} else {
				stream := streamOf(t, response)
				playText(t, h, last, 3, "Zwei.")
				stream.rest()
				again := h.request(t, http.MethodPost, "/chat", body)
				if got := again.Header.Get("X-Holdfast-Run-Id"); got != response.Header.Get("X-Holdfast-Run-Id") {
					t.Errorf("the repeated request has run %s", got)
				}
			}
			if got := storedConversation(t, h); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
