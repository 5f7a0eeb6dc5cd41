// Package auth authenticates callers (Credentials), knows what they may do (Identity, ScopeOf, Stamped), and restricts
// the origins of browsers (Origins).
package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Credentials authenticates callers. It may be used by many goroutines. A nil *Credentials admits all, as Local.
type Credentials struct {
	Open     bool      // admits all, as Local
	Keys     *Keys     // nil for none
	Issuer   *Issuer   // nil for none
	Tokens   *Minter   // nil for none
	Throttle *Throttle // nil for none
	// Program names the caller of a request that the program knows; nil for no program.
	Program func(r *http.Request) (caller Identity, known bool, err error)

	Audit Auditor // nil for none
	Log   *slog.Logger
	Now   func() time.Time // never nil
	// NotAdmitted is called with the refusal of a request; nil for no call.
	NotAdmitted func(ctx context.Context, refusal error)

	problem string // of the keys file, as last logged; for Watch
}

// Admit authenticates a request and returns its caller, which has the scope if that is not empty. A request whose context has
// an identity comes from this process, and needs no credential. Unauthenticated
// (API_KEY_MISSING, API_KEY_WRONG, API_KEY_EXPIRED, TOKEN_INVALID, TOKEN_EXPIRED), Denied (SCOPE_MISSING), Exhausted
// (AUTH_THROTTLED), Unavailable (ISSUER_UNAVAILABLE).
func (c *Credentials) Admit(r *http.Request, needed Scope) (Identity, error) {
	if c == nil {
		return Local(), nil
	}
	caller, err := c.admit(r, needed)
	if err != nil && c.NotAdmitted != nil {
		c.NotAdmitted(r.Context(), err)
	}
	return caller, err
}

func (c *Credentials) admit(r *http.Request, needed Scope) (Identity, error) {
	caller, known := From(r.Context())
	if !known && c.Program != nil {
		var err error
		if caller, known, err = c.Program(r); err != nil {
			return Identity{}, err
		}
	}
	if !known {
		var err error
		if caller, err = c.identify(r); err != nil {
			return Identity{}, c.refuse(r, err)
		}
	}
	if needed == "" || caller.May(needed) {
		return caller, nil
	}
	err := caller.Require(needed, "make this request")
	event := caller.refused(r.URL.Path, err)
	event.Address = clientOf(r).String()
	record(r.Context(), c.Audit, event)
	return Identity{}, err
}

// refuse records the refusal of a credential. From addresses that send too many wrong ones, it throttles the rest of
// the wrong ones: a good credential is admitted from any address, since many callers may share one.
func (c *Credentials) refuse(r *http.Request, refusal error) error {
	reason := fault.ReasonOf(refusal)
	if fault.KindOf(refusal) != fault.Unauthenticated {
		return refusal
	}
	if reason != keyMissing {
		if err := c.Throttle.fail(r, c.Log); err != nil {
			return err
		}
	}
	record(
		r.Context(),
		c.Audit,
		Event{Action: CredentialRefused, Target: r.URL.Path, Address: clientOf(r).String(), Detail: map[string]string{"reason": reason}},
	)
	return refusal
}

// Forged records a request whose URL has a forged token, and throttles it as a wrong credential. It returns the refusal, or
// Exhausted (AUTH_THROTTLED). The token of a URL is in no record.
func (c *Credentials) Forged(r *http.Request, refusal error) error {
	if err := c.Throttle.fail(r, c.Log); err != nil {
		return err
	}
	record(
		r.Context(),
		c.Audit,
		Event{Action: CredentialRefused, Target: r.Pattern, Address: clientOf(r).String(), Detail: map[string]string{"reason": fault.ReasonOf(refusal)}},
	)
	return refusal
}

// identify returns the caller of a request by its credential.
func (c *Credentials) identify(r *http.Request) (Identity, error) {
	if c.Open {
		return Local(), nil
	}
	sent, err := sentBy(r)
	if err != nil {
		return Identity{}, err
	}
	parts := strings.Split(sent, ".")
	if len(parts) != 3 { // API keys have no dots
		return c.Keys.identify(sent)
	}
	switch issuer := issuerOf(parts[1]); {
	case c.Tokens != nil && issuer == tokenIssuer:
		return c.Tokens.identify(sent, c.Now(), c.Keys)
	case c.Issuer != nil && issuer == c.Issuer.config.Issuer:
		return c.Issuer.identify(r.Context(), sent)
	case c.Tokens == nil && c.Issuer == nil:
		return c.Keys.identify(sent)
	default:
		return Identity{}, tokenInvalid("its issuer (iss) is not known here")
	}
}

