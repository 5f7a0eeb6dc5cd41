package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// provider is an identity provider on loopback.
type provider struct {
	*httptest.Server
	mu    sync.Mutex
	keys  []jose.JSONWebKey
	away  bool
	reads int
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL, p.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reads++
		if p.away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: p.keys})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// publish makes the keys those of the provider.
func (p *provider) publish(keys ...jose.JSONWebKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// setAway lets reads of the keys fail, or work again. It returns how many reads there were.
func (p *provider) setAway(away bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	return p.reads
}

// signingKey is a private key with its id.
type signingKey struct {
	id      string
	private *ecdsa.PrivateKey
}

func newSigningKey(t *testing.T, id string) signingKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signingKey{id, private}
}

func (k signingKey) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: "ES256", Use: "sig"}
}

func (k signingKey) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	return signWith(t, jose.ES256, k.private, k.id, claims)
}

func signWith(t *testing.T, algorithm jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// configOf returns the configuration for a provider, with a tenant claim.
func configOf(p *provider) JWTConfig {
	return JWTConfig{
		Issuer: p.URL, Audience: "holdfast", Algorithms: []string{"ES256", "RS256"}, TenantClaim: "org", SubjectClaim: "sub", ScopeClaim: "scope",
		Skew: 30 * time.Second, Refresh: 5 * time.Minute, UnknownKey: 10 * time.Second, KeepKeys: time.Hour,
	}
}

// claimsOf returns good claims for a minute, with changes. A nil value removes a claim.
func claimsOf(p *provider, now time.Time, changes map[string]any) map[string]any {
	claims := map[string]any{"iss": p.URL, "aud": "holdfast", "sub": "ann", "org": "acme", "scope": "chat openid", "exp": now.Add(time.Minute).Unix(), "iat": now.Unix()}
	for name, value := range changes {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	return claims
}

// callersOf returns credentials with the issuer alone.
func callersOf(t *testing.T, c JWTConfig, now func() time.Time) *Credentials {
	t.Helper()
	issuer, err := NewIssuer(c, now)
	if err != nil {
		t.Fatal(err)
	}
	return &Credentials{Issuer: issuer, Now: now, Log: slog.New(slog.DiscardHandler)}
}

func TestAJWTGivesTenantUserAndScopes(t *testing.T) {
	t.Parallel()
	p, at := newProvider(t), newClock()
	key := newSigningKey(t, "k1")
	p.publish(key.public())
	callers := callersOf(t, configOf(p), at.Now)
	for name, tc := range map[string]struct {
		scope any
		want  []Scope
	}{
		"words, others ignored": {"chat openid approve", []Scope{Chat, Approve}},
		"a list":                {[]string{"read", "x"}, []Scope{Read}},
		"another type":          {7, nil},
		"no claim":              {nil, nil},
	} {
		got, err := callers.Admit(requestWith(key.sign(t, claimsOf(p, at.Now(), map[string]any{"scope": tc.scope}))), "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Tenant != "acme" || got.Subject != "ann" || got.Key != "" || !slices.Equal(got.Scopes, tc.want) || !got.Expires.Equal(at.Now().Add(90*time.Second)) {
			t.Errorf("%s: got %+v, want the scopes %v", name, got, tc.want)
		}
	}
	if _, err := callers.Admit(requestWith(key.sign(t, claimsOf(p, at.Now(), nil))), Operate); fault.ReasonOf(err) != "SCOPE_MISSING" {
		t.Errorf("got %v, want SCOPE_MISSING", err)
	}
}

func TestAJWTIsRefusedForEachClaimThatIsWrong(t *testing.T) {
	t.Parallel()
	p, at := newProvider(t), newClock()
	key := newSigningKey(t, "k1")
	p.publish(key.public())
	callers := callersOf(t, configOf(p), at.Now)
	seconds := func(n int) int64 { return at.Now().Add(time.Duration(n) * time.Second).Unix() }
	for name, tc := range map[string]struct {
		changes map[string]any
		reason  string
	}{
		"good":                       {nil, ""},
		"another issuer":             {map[string]any{"iss": "https://evil.example"}, "TOKEN_INVALID"},
		"no issuer":                  {map[string]any{"iss": nil}, "TOKEN_INVALID"},
		"the issuer of gateways":     {map[string]any{"iss": tokenIssuer}, "TOKEN_INVALID"},
		"another audience":           {map[string]any{"aud": "other"}, "TOKEN_INVALID"},
		"no audience":                {map[string]any{"aud": nil}, "TOKEN_INVALID"},
		"one of several audiences":   {map[string]any{"aud": []string{"x", "holdfast"}}, ""},
		"no expiry":                  {map[string]any{"exp": nil}, "TOKEN_INVALID"},
		"expired within the skew":    {map[string]any{"exp": seconds(-29)}, ""},
		"expired by the skew":        {map[string]any{"exp": seconds(-30)}, "TOKEN_EXPIRED"},
		"expired":                    {map[string]any{"exp": seconds(-31)}, "TOKEN_EXPIRED"},
		"valid later, by the skew":   {map[string]any{"nbf": seconds(30)}, ""},
		"not yet valid":              {map[string]any{"nbf": seconds(31)}, "TOKEN_INVALID"},
		"issued later, by the skew":  {map[string]any{"iat": seconds(30)}, ""},
		"issued in the future":       {map[string]any{"iat": seconds(31)}, "TOKEN_INVALID"},
		"no tenant":                  {map[string]any{"org": nil}, "TOKEN_INVALID"},
		"an empty tenant":            {map[string]any{"org": ""}, "TOKEN_INVALID"},
		"a tenant of another type":   {map[string]any{"org": 7}, "TOKEN_INVALID"},
		"a long tenant":              {map[string]any{"org": strings.Repeat("x", 257)}, "TOKEN_INVALID"},
		"the longest tenant":         {map[string]any{"org": strings.Repeat("x", 256)}, ""},
		"a tenant with a zero":       {map[string]any{"org": "a\x00b"}, "TOKEN_INVALID"},
		"no user":                    {map[string]any{"sub": nil}, "TOKEN_INVALID"},
		"a user with a line":         {map[string]any{"sub": "a\nb"}, "TOKEN_INVALID"},
		"larger than any credential": {map[string]any{"more": strings.Repeat("x", maxSent)}, "API_KEY_WRONG"},
	} {
		_, err := callers.Admit(requestWith(key.sign(t, claimsOf(p, at.Now(), tc.changes))), "")
		if got := fault.ReasonOf(err); got != tc.reason {
			t.Errorf("%s: got %v, want %q", name, err, tc.reason)
		}
	}
}

func TestAJWTIsRefusedWithoutASignatureOfTheIssuer(t *testing.T) {
	t.Parallel()
	p, at := newProvider(t), newClock()
	key, stranger := newSigningKey(t, "k1"), newSigningKey(t, "k1")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	symmetric := jose.JSONWebKey{Key: []byte(strings.Repeat("s", 32)), KeyID: "secret", Algorithm: "HS256"}
	p.publish(key.public(), jose.JSONWebKey{Key: private.Public(), KeyID: "rsa", Algorithm: "RS256"}, symmetric,
		jose.JSONWebKey{Key: private.Public(), KeyID: "encryption", Use: "enc"})
	callers := callersOf(t, configOf(p), at.Now)
	claims := claimsOf(p, at.Now(), nil)
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	good := key.sign(t, claims)
	parts := strings.Split(good, ".")
	for name, tc := range map[string]struct{ token, reason string }{
		"ES256":                          {good, ""},
		"RS256":                          {signWith(t, jose.RS256, private, "rsa", claims), ""},
		"alg none":                       {"eyJhbGciOiJub25lIn0." + parts[1] + ".", "TOKEN_INVALID"},
		"no signature":                   {parts[0] + "." + parts[1] + ".", "TOKEN_INVALID"},
		"HS256 with the public key":      {signWith(t, jose.HS256, public, "rsa", claims), "TOKEN_INVALID"},
		"HS256 with a published secret":  {signWith(t, jose.HS256, symmetric.Key, "secret", claims), "TOKEN_INVALID"},
		"an algorithm that is not given": {signWith(t, jose.PS256, private, "rsa", claims), "TOKEN_INVALID"},
		"another key with the same id":   {stranger.sign(t, claims), "TOKEN_INVALID"},
		"the key of another id":          {signWith(t, jose.RS256, private, "k1", claims), "TOKEN_INVALID"},
		"a key for encryption":           {signWith(t, jose.RS256, private, "encryption", claims), "TOKEN_INVALID"},
		"no key id among several keys":   {signWith(t, jose.ES256, key.private, "", claims), "TOKEN_INVALID"},
		"other claims":                   {parts[0] + "." + strings.Split(key.sign(t, claimsOf(p, at.Now(), map[string]any{"org": "other"})), ".")[1] + "." + parts[2], "TOKEN_INVALID"},
		"no base64":                      {parts[0] + ".%%%." + parts[2], "TOKEN_INVALID"},
	} {
		_, err := callers.Admit(requestWith(tc.token), "")
		if got := fault.ReasonOf(err); got != tc.reason {
			t.Errorf("%s: got %v, want %q", name, err, tc.reason)
		}
	}
}

func TestKeysOfTheIssuerRotateAndSurviveAnOutage(t *testing.T) {
	t.Parallel()
	p, at := newProvider(t), newClock()
	first, second, third := newSigningKey(t, "k1"), newSigningKey(t, "k2"), newSigningKey(t, "k3")
	p.setAway(true)
	callers := callersOf(t, configOf(p), at.Now) // an unreachable issuer does not stop a gateway
	check := func(when string, key signingKey, want string) {
		t.Helper()
		_, err := callers.Admit(requestWith(key.sign(t, claimsOf(p, at.Now(), nil))), Chat)
		if got := fault.ReasonOf(err); got != want {
			t.Errorf("%s, %s: got %v, want %q", when, key.id, err, want)
		}
	}
	p.publish(first.public())
	check("an issuer that was never reached", first, "ISSUER_UNAVAILABLE")
	p.setAway(false)
	check("right after the failure", first, "ISSUER_UNAVAILABLE")
	at.pass(10 * time.Second)
	check("the next attempt", first, "")
	p.publish(first.public(), second.public())
	reads := p.setAway(false)
	for range 100 {
		check("an unknown key, right after a read", second, "TOKEN_INVALID")
	}
	if got := p.setAway(false); got != reads {
		t.Errorf("unknown keys have made the gateway read the keys %d times", got-reads)
	}
	at.pass(10 * time.Second)
	check("a new key", second, "")
	p.publish(second.public())
	at.pass(5*time.Minute - time.Second)
	callers.Issuer.keys.refreshDue(t.Context(), callers.Log)
	check("a removed key, before the keys are read", first, "")
	at.pass(time.Second)
	callers.Issuer.keys.refreshDue(t.Context(), callers.Log)
	check("a removed key", first, "TOKEN_INVALID")
	p.setAway(true)
	at.pass(time.Hour - time.Second)
	callers.Issuer.keys.refreshDue(t.Context(), callers.Log)
	check("an outage", second, "")
	check("a new key during the outage", third, "ISSUER_UNAVAILABLE")
	at.pass(time.Second)
	check("an outage that lasts", second, "ISSUER_UNAVAILABLE")
	p.setAway(false)
	at.pass(10 * time.Second)
	check("after the outage", second, "")
}

func TestManyUnknownKeysAtOnceShareOneRead(t *testing.T) {
	t.Parallel()
	p, at := newProvider(t), newClock()
	key := newSigningKey(t, "k1")
	p.publish(key.public())
	callers := callersOf(t, configOf(p), at.Now)
	token := key.sign(t, claimsOf(p, at.Now(), nil))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := callers.Admit(requestWith(token), Chat); err != nil && fault.ReasonOf(err) != "ISSUER_UNAVAILABLE" {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if got := p.setAway(false); got != 1 {
		t.Errorf("the keys were read %d times, want once", got)
	}
}

func TestTheKeysOfTheIssuerMayBeAFile(t *testing.T) {
	t.Parallel()
	p, at := newProvider(t), newClock()
	key := newSigningKey(t, "k1")
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.public()}})
	if err != nil {
		t.Fatal(err)
	}
	c := configOf(p)
	c.JWKS = filepath.Join(t.TempDir(), "keys.json")
	c.TenantClaim, c.Tenant, c.DefaultScopes = "", "fixed", []string{"read"}
	if err := os.WriteFile(c.JWKS, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := callersOf(t, c, at.Now).Admit(requestWith(signWith(t, jose.ES256, key.private, "", claimsOf(p, at.Now(), map[string]any{"scope": nil}))), Read)
	if err != nil || got.Tenant != "fixed" || !slices.Equal(got.Scopes, []Scope{Read}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestConfigurationsOfIssuersThatAreNotSafeAreRefused(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	for name, change := range map[string]func(*JWTConfig){
		"no TLS":                func(c *JWTConfig) { c.Issuer = "http://login.example.com" },
		"no address":            func(c *JWTConfig) { c.Issuer = "holdfast" },
		"no audience":           func(c *JWTConfig) { c.Audience = "" },
		"a symmetric one":       func(c *JWTConfig) { c.Algorithms = []string{"HS256"} },
		"none":                  func(c *JWTConfig) { c.Algorithms = []string{"none"} },
		"no algorithm":          func(c *JWTConfig) { c.Algorithms = nil },
		"two tenants":           func(c *JWTConfig) { c.Tenant = "acme" },
		"no tenant":             func(c *JWTConfig) { c.TenantClaim = "" },
		"keys without TLS":      func(c *JWTConfig) { c.JWKS = "http://login.example.com/keys" },
		"an unknown scope":      func(c *JWTConfig) { c.DefaultScopes = []string{"root"} },
		"no interval":           func(c *JWTConfig) { c.UnknownKey = 0 },
		"keys kept for a while": func(c *JWTConfig) { c.KeepKeys = time.Minute },
	} {
		c := configOf(p)
		change(&c)
		if _, err := NewIssuer(c, time.Now); fault.ReasonOf(err) != "CONFIG_INVALID" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestTheKeysOfAnIssuerComeFromItsHost(t *testing.T) {
	t.Parallel()
	other := newProvider(t) // of somebody else
	signer := newSigningKey(t, "k1")
	other.publish(signer.public())
	own := http.NewServeMux()
	provider := httptest.NewServer(own)
	t.Cleanup(provider.Close)
	own.HandleFunc("/other", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/keys", http.StatusFound) })
	own.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/endless", http.StatusFound) })
	own.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) })
	own.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{signer.public()}})
	})
	for path, works := range map[string]bool{"/keys": true, "/moved": true, "/other": false, "/endless": false} {
		_, err := newKeySet(JWTConfig{Issuer: provider.URL, JWKS: provider.URL + path}, time.Now).fetch(t.Context())
		if (err == nil) != works {
			t.Errorf("%s: got %v, want success: %v", path, err, works)
		}
	}
	if reads := other.setAway(true); reads != 0 {
		t.Errorf("the other host was read %d times", reads)
	}
}
