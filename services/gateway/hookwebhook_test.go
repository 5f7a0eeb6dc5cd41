package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// Secrets of the application, before and after a rotation.
const (
	oldSecret = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"
	newSecret = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3"
)

// asked is what the application gets.
type asked struct {
	Type, Kind, Tenant, Actor, SessionID string
	Session                              *struct{ Status, AgentType string }
	Request                              *struct {
		Messages []struct{ Text string }
		Metadata map[string]string
	}
	HTTP *struct{ Method, Path string }
}

// application is a receiver of the webhook that verifies requests with one secret.
func application(t *testing.T, secret string, answer http.HandlerFunc) (url string) {
	t.Helper()
	parsed, err := webhook.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	verifier := webhook.Verifier{Secrets: []webhook.Secret{parsed}, Seen: &webhook.Memory{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = verifier.Verify(r.Header, body, time.Now())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if err := verifier.Verify(r.Header, body, time.Now()); fault.ReasonOf(err) != "REPLAYED" {
			t.Errorf("the request could be replayed: %v", err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// hooksFile writes a file for HOLDFAST_GATEWAY_HOOKS.
func hooksFile(t *testing.T, url, more string, secrets ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hooks.yaml")
	text := fmt.Sprintf("beforeEntry:\n  url: %s\n  secrets: [%s]\n%s", url, strings.Join(secrets, ", "), more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// reply answers with JSON.
func replyJSON(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = io.WriteString(w, text)
}

const startBody = `{"sessionId":"s","message":"hi","metadata":{"a":"1"}}`

func TestAWebhookIsAskedBeforeAnEntry(t *testing.T) {
	t.Parallel()
	var got asked
	url := application(t, newSecret, func(w http.ResponseWriter, r *http.Request) {
		got = asked{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		switch {
		case got.Kind == "stop":
			replyJSON(w, `{"refuse":{"status":409,"code":"NOT_NOW","message":"It must end by itself."}}`)
		case got.Session == nil:
			replyJSON(w, `{"request":{"metadata":{"b":"2"},"tags":["vip"]}}`)
		default:
			replyJSON(w, `{}`)
		}
	})
	// The application knows the new secret, and the gateway still signs with the old one as well.
	file := hooksFile(t, url, "", oldSecret, newSecret)
	h := openHooked(t, gateway.Peers{}, func(c *gateway.Config) { c.Hooks = file })
	if r := h.request(t, http.MethodPost, "/start", startBody); r.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", r.StatusCode, text(t, r))
	}
	if got.Type != "beforeEntry" || got.Kind != "start" || got.Tenant != "default" || got.Actor != "local" || got.SessionID != "s" || got.Session != nil ||
		got.Request.Messages[0].Text != "hi" || got.HTTP.Method != "POST" || got.HTTP.Path != "/start" {
		t.Errorf("the application was asked %+v", got)
	}
	s := h.State.Get("default", "s").GetSession()
	if m := s.GetMetadata(); len(m) != 1 || m["b"] != "2" || len(s.GetTags()) != 1 {
		t.Errorf("the session has the metadata %v and the tags %v, want those of the application alone", m, s.GetTags())
	}
	h.AwaitRun(t, "default", "s", nil)
	wantFault(t, h.request(t, http.MethodPost, "/interrupt", `{"sessionId":"s"}`), 409, "NOT_NOW")
	if got.Session == nil || got.Session.Status != "active" || got.Session.AgentType != "demo" {
		t.Errorf("the application was asked about a stop with the session %+v", got.Session)
	}
}

func TestAWebhookThatDoesNotAnswerRefusesOrAllows(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		replyJSON(w, `{}`)
	}))
	t.Cleanup(other.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"a wrong secret": nil,
		"down":           nil,
		"slow":           func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"slow to write": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			replyJSON(w, `{"request":"`+strings.Repeat("x", 2<<20)+`"}`)
		},
		"redirecting": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"an error":         func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oh", http.StatusInternalServerError) },
		"no content":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"no JSON":          func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") },
		"half a JSON":      func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, `{"request":`) },
		"more than a JSON": func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, `{} {}`) },
		"an unknown field": func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, `{"request":{"tenant":"other"}}`) },
		"a wrong status":   func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, `{"refuse":{"status":200}}`) },
		"two answers":      func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, `{"refuse":{"status":400},"request":{}}`) },
	} {
		for _, onFailure := range []string{"refuse", "allow"} {
			t.Run(name+", "+onFailure, func(t *testing.T) {
				t.Parallel()
				url, secret := gone.URL, newSecret
				if answer != nil {
					url = application(t, newSecret, answer)
				} else if name == "a wrong secret" {
					url, secret = application(t, newSecret, func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, `{}`) }), oldSecret
				}
				file := hooksFile(t, url, "  timeout: 100ms\n  onFailure: "+onFailure+"\n", secret)
				if !strings.HasPrefix(name, "slow") { // only these must meet the time-out
					file = hooksFile(t, url, "  timeout: 1m\n  onFailure: "+onFailure+"\n", secret)
				}
				h := openHooked(t, gateway.Peers{}, func(c *gateway.Config) { c.Hooks = file })
				r := h.request(t, http.MethodPost, "/start", startBody)
				if onFailure == "refuse" {
					wantFault(t, r, 503, "HOOK_UNAVAILABLE")
				} else if r.StatusCode != http.StatusOK {
					t.Errorf("got %d %s, want 200", r.StatusCode, text(t, r))
				}
				if got, want := h.State.Has("default", "s"), onFailure == "allow"; got != want {
					t.Errorf("there is a session: %v, want %v", got, want)
				}
			})
		}
	}
	t.Cleanup(func() {
		if got := elsewhere.Load(); got != 0 {
			t.Errorf("%d redirects were followed", got)
		}
	})
}

