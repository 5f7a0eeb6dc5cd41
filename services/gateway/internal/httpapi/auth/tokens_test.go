package auth

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

var (
	secretA = strings.Repeat("a", minSecret)
	secretB = strings.Repeat("b", minSecret)
)

// minting is a gateway with a key that may operate, and secrets.
type minting struct {
	*Credentials
	key, file string
	sum       string
	at        *clock
}

func newMinting(t *testing.T, more string, secrets ...string) *minting {
	t.Helper()
	m := &minting{at: newClock(), file: filepath.Join(t.TempDir(), "keys.yaml")}
	m.key, m.sum = New()
	m.write(t, more)
	keys, err := ReadKeys(m.file, m.at.Now)
	if err != nil {
		t.Fatal(err)
	}
	minter, err := NewMinter(secrets, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	m.Credentials = &Credentials{Keys: keys, Tokens: minter, Now: m.at.Now, Log: slog.New(slog.DiscardHandler)}
	return m
}

// write makes the key the only one but another, with more members of its entry.
func (m *minting) write(t *testing.T, more string) {
	t.Helper()
	_, other := New()
	text := fmt.Sprintf("- {name: other, tenant: acme, sha256: %s}\n", other)
	if more != "" {
		text += fmt.Sprintf("- {name: server, tenant: acme, sha256: %s, %s}\n", m.sum, more)
	}
	if err := os.WriteFile(m.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mint mints a token with the key.
func (m *minting) mint(t *testing.T, g Grant) (string, error) {
	t.Helper()
	caller, err := m.Admit(requestWith(m.key), Operate)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := m.Mint(With(t.Context(), caller), g)
	return token, err
}

func (m *minting) reason(token string) string {
	_, err := m.Admit(requestWith(token), Read)
	return fault.ReasonOf(err)
}

func TestATokenActsForItsUserUntilItExpires(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "scopes: [operate]", secretA)
	token, err := m.mint(t, Grant{Subject: "ann", Scopes: []string{"chat"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Admit(requestWith(token), Chat)
	if err != nil || got.Tenant != "acme" || got.Owner() != "ann" || got.Actor() != "user:ann" || got.May(Approve) {
		t.Errorf("got %+v, %v", got, err)
	}
	handshake := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/ws"}, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"holdfast.v2, holdfast.key." + token},
	}}
	if _, err := m.Admit(handshake, Chat); err != nil {
		t.Errorf("in a handshake: got %v", err)
	}
	m.at.pass(time.Minute - time.Second)
	if got := m.reason(token); got != "" {
		t.Errorf("before its expiry: got %q", got)
	}
	m.at.pass(time.Second)
	if got := m.reason(token); got != "TOKEN_EXPIRED" {
		t.Errorf("at its expiry: got %q", got)
	}
	if err := m.Check(got); fault.ReasonOf(err) != "CREDENTIAL_ENDED" {
		t.Errorf("an open stream: got %v", err)
	}
}

func TestAGrantHasLimits(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "scopes: [operate]", secretA)
	for name, tc := range map[string]struct {
		grant  Grant
		reason string
	}{
		"no user":               {Grant{}, "ID_INVALID"},
		"a long user":           {Grant{Subject: strings.Repeat("x", 257)}, "ID_INVALID"},
		"an unknown scope":      {Grant{Subject: "a", Scopes: []string{"root"}}, "SCOPE_UNKNOWN"},
		"more than the caller":  {Grant{Subject: "a", Scopes: []string{"admin"}}, "SCOPE_MISSING"},
		"as much as the caller": {Grant{Subject: "a", Scopes: []string{"operate"}}, ""},
		"nothing more":          {Grant{Subject: "a"}, ""},
		"the longest":           {Grant{Subject: "a", TTL: time.Hour}, ""},
		"longer":                {Grant{Subject: "a", TTL: time.Hour + time.Second}, "TTL_INVALID"},
		"shorter":               {Grant{Subject: "a", TTL: time.Millisecond}, "TTL_INVALID"},
		"the past":              {Grant{Subject: "a", TTL: -time.Second}, "TTL_INVALID"},
	} {
		if _, err := m.mint(t, tc.grant); fault.ReasonOf(err) != tc.reason {
			t.Errorf("%s: got %v, want %q", name, err, tc.reason)
		}
	}
	m.Tokens = nil
	if _, err := m.mint(t, Grant{Subject: "a"}); fault.ReasonOf(err) != "TOKENS_DISABLED" || !strings.Contains(err.Error(), "HOLDFAST_GATEWAY_TOKEN_SECRET") {
		t.Errorf("without a secret: got %v", err)
	}
	if _, err := NewMinter([]string{strings.Repeat("x", minSecret-1)}, time.Hour); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("a short secret: got %v", err)
	}
}

func TestATokenEndsWithItsKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(t *testing.T, m *minting)
		reason string
	}{
		"nothing":         {func(*testing.T, *minting) {}, ""},
		"a removed key":   {func(t *testing.T, m *minting) { m.write(t, "") }, "TOKEN_INVALID"},
		"a lesser key":    {func(t *testing.T, m *minting) { m.write(t, "scopes: [chat]") }, "TOKEN_INVALID"},
		"an expired key":  {func(t *testing.T, m *minting) { m.write(t, "scopes: [operate], expires: 2001-01-01T00:00:00Z") }, "TOKEN_INVALID"},
		"a key that will": {func(t *testing.T, m *minting) { m.write(t, "scopes: [operate], expires: 2099-01-01T00:00:00Z") }, ""},
	} {
		m := newMinting(t, "scopes: [operate]", secretA)
		token, err := m.mint(t, Grant{Subject: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		caller, err := m.Admit(requestWith(token), Read)
		if err != nil {
			t.Fatal(err)
		}
		tc.change(t, m)
		m.reload(t.Context())
		if got := m.reason(token); got != tc.reason {
			t.Errorf("%s: got %q, want %q", name, got, tc.reason)
		}
		if ended := m.Check(caller) != nil; ended != (tc.reason != "") {
			t.Errorf("%s: the streams of the token end: %t", name, ended)
		}
	}
}

func TestATokenDoesNotOutliveTheCredentialThatMintsIt(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "scopes: [operate]", secretA)
	ends := m.at.Now().Add(10 * time.Second)
	late := ends.Add(time.Second / 2) // a token has whole seconds
	caller := Identity{Tenant: "acme", Subject: "boss", Scopes: []Scope{Operate}, Expires: late}
	_, expires, err := m.Mint(With(t.Context(), caller), Grant{Subject: "ann", TTL: time.Hour})
	if err != nil || !expires.Equal(ends) {
		t.Errorf("got %v, %v, want %v", expires, err, ends)
	}
}

