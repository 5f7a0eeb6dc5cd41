package auth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// JWTConfig describes an identity provider whose JWTs authenticate callers.
type JWTConfig struct {
	Issuer        string        `env:"ISSUER" doc:"the identity provider whose JWTs callers may send, as their claim iss names it, such as https://login.example.com; empty for none"`
	Audience      string        `env:"AUDIENCE" doc:"the audience that a JWT must have: its claim aud"`
	JWKS          string        `env:"JWKS" doc:"where the keys of the issuer (a JWK set) are: an https address or a file; empty to ask the issuer (OpenID Connect discovery)"`
	Algorithms    []string      `env:"ALGORITHMS" envDefault:"RS256,ES256,EdDSA" doc:"the signature algorithms that are accepted; only asymmetric ones are possible"`
	Tenant        string        `env:"TENANT" doc:"the tenant of all callers with a JWT; empty to take it from a claim"`
	TenantClaim   string        `env:"TENANT_CLAIM" doc:"the claim with the tenant, if HOLDFAST_GATEWAY_JWT_TENANT is empty"`
	SubjectClaim  string        `env:"SUBJECT_CLAIM" envDefault:"sub" doc:"the claim with the user"`
	ScopeClaim    string        `env:"SCOPE_CLAIM" envDefault:"scope" doc:"the claim with the scopes: a text with spaces between them, or a list; other words in it are ignored"`
	DefaultScopes []string      `env:"DEFAULT_SCOPES" doc:"the scopes of a JWT without that claim; empty for none"`
	Skew          time.Duration `env:"SKEW" envDefault:"30s" doc:"how far the clocks of the issuer and the gateway may differ"`
	Refresh       time.Duration `env:"REFRESH" envDefault:"5m" doc:"how often the keys of the issuer are read"`
	UnknownKey    time.Duration `env:"UNKNOWN_KEY" envDefault:"10s" doc:"how soon after an attempt to read the keys a JWT with an unknown key, or a failure, makes the gateway read them again"`
	KeepKeys      time.Duration `env:"KEEP_KEYS" envDefault:"24h" doc:"how long the known keys stay valid while they cannot be read"`
}

// asymmetric are the algorithms of JWTConfig.
var asymmetric = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// check gives Invalid (CONFIG_INVALID).
func (c JWTConfig) check() error {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_GATEWAY_JWT_"+format, args...)
	}
	for _, name := range c.Algorithms {
		if !slices.Contains(asymmetric, jose.SignatureAlgorithm(name)) {
			return invalid("ALGORITHMS: %q is not an asymmetric algorithm; choose from %v", name, asymmetric)
		}
	}
	_, unknown := ParseScopes(c.DefaultScopes)
	switch {
	case !secureURL(c.Issuer):
		return invalid("ISSUER is %q: it must be an https address", c.Issuer)
	case c.Audience == "":
		return invalid("AUDIENCE is empty: without it, JWTs for other services would be accepted")
	case (c.Tenant == "") == (c.TenantClaim == ""):
		return invalid("TENANT and _TENANT_CLAIM: set one of them")
	case !isID(c.Tenant):
		return invalid("TENANT must have at most %d bytes", maxID)
	case strings.Contains(c.JWKS, "://") && !secureURL(c.JWKS):
		return invalid("JWKS is %q: it must be an https address or a file", c.JWKS)
	case len(c.Algorithms) == 0 || c.SubjectClaim == "" || c.ScopeClaim == "":
		return invalid("ALGORITHMS, _SUBJECT_CLAIM and _SCOPE_CLAIM may not be empty")
	case len(unknown) > 0:
		return invalid("DEFAULT_SCOPES: there is no scope %q", unknown[0])
	case c.Skew < 0 || c.Refresh <= 0 || c.UnknownKey <= 0 || c.KeepKeys < c.Refresh:
		return invalid("REFRESH and _UNKNOWN_KEY must be above 0, _SKEW at least 0, and _KEEP_KEYS at least _REFRESH")
	default:
		return nil
	}
}

// secureURL reports whether an address is https, or http on this machine.
func secureURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && loopbackHost(u.Host))
}

// Issuer authenticates callers by the JWTs of an identity provider. It may be used by many goroutines.
type Issuer struct {
	config     JWTConfig
	algorithms []jose.SignatureAlgorithm
	defaults   []Scope
	keys       *keySet
	now        func() time.Time
}

