package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

var askedFor = regexp.MustCompile(`"toolCallId":"([^"]+)","approvalId":"([^"]+)"`)

// The agent accepts a denied sum; it reports an allowed sum that fails.
func TestTheDemoTellsASumThatIsForbiddenFromOneThatFails(t *testing.T) {
	t.Parallel()
	r := start(t, "--data", t.TempDir())
	for session, c := range map[string]struct {
		sum, want string
		approved  bool
	}{
		"forbidden": {"1234 * 5678", "Then I leave that sum alone.", false},
		"failed":    {"1000 / 0", "I could not work that out. Try something like 12 * (3 + 4).", true},
		"allowed":   {"1234 * 5678", "That makes 7006652.", true},
	} {
		got := r.do(t, http.MethodPost, "/chat", fmt.Sprintf(`{"id":%q,"agentType":"demo","messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":"What is %s?"}]}]}`, session, session, c.sum))
		asked := askedFor.FindStringSubmatch(got)
		if asked == nil {
			t.Fatalf("nobody is asked about %s: %s", c.sum, got)
		}
		r.do(t, http.MethodPost, "/chat/"+session+"/submit-tool-result",
			fmt.Sprintf(`{"toolCallId":%q,"kind":"approval-response","approvalId":%q,"approved":%t}`, asked[1], asked[2], c.approved))
		for end := time.Now().Add(limit); !strings.Contains(got, c.want); {
			if time.Now().After(end) {
				t.Fatalf("%s ends with %s, want %q", c.sum, got, c.want)
			}
			got = r.do(t, http.MethodGet, "/messages?sessionId="+session, "")
		}
	}
}
