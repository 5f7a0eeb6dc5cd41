//go:build !race

package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/encoding/protojson"
)

// hostilePage is what a browser sends for a page of another site.
type hostilePage struct {
	name    string
	headers []string
	opens   bool // a GET opens a page of this gateway, which the other site cannot read
}

// Without keys, a gateway on loopback trusts whoever reaches it, and so a browser must not be led there by other sites.
func TestNoPageOfAnotherSiteActsOnAGatewayWithoutKeys(t *testing.T) {
	t.Parallel()
	s := surround(t, open(t, nil), "default")
	evil := "https://evil.example"
	pages := []hostilePage{
		{"a form", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Content-Type", "application/x-www-form-urlencoded"}, false},
		{"a form with a JSON text", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Content-Type", "text/plain"}, false},
		{"a form of a hidden origin", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Content-Type", "text/plain"}, false},
		{"a navigation", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, true},
		{"a script", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Content-Type", "application/json"}, false},
		{"an image", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, false},
		{"an old browser", []string{"Origin", evil, "Content-Type", "text/plain"}, false},
		{"a name that resolves to this machine", []string{"Host", "evil.example:8080"}, false},
		{"such a name, of its own origin", []string{"Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}, false},
		{"a name that begins as an address", []string{"Host", "127.0.0.1.evil.example"}, false},
	}
	before := s.stored(t)
	for _, page := range pages {
		refused := 0
		for _, a := range s.pageAttempts(page.headers) {
			s.sent++
			answer := a.send()
			if page.opens && (a.method == http.MethodGet || a.method == http.MethodHead) || strings.HasPrefix(a.what, http.MethodGet+" /files/") && answer.status == http.StatusNotFound {
				continue
			}
			if !strings.Contains(answer.text, "ORIGIN_REFUSED") && !strings.Contains(answer.text, "HOST_REFUSED") && (a.method != http.MethodHead || answer.status != http.StatusForbidden) {
				t.Errorf("%s: %s: got %d %.200s, want a refusal", page.name, a.what, answer.status, answer.text)
				continue
			}
			refused++
		}
		if after := s.stored(t); after != before {
			t.Fatalf("%s has changed a session:\n%s\nwas\n%s", page.name, after, before)
		}
		if refused < 100 {
			t.Errorf("%s: %d requests were refused: the test looks at too little", page.name, refused)
		}
	}
	for _, path := range []string{"/ws?sessionId=ended", "/sse?sessionId=ended", "/chat/ws", "/agents/demo/room"} {
		for _, origin := range []string{evil, "null", "http://evil.example:8080", "http://127.0.0.1.evil.example"} {
			s.sent++
			conn, _, err := websocket.Dial(t.Context(), s.url+path, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}}) //nolint:bodyclose // the body is the socket
			if err == nil {
				_ = conn.CloseNow()
				t.Errorf("a page of %s has opened a socket at %s", origin, path)
			}
		}
	}
	t.Logf("%d requests of pages of other sites", s.sent)

	own := 0
	for _, a := range s.pageAttempts([]string{"Origin", s.url, "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Content-Type", "application/json"}) {
		if answer := a.send(); answer.status == http.StatusForbidden {
			t.Errorf("a page of this gateway: %s: got %.200s", a.what, answer.text)
		} else if strings.Contains(answer.text, secret) {
			own++
		}
	}
	if own < 5 {
		t.Errorf("a page of this gateway is shown the secret %d times, so the test would see no leak", own)
	}
}

// pageAttempt is a request of a page.
type pageAttempt struct {
	attempt
	method string
}

// pageAttempts returns a request for each route with each method, and for each method of the Connect service.
func (s *siege) pageAttempts(headers []string) (all []pageAttempt) {
	add := func(method, what, path, body string) {
		all = append(all, pageAttempt{attempt{what: method + " " + what, send: func() outcome { return s.exchange(method, path, body, headers) }}, method})
	}
	for _, route := range s.service.Routes() {
		path := strings.NewReplacer("{path...}", "x").Replace(s.pathOf(route, "ended"))
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
			add(method, route.Pattern, path, s.bodyOf(route, "ended"))
		}
	}
	for name := range rpcCases {
		path := fmt.Sprintf("/%s/%s", service().FullName(), name)
		request, err := protojson.Marshal(s.requestsOf(name, "ended")[0])
		if err != nil {
			s.t.Fatal(err)
		}
		add(http.MethodPost, path, path, string(request))
		add(http.MethodGet, path, path+"?encoding=json&connect=v1&message="+url.QueryEscape(string(request)), "")
	}
	return all
}