// NewIssuer returns an issuer, and reads no keys yet. Invalid (CONFIG_INVALID).
func NewIssuer(c JWTConfig, now func() time.Time) (*Issuer, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	i := &Issuer{config: c, keys: newKeySet(c, now), now: now}
	for _, name := range c.Algorithms {
		i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(name))
	}
	i.defaults, _ = ParseScopes(c.DefaultScopes)
	return i, nil
}

// identify returns the caller with a JWT. Unauthenticated (TOKEN_INVALID, TOKEN_EXPIRED), Unavailable
// (ISSUER_UNAVAILABLE).
func (i *Issuer) identify(ctx context.Context, sent string) (Identity, error) {
	token, err := jwt.ParseSigned(sent, i.algorithms)
	if err != nil || len(token.Headers) != 1 {
		return Identity{}, tokenInvalid("it must be a JWT with a signature by one of %s", strings.Join(i.config.Algorithms, ", "))
	}
	key, err := i.keys.find(ctx, token.Headers[0])
	if err != nil {
		return Identity{}, err
	}
	var standard jwt.Claims
	claims := map[string]any{}
	if token.Claims(key, &standard, &claims) != nil {
		return Identity{}, tokenInvalid("its signature is not of its issuer")
	}
	expires, err := checkTimes(
		standard,
		jwt.Expected{Issuer: i.config.Issuer, AnyAudience: jwt.Audience{i.config.Audience}, Time: i.now()},
		i.config.Skew,
	)
	if err != nil {
		return Identity{}, err
	}
	return i.identityOf(claims, expires)
}

// identityOf returns the identity of verified claims.
func (i *Issuer) identityOf(claims map[string]any, expires time.Time) (Identity, error) {
	out := Identity{Tenant: i.config.Tenant, Scopes: i.defaults, Expires: expires}
	if out.Tenant == "" {
		out.Tenant, _ = claims[i.config.TenantClaim].(string)
	}
	out.Subject, _ = claims[i.config.SubjectClaim].(string)
	switch {
	case out.Tenant == "" || !isID(out.Tenant):
		return Identity{}, tokenInvalid("its claim %q must name the tenant, in 1 to %d bytes", i.config.TenantClaim, maxID)
	case out.Subject == "" || !isID(out.Subject):
		return Identity{}, tokenInvalid("its claim %q must name the user, in 1 to %d bytes", i.config.SubjectClaim, maxID)
	}
	if named, has := claims[i.config.ScopeClaim]; has {
		out.Scopes, _ = ParseScopes(words(named)) // others are for other services
	}
	return out, nil
}

// words returns the words of a claim: a text with spaces, or a list of texts.
func words(claim any) (all []string) {
	switch claim := claim.(type) {
	case string:
		return strings.Fields(claim)
	case []any:
		for _, one := range claim {
			if text, is := one.(string); is {
				all = append(all, text)
			}
		}
	}
	return all
}

// checkTimes checks the common claims of all tokens, and returns the end of the token. Unauthenticated (TOKEN_INVALID,
// TOKEN_EXPIRED).
func checkTimes(claims jwt.Claims, expected jwt.Expected, skew time.Duration) (expires time.Time, err error) {
	if claims.Expiry == nil {
		return time.Time{}, tokenInvalid("it has no expiry (exp)")
	}
	expires = claims.Expiry.Time().Add(skew)
	err = claims.ValidateWithLeeway(expected, skew)
	switch {
	case errors.Is(err, jwt.ErrExpired), err == nil && expired(expires, expected.Time):
		return time.Time{}, fault.New(
			fault.Unauthenticated,
			"TOKEN_EXPIRED",
			"the token expired at %s; use a new one",
			claims.Expiry.Time().UTC().Format(time.RFC3339),
		)
	case err != nil:
		return time.Time{}, tokenInvalid("%s", strings.TrimPrefix(err.Error(), "go-jose/go-jose/jwt: "))
	default:
		return expires, nil
	}
}

func tokenInvalid(format string, args ...any) error {
	return fault.New(fault.Unauthenticated, "TOKEN_INVALID", "the token is refused: %s", fmt.Sprintf(format, args...))
}
