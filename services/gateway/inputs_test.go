package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestTheMetadataOfAMessageIsStoredAndShown(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	body := func(session, metadata string) string {
		return `{"sessionId":"` + session + `","messages":[{"text":"hi","metadata":` + metadata + `}]}`
	}
	if got := h.request(t, http.MethodPost, "/start", body("s", `{"from": "mobile"}`)); got.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", got.StatusCode, text(t, got))
	}
	h.AwaitRun(t, "default", "s", nil)
	if got := text(t, h.request(t, http.MethodGet, "/messages?sessionId=s", "")); !strings.Contains(got, `"from":"mobile"`) {
		t.Errorf("got %s, want the metadata", got)
	}
	const limit = 64 << 10 // bytes
	atLimit := `"` + strings.Repeat("x", limit-2) + `"`
	if got := h.request(t, http.MethodPost, "/start", body("limit", atLimit)); got.StatusCode != http.StatusOK {
		t.Errorf("at the limit: got %d %s", got.StatusCode, text(t, got))
	}
	wantFault(t, h.request(t, http.MethodPost, "/start", body("above", `[`+atLimit+`]`)), 400, "METADATA_INVALID")
}

func TestARefusalOfAnUnknownAgentNamesTheKnownOnes(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	const want = `"availableTypes":["demo","other"]`
	for path, body := range map[string]string{
		"/start": `{"message":"hi","agentType":"nobody"}`,
		"/chat":  `{"id":"s","agentType":"nobody","message":"hi"}`,
	} {
		refused := h.request(t, http.MethodPost, path, body, "Accept", "application/json")
		if got := text(t, refused); refused.StatusCode != http.StatusNotFound || !strings.Contains(got, want) {
			t.Errorf("%s: got %d %s, want %s", path, refused.StatusCode, got, want)
		}
	}
}