// issuerOf returns the issuer in the payload of a JWT. Nothing is verified yet: it only selects the verifier.
func issuerOf(payload string) string {
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

const (
	keyMissing = "API_KEY_MISSING"

	scheme  = "Bearer "
	maxSent = 8 << 10 // bytes of a credential
	// socketKey is the prefix of a subprotocol with a credential. Browsers cannot set headers of a WebSocket handshake.
	socketKey = "holdfast.key."
)

// sentBy returns the credential of a request, from its Authorization header or its WebSocket handshake. Unauthenticated
// (API_KEY_MISSING, API_KEY_WRONG).
func sentBy(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if header == "" && Upgrade(r) {
		for _, offered := range Tokens(r.Header, "Sec-WebSocket-Protocol") {
			if after, found := strings.CutPrefix(offered, socketKey); found {
				header = scheme + after
			}
		}
	}
	if header == "" {
		return "", fault.New(fault.Unauthenticated, keyMissing, `send the header "Authorization: Bearer <API key or token>"`)
	}
	sent, bearer := cutScheme(header)
	if !bearer {
		return "", fault.New(
			fault.Unauthenticated,
			"API_KEY_WRONG",
			`the header Authorization must be "Bearer <API key or token>", with at most %d bytes`,
			maxSent,
		)
	}
	return sent, nil
}

// cutScheme removes the scheme, in any case (RFC 9110, 11.1).
func cutScheme(header string) (sent string, bearer bool) {
	if len(header) < len(scheme) || len(header) > len(scheme)+maxSent || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", false
	}
	return header[len(scheme):], true
}

// Check gives Unauthenticated (CREDENTIAL_ENDED) if the credential of an admitted caller has expired or was
// removed since.
func (c *Credentials) Check(caller Identity) error {
	ended := fault.New(fault.Unauthenticated, "CREDENTIAL_ENDED", "the credential has expired or was removed; connect again with a new one")
	if c == nil || c.Open {
		return nil
	}
	now := c.Now()
	if expired(caller.Expires, now) || caller.KeyID != "" && !c.Keys.holds(caller, now) {
		return ended
	}
	return nil
}

// checkInterval is how often the keys file is read and the callers of open streams are checked.
const checkInterval = 2 * time.Second

// Watch takes changes of the keys file and of the issuer's keys over until ctx ends, and calls checked after each look.
func (c *Credentials) Watch(ctx context.Context, checked func()) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if c.Keys != nil {
			c.reload(ctx)
		}
		checked()
		if c.Issuer != nil {
			c.Issuer.keys.refreshDue(ctx, c.Log)
		}
	}
}

// reload reads the keys file again. It logs each problem of the file once.
func (c *Credentials) reload(ctx context.Context) {
	added, removed, err := c.Keys.reload()
	if err != nil {
		if err.Error() != c.problem {
			c.Log.ErrorContext(ctx, "the file of API keys has changed and is invalid; the keys before the change stay", "error", err)
		}
		c.problem = err.Error()
		return
	}
	c.problem = ""
	for _, k := range added {
		c.Log.InfoContext(ctx, "an API key was added", "tenant", k.Tenant, "name", k.Key)
		record(ctx, c.Audit, k.event(KeyAdded, c.Keys.text))
	}
	for _, k := range removed {
		c.Log.InfoContext(ctx, "an API key was removed", "tenant", k.Tenant, "name", k.Key)
		record(ctx, c.Audit, k.event(KeyRemoved, c.Keys.text))
	}
}

// event returns the event of a change of the file, whose text afterwards is given.
func (k key) event(action string, text []byte) Event {
	digest := sha256.Sum256(text)
	return Event{
		Action: action, Tenant: k.Tenant, Target: cmp.Or(k.Key, k.KeyID),
		Detail: map[string]string{"keyId": k.KeyID, KeysFile: hex.EncodeToString(digest[:])},
	}
}
