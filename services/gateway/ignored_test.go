package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"
)

// Each key of the body has an effect, is refused, or is named in the response.
func TestNoKeyOfAChatRequestIsIgnoredInSilence(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	data := uiPart{"id": "u1", "role": "user", "parts": []any{textPart("hi"), uiPart{"type": "data-place", "data": 1}}}
	for name, test := range map[string]struct {
		key   string
		value any
		want  string // the header
	}{
		"trigger":           {"trigger", "submit-message", ""},
		"agentType":         {"agentType", "demo", ""},
		"onBusy":            {"onBusy", "enqueue", ""},
		"messageId":         {"messageId", "u1", ""},
		"state":             {"state", map[string]any{"a": 1}, "state"},
		"system":            {"system", "Be brief.", "system"},
		"tools":             {"tools", map[string]any{}, "tools"},
		"metadata":          {"metadata", map[string]any{}, "metadata"},
		"a strange name":    {"ü, é", 1, "%C3%BC%2C%20%C3%A9"},
		"a part of the app": {"messages", []any{data}, "data-place"},
	} {
		body := map[string]any{"id": "s-" + name, "messages": []any{userMessage("u1", "hi")}}
		body[test.key] = test.value
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		response := h.request(t, http.MethodPost, "/chat", string(text))
		if got := response.Header.Get("X-Holdfast-Ignored-Fields"); response.StatusCode != http.StatusOK || got != test.want {
			t.Errorf("%s: got %d, %q, want %q", name, response.StatusCode, got, test.want)
		}
	}
}
