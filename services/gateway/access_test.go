package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
)

func keysFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// openWithKeys opens a gateway with API keys: one of the tenant acme, and one of another tenant.
func openWithKeys(t *testing.T) (h *fixture, acme, other string) {
	t.Helper()
	acme, sumA := gateway.NewAPIKey()
	other, sumB := gateway.NewAPIKey()
	if acme == other || sumA == sumB {
		t.Fatal("two keys are the same")
	}
	file := keysFile(t, "- {name: a, tenant: acme, scopes: [admin], sha256: "+sumA+"}\n- name: b\n  tenant: other one\n  scopes: [admin]\n  sha256: "+sumB+"\n")
	return open(t, func(c *gateway.Config) {
		c.APIKeys, c.InsecureNoAuth, c.TokenSecrets = file, false, []string{strings.Repeat("s", 32)}
	}), "Bearer " + acme, "Bearer " + other
}

func TestACallWithoutAGoodKeyIsUnauthenticated(t *testing.T) {
	t.Parallel()
	h, good, _ := openWithKeys(t)
	key := strings.TrimPrefix(good, "Bearer ")
	for name, tc := range map[string]struct{ header, code string }{
		"none":        {"", "API_KEY_MISSING"},
		"wrong":       {good + "x", "API_KEY_WRONG"},
		"empty":       {"Bearer ", "API_KEY_WRONG"},
		"no scheme":   {key, "API_KEY_WRONG"},
		"another one": {"Basic " + key, "API_KEY_WRONG"},
		"very long":   {"Bearer " + strings.Repeat("x", 4000), "API_KEY_WRONG"},
		"two spaces":  {"Bearer  " + key, "API_KEY_WRONG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"), "Authorization", tc.header)
			if got := response.Header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
				t.Errorf("WWW-Authenticate: got %q", got)
			}
			wantFault(t, response, http.StatusUnauthorized, tc.code)
		})
	}
}

func TestAKeyNamesTheTenant(t *testing.T) {
	t.Parallel()
	h, acme, other := openWithKeys(t)
	stream := h.chat(t, chatBody("s1", "hi"), "Authorization", strings.Replace(acme, "Bearer", "bearer", 1))
	playAnswer(h.AwaitRun(t, "acme", "s1", nil))
	stream.rest()
	wantFault(t, h.request(t, http.MethodGet, "/status?sessionId=s1", "", "Authorization", other), 404, "SESSION_NOT_FOUND")
	if got := h.request(t, http.MethodGet, "/chat/s1/stream", "", "Authorization", other).StatusCode; got != http.StatusNoContent {
		t.Errorf("another tenant's chat: got %d, want 204", got)
	}
}

func TestHealthAndThePageAskForNoKey(t *testing.T) {
	t.Parallel()
	h, _, _ := openWithKeys(t)
	for _, path := range []string{"/healthz", "/readyz", "/", "/assets/chat.js"} {
		if got := h.request(t, http.MethodGet, path, "").StatusCode; got != http.StatusOK {
			t.Errorf("%s: got %d, want 200", path, got)
		}
	}
}