func TestATokenLastsItsTimeAndUpToASecondMore(t *testing.T) {
	t.Parallel()
	for past, want := range map[time.Duration]time.Duration{
		0:                time.Second,
		1:                2*time.Second - 1,
		time.Second - 1:  time.Second + 1,
		time.Millisecond: 2*time.Second - time.Millisecond,
	} {
		m := newMinting(t, "scopes: [operate]", secretA)
		m.at.pass(past)
		began := m.at.Now()
		caller := Identity{Tenant: "acme", Subject: "boss", Scopes: []Scope{Operate}, Expires: began.Add(time.Hour)}
		token, expires, err := m.Mint(With(t.Context(), caller), Grant{Subject: "ann", TTL: time.Second})
		if err != nil || expires.Sub(began) != want {
			t.Fatalf("minted %v after a full second: got %v, %v, want %v", past, expires.Sub(began), err, want)
		}
		m.at.pass(want - 1)
		if got := m.reason(token); got != "" {
			t.Errorf("minted %v after a full second, just before its expiry: got %q", past, got)
		}
		m.at.pass(1)
		if got := m.reason(token); got != "TOKEN_EXPIRED" {
			t.Errorf("minted %v after a full second, at its expiry: got %q", past, got)
		}
	}
}

func TestSecretsRotateAndForgedTokensAreRefused(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "scopes: [operate]", secretA)
	old, err := m.mint(t, Grant{Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	m.Tokens = &Minter{secrets: []string{secretB, secretA}, maxTTL: time.Hour}
	late, err := m.mint(t, Grant{Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{"iss": tokenIssuer, "sub": "ann", "tenant": "acme", "scope": "admin", "exp": m.at.Now().Add(time.Minute).Unix()}
	parts := strings.Split(late, ".")
	for name, tc := range map[string]struct{ token, reason string }{
		"an old secret":  {old, ""},
		"the new secret": {late, ""},
		"a forged one":   {signWith(t, jose.HS256, []byte(strings.Repeat("c", minSecret)), "x", claims), "TOKEN_INVALID"},
		"alg none":       {"eyJhbGciOiJub25lIn0." + parts[1] + ".", "TOKEN_INVALID"},
		"another alg":    {signWith(t, jose.HS512, []byte(secretB+secretB), "x", claims), "TOKEN_INVALID"},
	} {
		if got := m.reason(tc.token); got != tc.reason {
			t.Errorf("%s: got %q, want %q", name, got, tc.reason)
		}
	}
	m.Tokens = &Minter{secrets: []string{secretB}, maxTTL: time.Hour}
	if got := m.reason(old); got != "TOKEN_INVALID" {
		t.Errorf("a removed secret: got %q", got)
	}
}
