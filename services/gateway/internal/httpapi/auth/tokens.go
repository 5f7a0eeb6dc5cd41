package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

const (
	tokenIssuer    = "holdfast"
	minSecret      = 32 // bytes
	defaultTTL     = 15 * time.Minute
	minTTL         = time.Second
	tokenAlgorithm = jose.HS256
)

// Minter mints short-lived tokens for browsers, and authenticates callers by them. It is immutable.
type Minter struct {
	secrets []string // the first signs
	maxTTL  time.Duration
}

// NewMinter returns a minter. The first secret signs, and all verify. Invalid (CONFIG_INVALID).
func NewMinter(secrets []string, maxTTL time.Duration) (*Minter, error) {
	for _, s := range secrets {
		if len(s) < minSecret {
			return nil, fault.New(
				fault.Invalid,
				"CONFIG_INVALID",
				"HOLDFAST_GATEWAY_TOKEN_SECRET: a secret has %d bytes; at least %d are needed",
				len(s),
				minSecret,
			)
		}
	}
	if maxTTL < minTTL {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_GATEWAY_TOKEN_MAX_TTL is %v: it must be at least %v", maxTTL, minTTL)
	}
	return &Minter{secrets: secrets, maxTTL: maxTTL}, nil
}

// Grant is what a token allows.
type Grant struct {
	Subject string
	Scopes  []string      // none for DefaultScopes
	TTL     time.Duration // 0 for 15 minutes, or less if the limit is less
}

// tokenClaims are the claims of a token beside the standard ones.
type tokenClaims struct {
	Tenant string `json:"tenant"`
	Scope  string `json:"scope"`
	Key    string `json:"key,omitempty"` // Identity.KeyID of the minting key
}

// Mint returns a token for the grant, on behalf of the caller in ctx, and the time of its expiry. The token ends with
// the caller's credential. Invalid (ID_INVALID, SCOPE_UNKNOWN, TTL_INVALID), Denied (SCOPE_MISSING), Conflict
// (TOKENS_DISABLED).
func (c *Credentials) Mint(ctx context.Context, g Grant) (token string, expires time.Time, err error) {
	if c.Tokens == nil {
		return "", time.Time{}, fault.New(fault.Conflict, "TOKENS_DISABLED",
			"this gateway mints no tokens: set HOLDFAST_GATEWAY_TOKEN_SECRET to at least %d random bytes", minSecret)
	}
	caller, _ := From(ctx)
	scopes, err := c.Tokens.check(caller, g)
	if err != nil {
		return "", time.Time{}, err
	}
	ttl := g.TTL
	if ttl == 0 {
		ttl = min(defaultTTL, c.Tokens.maxTTL)
	}
	now := c.Now()
	expires = now.Add(ttl + time.Second - 1).Truncate(time.Second) // a token has whole seconds
	if !caller.Expires.IsZero() && caller.Expires.Before(expires) {
		expires = caller.Expires.Truncate(time.Second)
	}
	token, err = c.Tokens.sign(
		jwt.Claims{Issuer: tokenIssuer, Subject: g.Subject, Expiry: jwt.NewNumericDate(expires), IssuedAt: jwt.NewNumericDate(now)},
		tokenClaims{Tenant: caller.Tenant, Scope: strings.Join(scopes, " "), Key: caller.KeyID},
	)
	if err == nil {
		record(
			ctx,
			c.Audit,
			Event{
				Action: TokenMinted,
				Tenant: caller.Tenant,
				Actor:  caller.Actor(),
				Target: g.Subject,
				Detail: map[string]string{"scopes": strings.Join(scopes, " ")},
			},
		)
	}
	return token, expires, err
}

// check returns the names of the granted scopes.
func (t *Minter) check(caller Identity, g Grant) ([]string, error) {
	scopes, unknown := ParseScopes(g.Scopes)
	switch {
	case g.Subject == "" || !isID(g.Subject):
		return nil, fault.New(fault.Invalid, "ID_INVALID", "subject must name the user, in 1 to %d bytes", maxID).With("field", "subject")
	case len(unknown) > 0:
		return nil, fault.New(
			fault.Invalid,
			"SCOPE_UNKNOWN",
			"there is no scope %.50q; the scopes are read, chat, approve, operate and admin",
			unknown[0],
		)
	case g.TTL != 0 && (g.TTL < minTTL || g.TTL > t.maxTTL):
		return nil, fault.New(
			fault.Invalid,
			"TTL_INVALID",
			"the token would be valid for %v; give %v to %v (HOLDFAST_GATEWAY_TOKEN_MAX_TTL)",
			g.TTL,
			minTTL,
			t.maxTTL,
		)
	case len(scopes) == 0:
		scopes = DefaultScopes()
	}
	var names []string
	for _, s := range scopes {
		if err := caller.Require(s, "mint a token that has it"); err != nil {
			return nil, err
		}
		names = append(names, string(s))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (t *Minter) sign(standard jwt.Claims, more tokenClaims) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: tokenAlgorithm, Key: []byte(t.secrets[0])},
		(&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", secretID(t.secrets[0])))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(standard).Claims(more).Serialize()
}

// secretID names a secret without revealing it.
func secretID(secret string) string {
	sum := sha256.Sum256([]byte("the name of " + secret))
	return hex.EncodeToString(sum[:4])
}

// identify returns the caller with a token of a gateway, if its key is still good. Unauthenticated (TOKEN_INVALID,
// TOKEN_EXPIRED).
func (t *Minter) identify(sent string, now time.Time, keys *Keys) (Identity, error) {
	token, err := jwt.ParseSigned(sent, []jose.SignatureAlgorithm{tokenAlgorithm})
	if err != nil {
		return Identity{}, tokenInvalid("it is not signed by a gateway")
	}
	var standard jwt.Claims
	var more tokenClaims
	if !slices.ContainsFunc(t.secrets, func(secret string) bool { return token.Claims([]byte(secret), &standard, &more) == nil }) {
		return Identity{}, tokenInvalid("it is not signed with a secret of this gateway")
	}
	expires, err := checkTimes(standard, jwt.Expected{Issuer: tokenIssuer, Time: now}, 0)
	if err != nil {
		return Identity{}, err
	}
	scopes, _ := ParseScopes(strings.Fields(more.Scope)) // of a later release
	caller := Identity{Tenant: more.Tenant, Subject: standard.Subject, KeyID: more.Key, Scopes: scopes, Expires: expires}
	if caller.KeyID != "" && !keys.holds(caller, now) {
		return Identity{}, tokenInvalid("the API key that has minted it was removed, changed or has expired")
	}
	return caller, nil
}