func TestConfigurationsThatAreNotSafeAreRefused(t *testing.T) {
	t.Parallel()
	_, sum := gateway.NewAPIKey()
	good := keysFile(t, "- {name: a, tenant: acme, sha256: "+sum+"}\n")
	for name, tc := range map[string]struct {
		change func(*gateway.Config)
		reason string
	}{
		"nothing is said": {func(*gateway.Config) {}, "CONFIG_INVALID"},
		"both are said":   {func(c *gateway.Config) { c.APIKeys, c.InsecureNoAuth = good, true }, "CONFIG_INVALID"},
		"no file":         {func(c *gateway.Config) { c.APIKeys = "/nowhere" }, "API_KEYS_INVALID"},
		"an empty file":   {func(c *gateway.Config) { c.APIKeys = keysFile(t, "") }, "API_KEYS_INVALID"},
		"a short secret":  {func(c *gateway.Config) { c.APIKeys, c.TokenSecrets = good, []string{"short"} }, "CONFIG_INVALID"},
		"no lifetime of tokens": {func(c *gateway.Config) {
			c.APIKeys, c.TokenMaxTTL, c.TokenSecrets = good, 0, []string{strings.Repeat("s", 32)}
		}, "CONFIG_INVALID"},
		"no failures":            {func(c *gateway.Config) { c.APIKeys, c.AuthFailures = good, 0 }, "CONFIG_INVALID"},
		"an issuer without more": {func(c *gateway.Config) { c.JWT.Issuer = "https://login.example.com" }, "CONFIG_INVALID"},
		"a JWT and no auth":      {func(c *gateway.Config) { c.JWT.Issuer, c.InsecureNoAuth = "https://login.example.com", true }, "CONFIG_INVALID"},
		"a right of old": {func(c *gateway.Config) {
			c.APIKeys = keysFile(t, "- {name: a, tenant: x, sha256: "+sum+", systemMessages: true}")
		}, "API_KEYS_INVALID"},
		"an unknown scope": {func(c *gateway.Config) {
			c.APIKeys = keysFile(t, "- {name: a, tenant: x, sha256: "+sum+", scopes: [root]}")
		}, "API_KEYS_INVALID"},
		"a long user": {func(c *gateway.Config) {
			c.APIKeys = keysFile(t, "- {name: a, tenant: x, sha256: "+sum+", subject: "+strings.Repeat("x", 257)+"}")
		}, "API_KEYS_INVALID"},
		"a short digest":          {func(c *gateway.Config) { c.APIKeys = keysFile(t, "- {name: a, tenant: x, sha256: ab}") }, "API_KEYS_INVALID"},
		"no tenant":               {func(c *gateway.Config) { c.APIKeys = keysFile(t, "- {name: a, sha256: "+sum+"}") }, "API_KEYS_INVALID"},
		"another key":             {func(c *gateway.Config) { c.APIKeys = keysFile(t, "- {name: a, tenant: x, sha: "+sum+"}") }, "API_KEYS_INVALID"},
		"every origin":            {func(c *gateway.Config) { c.InsecureNoAuth, c.CORSOrigins = true, []string{"*"} }, "CORS_ORIGIN_INVALID"},
		"an origin with a path":   {func(c *gateway.Config) { c.APIKeys, c.CORSOrigins = good, []string{"https://x.example/"} }, "CORS_ORIGIN_INVALID"},
		"no room for streams":     {func(c *gateway.Config) { c.InsecureNoAuth, c.MaxStreams = true, 0 }, "CONFIG_INVALID"},
		"no bytes of files":       {func(c *gateway.Config) { c.InsecureNoAuth, c.MaxFileBytes = true, 0 }, "CONFIG_INVALID"},
		"no files":                {func(c *gateway.Config) { c.InsecureNoAuth, c.MaxFiles = true, 0 }, "CONFIG_INVALID"},
		"no uploads":              {func(c *gateway.Config) { c.InsecureNoAuth, c.MaxUploadBytes = true, -1 }, "CONFIG_INVALID"},
		"no memory for a file":    {func(c *gateway.Config) { c.InsecureNoAuth, c.FileMemory = true, c.MaxFileBytes-1 }, "CONFIG_INVALID"},
		"no heartbeat":            {func(c *gateway.Config) { c.InsecureNoAuth, c.Heartbeat = true, 0 }, "CONFIG_INVALID"},
		"a version that is not":   {func(c *gateway.Config) { c.InsecureNoAuth, c.AISDK = true, 4 }, "CONFIG_INVALID"},
		"an address that is none": {func(c *gateway.Config) { c.InsecureNoAuth, c.StateAddress = true, "" }, "ADDRESS_INVALID"},
	} {
		c := gateway.Config{}
		if err := config.Load(&c, nil); err != nil {
			t.Fatal(err)
		}
		tc.change(&c)
		service, err := gateway.New(t.Context(), c, gateway.Peers{})
		if got := fault.ReasonOf(err); got != tc.reason {
			t.Errorf("%s: got %v, want %s", name, err, tc.reason)
		}
		if service != nil {
			_ = service.Close()
		}
	}
}

func TestWithoutKeysOnlyLoopbackIsServed(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"127.0.0.1:8080": true, "localhost:8080": true, "[::1]:8080": true, "127.9.9.9:1": true,
		":8080": false, "0.0.0.0:8080": false, "192.0.2.1:80": false, "example.com:80": false, "[::]:80": false, "": false,
	} {
		err := gateway.CheckListen("HOLDFAST_GATEWAY_LISTEN", address, gateway.Config{InsecureNoAuth: true})
		if (err == nil) != ok {
			t.Errorf("%q: got %v", address, err)
		}
		if err := gateway.CheckListen("HOLDFAST_GATEWAY_LISTEN", address, gateway.Config{APIKeys: "file"}); err != nil {
			t.Errorf("%q with keys: got %v", address, err)
		}
	}
}

func TestWithoutKeysPagesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.CORSOrigins = []string{"https://app.example"} })
	host := strings.TrimPrefix(h.url, "http://")
	for name, tc := range map[string]struct {
		headers []string
		code    string
	}{
		"no page":                  {nil, ""},
		"our page":                 {[]string{"Origin", h.url}, ""},
		"an allowed page":          {[]string{"Origin", "https://app.example"}, ""},
		"a page of this machine":   {[]string{"Origin", "http://localhost:5173"}, ""},
		"another port":             {[]string{"Origin", "http://127.0.0.1:1"}, ""},
		"a lookalike":              {[]string{"Origin", "http://localhost.evil.example"}, "ORIGIN_REFUSED"},
		"a lookalike with a user":  {[]string{"Origin", "http://localhost@evil.example"}, "ORIGIN_REFUSED"},
		"an app":                   {[]string{"Origin", "app://localhost"}, "ORIGIN_REFUSED"},
		"another site":             {[]string{"Origin", "https://evil.example"}, "ORIGIN_REFUSED"},
		"a sandbox":                {[]string{"Origin", "null"}, "ORIGIN_REFUSED"},
		"an image of another site": {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, "ORIGIN_REFUSED"},
		"a link":                   {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, ""},
		"a form of another site":   {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, "ORIGIN_REFUSED"},
		"a form of this site":      {[]string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate"}, ""},
		"a rebound name":           {[]string{"Host", "evil.example"}, "HOST_REFUSED"},
		"a rebound name, port":     {[]string{"Host", "evil.example:" + host[strings.LastIndex(host, ":")+1:]}, "HOST_REFUSED"},
		"localhost":                {[]string{"Host", "localhost:80"}, ""},
		"a name of localhost":      {[]string{"Host", "app.localhost"}, ""},
		"version 6":                {[]string{"Host", "[::1]:80"}, ""},
	} {
		response := h.request(t, http.MethodGet, "/agents", "", tc.headers...)
		if strings.HasPrefix(name, "a form") {
			response = h.request(t, http.MethodPost, "/start", `{"message":"hi"}`, tc.headers...)
		}
		if tc.code != "" {
			wantFault(t, response, 403, tc.code)
		} else if response.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d %s", name, response.StatusCode, text(t, response))
		}
	}
}

