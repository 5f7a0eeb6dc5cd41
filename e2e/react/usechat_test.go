package react_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// TestUseChat covers the actions of users in an app with useChat, each in a conversation of its own. The app
// sends automatically after the page's tools have run and the user has answered.
func TestUseChat(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	for name, tests := range map[string]map[string]func(*testing.T, *chat){
		"talking":   talking,
		"tools":     tools,
		"approvals": approvals,
		"tabs":      tabs,
		"trees":     trees,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, w.newChat(t))
				})
			}
		})
	}
}

func startWorld(t *testing.T) *world {
	t.Helper()
	w := &world{app: startApp(t), browser: startBrowser(t)}
	w.System = harness.Start(t, harness.Options{
		Agents: agents(), StateEnv: []string{harness.PatientState}, GatewayEnv: []string{"HOLDFAST_GATEWAY_CORS_ORIGINS=" + w.app.url},
	})
	w.app.front(w.URL)
	other := httptest.NewServer(http.HandlerFunc(w.app.pass))
	t.Cleanup(other.Close)
	w.crossing = other.URL
	return w
}