func TestAWebhookIsAskedAboutItsKindsAlone(t *testing.T) {
	t.Parallel()
	url := application(t, newSecret, func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, `{"refuse":{"status":403}}`) })
	file := hooksFile(t, url, "  kinds: [stop]\n", newSecret)
	h := openHooked(t, gateway.Peers{}, func(c *gateway.Config) { c.Hooks = file })
	if r := h.request(t, http.MethodPost, "/start", startBody); r.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", r.StatusCode, text(t, r))
	}
	wantFault(t, h.request(t, http.MethodPost, "/abort", `{"sessionId":"s"}`), 403, "ENTRY_REFUSED")
}

func TestAWrongFileOfHooksSaysWhatToChange(t *testing.T) {
	t.Parallel()
	const https = "https://app.example/hook"
	for name, test := range map[string]struct{ file, says string }{
		"no file":          {filepath.Join(t.TempDir(), "none.yaml"), "none.yaml"},
		"no URL":           {hooksFile(t, `""`, "", newSecret), "beforeEntry.url"},
		"another scheme":   {hooksFile(t, "ftp://app.example", "", newSecret), "beforeEntry.url"},
		"plain HTTP":       {hooksFile(t, "http://app.example", "", newSecret), "must be https"},
		"a user":           {hooksFile(t, "https://me:secret@app.example", "", newSecret), "without a user"},
		"no secret":        {hooksFile(t, https, ""), "beforeEntry.secrets"},
		"a wrong secret":   {hooksFile(t, https, "", "hush"), "whsec_"},
		"a wrong kind":     {hooksFile(t, https, "  kinds: [chat]\n", newSecret), "the kinds are"},
		"a wrong rule":     {hooksFile(t, https, "  onFailure: ignore\n", newSecret), "refuse or allow"},
		"a long time-out":  {hooksFile(t, https, "  timeout: 1h\n", newSecret), "at most 1m0s"},
		"an unknown field": {hooksFile(t, https, "  retries: 3\n", newSecret), "retries"},
	} {
		var c gateway.Config
		if err := config.Load(&c, nil); err != nil {
			t.Fatal(err)
		}
		c.InsecureNoAuth, c.Hooks = true, test.file
		service, err := gateway.New(t.Context(), c, gateway.Peers{Network: New(t).Network})
		if service != nil || fault.ReasonOf(err) != "HOOKS_INVALID" || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want HOOKS_INVALID about %q", name, err, test.says)
		}
		if err != nil && strings.Contains(err.Error(), "me:secret") {
			t.Errorf("%s: the error has the password", name)
		}
	}
}