func TestOnlyAllowedOriginsMayRead(t *testing.T) {
	t.Parallel()
	key, sum := gateway.NewAPIKey()
	file := keysFile(t, "- {name: a, tenant: acme, sha256: "+sum+"}")
	h := open(t, func(c *gateway.Config) {
		c.APIKeys, c.InsecureNoAuth, c.CORSOrigins = file, false, []string{"https://app.example"}
	})
	for origin, want := range map[string]string{"https://app.example": "https://app.example", "https://evil.example": "", "": ""} {
		preflight := h.request(t, http.MethodOptions, "/chat", "", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type,authorization")
		if got := preflight.Header.Get("Access-Control-Allow-Origin"); got != want || preflight.StatusCode != http.StatusNoContent {
			t.Errorf("preflight of %q: got %d %q", origin, preflight.StatusCode, got)
		}
		if got := preflight.Header.Get("Access-Control-Allow-Headers"); (got == "content-type,authorization") != (want != "") {
			t.Errorf("preflight of %q: got headers %q", origin, got)
		}
		answer := h.request(t, http.MethodGet, "/agents", "", "Origin", origin, "Authorization", "Bearer "+key)
		if got := answer.Header.Get("Access-Control-Allow-Origin"); got != want || answer.Header.Get("Vary") != "Origin" {
			t.Errorf("answer to %q: got %q", origin, got)
		}
		unknown := h.request(t, http.MethodGet, "/agents", "", "Origin", origin)
		if got := unknown.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("401 to %q: got %q; a page must be able to read it", origin, got)
		}
	}
}

func TestAgentsAreListedWithTheDefault(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.DefaultAgent = "" })
	if got, want := text(t, h.request(t, http.MethodGet, "/agents", "")), `{"agents":[{"agentType":"demo","description":"answers","executors":1,"lastAnnouncedAt":0,"queuedRuns":0,"oldestQueuedAt":0,"source":"executor"},{"agentType":"other","description":"","executors":1,"lastAnnouncedAt":0,"queuedRuns":0,"oldestQueuedAt":0,"source":"executor"}],"default":""}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi")), 400, "AGENT_REQUIRED")
	h = open(t, func(c *gateway.Config) { c.DefaultAgent = "" }, &statev1.Agent{AgentType: "only"})
	if got := text(t, h.request(t, http.MethodGet, "/agents", "")); !strings.Contains(got, `"default":"only"`) {
		t.Errorf("got %s", got)
	}
	stream := h.chat(t, chatBody("s1", "hi"))
	playAnswer(h.AwaitRun(t, "default", "s1", nil))
	stream.rest()
}

func TestReadinessNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.StreamAddress = "nobody" })
	response := h.request(t, http.MethodGet, "/readyz", "")
	const want = `{"notReady":["stream"],"reasons":["the stream service does not answer at the address in HOLDFAST_GATEWAY_STREAM_ADDRESS"],"status":"unavailable"}` + "\n"
	if got := text(t, response); got != want || response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %d %s, want %s", response.StatusCode, got, want)
	}
}

func TestTheNumberOfOpenStreamsIsBounded(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxStreams = 1 })
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s2", "hi")), 429, "TOO_MANY_STREAMS")
	playAnswer(run)
	stream.rest()
	waitFor(t, "there is room again", func() bool {
		return h.request(t, http.MethodGet, "/sse?sessionId=s1", "").StatusCode == http.StatusOK
	})
}

func TestThePageIsServedWithAStrictPolicy(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, path := range []string{"/", "/assets/chat.css", "/assets/chat.js", "/assets/message.js"} {
		response := h.request(t, http.MethodGet, path, "")
		body := text(t, response)
		if response.StatusCode != http.StatusOK || body == "" {
			t.Errorf("%s: got %d", path, response.StatusCode)
		}
		if got := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'self'") {
			t.Errorf("%s: policy: got %q", path, got)
		}
		if strings.Contains(body, "http://") || strings.Contains(body, "https://") || path == "/" && strings.Contains(body, "style=") {
			t.Errorf("%s names another host or has inline style", path)
		}
	}
}
