package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The limits of one read of an issuer's keys.
const (
	fetchTimeout = 5 * time.Second
	maxKeySet    = 1 << 20 // bytes
	maxIssued    = 100     // keys
)

// keySet are the keys of an issuer (RFC 7517). It reads them when they are due, and when a token names an unknown key.
// While they cannot be read, the known keys stay valid for a time.
type keySet struct {
	config JWTConfig
	now    func() time.Time
	client *http.Client
	reads  singleflight.Group

	mu    sync.Mutex
	keys  []jose.JSONWebKey
	read  time.Time // when the keys were read; zero for never
	tried time.Time // when the last attempt began
	err   error     // of the last attempt
}

func newKeySet(c JWTConfig, now func() time.Time) *keySet {
	return &keySet{config: c, now: now, client: &http.Client{Timeout: fetchTimeout, CheckRedirect: staysWithIssuer}}
}

// maxRedirects bounds the redirects of one attempt.
const maxRedirects = 3

// staysWithIssuer refuses redirects to other hosts than the issuer's, and to plain HTTP.
func staysWithIssuer(next *http.Request, before []*http.Request) error {
	if len(before) > maxRedirects || next.URL.Host != before[0].URL.Host || !secureURL(next.URL.String()) {
		return fmt.Errorf(
			"%s redirects to %.200q, which is another host, not HTTPS, or one redirect too many: configure the address of the keys",
			before[0].URL.Host,
			next.URL.Redacted(),
		)
	}
	return nil
}

// find returns the key for a token with the header. Unauthenticated (TOKEN_INVALID), Unavailable (ISSUER_UNAVAILABLE).
func (s *keySet) find(ctx context.Context, header jose.Header) (*jose.JSONWebKey, error) {
	key, known, mayRead := s.lookup(header)
	if key == nil && mayRead {
		if err := s.refresh(ctx); err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		key, known, _ = s.lookup(header)
	}
	switch {
	case key != nil:
		return key, nil
	case !known:
		return nil, fault.New(
			fault.Unavailable,
			"ISSUER_UNAVAILABLE",
			"the keys of the issuer %s cannot be read at the moment; try again",
			s.config.Issuer,
		)
	default:
		return nil, tokenInvalid("its issuer has no key %.100q for the algorithm %s", header.KeyID, header.Algorithm)
	}
}

// lookup returns the key for the header, nil for none; whether the last attempt has read all keys; and whether there may
// be another attempt.
func (s *keySet) lookup(header jose.Header) (key *jose.JSONWebKey, known, mayRead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	usable := !s.read.IsZero() && now.Before(s.read.Add(s.config.KeepKeys))
	mayRead = s.tried.IsZero() || !now.Before(s.tried.Add(s.config.UnknownKey))
	if !usable {
		return nil, false, mayRead
	}
	for n := range s.keys {
		k := &s.keys[n]
		isNamed := k.KeyID == header.KeyID || header.KeyID == "" && len(s.keys) == 1
		if isNamed && (k.Algorithm == "" || k.Algorithm == header.Algorithm) {
			return k, true, mayRead
		}
	}
	return nil, s.err == nil, mayRead
}

// due reports whether the keys should be read.
func (s *keySet) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.config.Refresh
	if s.err != nil {
		wait = min(wait, s.config.UnknownKey)
	}
	return s.tried.IsZero() || !s.now().Before(s.tried.Add(wait))
}

// refreshDue reads the keys if they are due. It logs the first failure in a row.
func (s *keySet) refreshDue(ctx context.Context, log *slog.Logger) {
	if !s.due() {
		return
	}
	s.mu.Lock()
	failed := s.err != nil
	s.mu.Unlock()
	if err := s.refresh(ctx); err != nil && !failed && ctx.Err() == nil {
		log.WarnContext(
			ctx,
			"the keys of the issuer of JWTs cannot be read; the known ones stay for a time",
			"issuer",
			s.config.Issuer,
			"keep",
			s.config.KeepKeys,
			"error",
			err,
		)
	}
}

// refresh reads the keys. Concurrent calls share one attempt, which does not end with a caller's ctx.
func (s *keySet) refresh(ctx context.Context) error {
	done := s.reads.DoChan("", func() (any, error) {
		s.mu.Lock()
		s.tried = s.now()
		s.mu.Unlock()
		fetching, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		keys, err := s.fetch(fetching)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err = err; err == nil {
			s.keys, s.read = keys, s.now()
		}
		return nil, err
	})
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch returns the public keys for signatures of the issuer's set.
func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	text, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("read the key set: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys[:min(len(set.Keys), maxIssued)] {
		var k jose.JSONWebKey
		// A set may have keys of unknown kinds (RFC 7517, 5), and a symmetric key is never public.
		if k.UnmarshalJSON(raw) == nil && k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no public key for signatures")
	}
	return keys, nil
}

// load returns the text of the key set.
func (s *keySet) load(ctx context.Context) ([]byte, error) {
	address := s.config.JWKS
	if address == "" {
		var found struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
		}
		text, err := s.get(ctx, strings.TrimSuffix(s.config.Issuer, "/")+"/.well-known/openid-configuration")
		if err == nil {
			err = json.Unmarshal(text, &found)
		}
		if err != nil {
			return nil, fmt.Errorf("discover the key set: %w", err)
		}
		if found.Issuer != s.config.Issuer || !secureURL(found.JWKSURI) {
			return nil, fmt.Errorf(
				"discover the key set: the document is of the issuer %.200q and has the jwks_uri %.200q",
				found.Issuer,
				found.JWKSURI,
			)
		}
		address = found.JWKSURI
	}
	if !strings.Contains(address, "://") {
		return os.ReadFile(address)
	}
	return s.get(ctx, address)
}

func (s *keySet) get(ctx context.Context, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxKeySet))
}
