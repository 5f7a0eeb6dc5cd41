package outbound_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
)

func TestOnlyHostsOfTheListAreAllowed(t *testing.T) {
	t.Parallel()
	p := outbound.Policy{
		Hosts:   []string{"api.example.com", "*.corp.example", "one.example:8443", "192.0.2.7", "[2001:db8::1]:80", "2001:db8::2"},
		Private: []string{"inside.example"},
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"https://api.example.com/x":          true,
		"https://API.example.com./x":         true,
		"http://api.example.com:9999/x":      true,
		"https://api.example.com.evil.test/": false,
		"https://evil.test/api.example.com":  false,
		"https://api.example.com@evil.test/": false,
		"https://a.b.corp.example/":          true,
		"https://corp.example/":              false,
		"https://evilcorp.example/":          false,
		"https://one.example:8443/":          true,
		"https://one.example/":               false,
		"http://192.0.2.7/":                  true,
		"http://[::ffff:192.0.2.7]/":         true,
		"http://192.0.2.8/":                  false,
		"http://[2001:db8::1]/":              true,
		"http://[2001:db8::1]:81/":           false,
		"http://[2001:db8::2]:81/":           true,
		"https://inside.example/":            true,
		"ftp://api.example.com/":             false,
		"file:///etc/passwd":                 false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Allows(u); (err == nil) != want {
			t.Errorf("%s: %v, want allowed = %v", address, err, want)
		}
	}
}

func TestEntriesThatAreNoHostAreRefused(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"", "*", "*.", "https://x.example", "x.example/path", "a*.example", "u@x.example", "x example"} {
		if err := (outbound.Policy{Hosts: []string{entry}}).Check(); fault.ReasonOf(err) != "HOSTS_INVALID" {
			t.Errorf("%q: %v, want HOSTS_INVALID", entry, err)
		}
	}
}

// get returns the body of a response, or the error.
func get(t *testing.T, client *http.Client, address string, headers map[string]string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return "error: " + err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAPrivateAddressIsReachedOnlyWhereItIsNamed(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }))
	t.Cleanup(web.Close)
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	byName := "http://localhost:" + u.Port()
	for name, test := range map[string]struct {
		policy  outbound.Policy
		address string
		want    string
	}{
		"by address":            {outbound.Policy{Hosts: []string{"127.0.0.1"}}, web.URL, "inside"},
		"by address and port":   {outbound.Policy{Hosts: []string{u.Host}}, web.URL, "inside"},
		"localhost":             {outbound.Policy{Hosts: []string{"localhost"}}, byName, "inside"},
		"private":               {outbound.Policy{Private: []string{"localhost"}}, byName, "inside"},
		"another name for this": {outbound.Policy{Hosts: []string{"*.localhost"}}, "http://api.localhost:" + u.Port(), "error"},
		"not on the list":       {outbound.Policy{Hosts: []string{"localhost"}}, web.URL, "not on the list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := get(t, test.policy.Client(nil), test.address, nil); !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestADirectClientFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Encodings", r.Header.Get("Accept-Encoding"))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	t.Cleanup(web.Close)
	host := strings.TrimPrefix(web.URL, "http://")
	for policy, want := range map[string]string{host: "302", "elsewhere": "not on the list"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		response, err := outbound.Policy{Hosts: []string{policy}}.Direct(nil, 1).Do(request)
		if err != nil {
			got = err.Error()
		} else {
			got = response.Status + response.Header.Get("X-Encodings")
			_ = response.Body.Close()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "gzip") {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
	}
}

func TestARedirectKeepsToTheListAndLeavesSecretsBehind(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "key="+r.Header.Get("X-Key")+" other="+r.Header.Get("X-Other")+r.Header.Get("Referer"))
	}))
	t.Cleanup(target.Close)
	var web *httptest.Server
	web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, target.URL, http.StatusFound)
		case "/round":
			http.Redirect(w, r, web.URL+"/round", http.StatusFound)
		case "/here":
			http.Redirect(w, r, web.URL+"/", http.StatusFound)
		default:
			_, _ = io.WriteString(w, "key="+r.Header.Get("X-Key"))
		}
	}))
	t.Cleanup(web.Close)
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	both := outbound.Policy{Hosts: []string{host(web), host(target)}}
	one := outbound.Policy{Hosts: []string{host(web)}}
	headers := map[string]string{"X-Key": "secret", "X-Other": "plain"}
	for _, test := range []struct {
		policy     outbound.Policy
		path, want string
	}{
		{both, "/here", "key=secret"},
		{both, "/away", "key= other=plain"},
		{both, "/away?key=secret", "key= other=plain"},
		{one, "/away", "not on the list"},
		{one, "/round", "more than 5 redirects"},
	} {
		if got := get(t, test.policy.Client([]string{"X-Key"}), web.URL+test.path, headers); !strings.Contains(got, test.want) || strings.HasPrefix(test.want, "key=") && got != test.want {
			t.Errorf("%s: %s, want %s", test.path, got, test.want)
		}
	}
}
