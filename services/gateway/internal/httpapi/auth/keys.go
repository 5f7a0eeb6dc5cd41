// Package auth authenticates callers (Keys) and restricts the origins of browsers (Origins).
package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// DefaultTenant is the tenant of all callers without API keys.
const DefaultTenant = "default"

const (
	scheme    = "Bearer "
	keyPrefix = "hf_"
	maxKey    = 512 // bytes of a sent key
	maxTenant = 256 // bytes, as for all ids
)

// Keys authenticates callers. A nil *Keys accepts all, as DefaultTenant. It may be used by many goroutines.
type Keys struct {
	file string
	now  func() time.Time
	list atomic.Pointer[[]key]
	text []byte // of the file, as last read; for Watch
}

type key struct {
	digest         [sha256.Size]byte
	tenant         string
	systemMessages bool
	expires        time.Time // zero for never
}

// entry is one key of the file.
type entry struct {
	Name   string `yaml:"name"`
	Tenant string `yaml:"tenant"`
	SHA256 string `yaml:"sha256"`
	// SystemMessages allows system messages in the body of POST /chat.
	SystemMessages bool      `yaml:"systemMessages"`
	Expires        time.Time `yaml:"expires"` // RFC 3339; zero for never
}

// New returns a key and its digest for the keys file. The key itself is not stored.
func New() (key, digest string) {
	key = keyPrefix + rand.Text()
	sum := sha256.Sum256([]byte(key))
	return key, hex.EncodeToString(sum[:])
}

// ReadKeys reads a keys file: a YAML list of {name, tenant, sha256, systemMessages, expires}. Invalid
// (API_KEYS_INVALID): the file cannot be read, has no key, or has an incomplete entry.
func ReadKeys(file string, now func() time.Time) (*Keys, error) {
	k := &Keys{file: file, now: now}
	_, err := k.reload()
	return k, err
}

// reloadInterval is how often the keys file is read.
const reloadInterval = 2 * time.Second

// Watch takes changes of the keys file over until ctx ends. While the file is invalid, the keys before the
// change stay.
func (k *Keys) Watch(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	problem := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := k.reload()
		switch {
		case err != nil && err.Error() != problem:
			problem = err.Error()
			log.ErrorContext(ctx, "the file of API keys has changed and is invalid; the keys before the change stay", "error", err)
		case err == nil && changed:
			problem = ""
			log.InfoContext(ctx, "the API keys were read again", "file", k.file, "keys", len(*k.list.Load()))
		}
	}
}

// reload reads the file, and reports whether its keys are other ones.
func (k *Keys) reload() (changed bool, err error) {
	text, err := os.ReadFile(k.file)
	if err != nil {
		return false, invalid("%v", err)
	}
	if k.list.Load() != nil && bytes.Equal(text, k.text) {
		return false, nil
	}
	keys, err := parseKeys(k.file, text)
	if err != nil {
		return false, err
	}
	k.text = text
	k.list.Store(&keys)
	return true, nil
}

func parseKeys(file string, text []byte) ([]key, error) {
	var entries []entry
	if err := yaml.UnmarshalWithOptions(text, &entries, yaml.DisallowUnknownField()); err != nil {
		return nil, invalid("%s is not a YAML list of {name, tenant, sha256}: %v", file, err)
	}
	if len(entries) == 0 {
		return nil, invalid("%s has no keys", file)
	}
	var keys []key
	for i, e := range entries {
		digest, err := hex.DecodeString(e.SHA256)
		if err != nil || len(digest) != sha256.Size {
			return nil, invalid("%s, key %d (%s): sha256 must be the 64 hex digits of the key's SHA-256", file, i+1, e.Name)
		}
		if e.Tenant == "" || len(e.Tenant) > maxTenant || !utf8.ValidString(e.Tenant) {
			return nil, invalid("%s, key %d (%s): tenant must be 1 to %d bytes", file, i+1, e.Name, maxTenant)
		}
		keys = append(keys, key{[sha256.Size]byte(digest), e.Tenant, e.SystemMessages, e.Expires})
	}
	return keys, nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "API_KEYS_INVALID", "HOLDFAST_GATEWAY_API_KEYS: "+format, args...)
}

// Tenant returns the tenant of a request by its Authorization header. Unauthenticated
// (API_KEY_MISSING, API_KEY_WRONG, API_KEY_EXPIRED).
func (k *Keys) Tenant(h http.Header) (string, error) {
	if k == nil {
		return DefaultTenant, nil
	}
	header := h.Get("Authorization")
	if header == "" {
		return "", fault.New(fault.Unauthenticated, "API_KEY_MISSING", `send the header "Authorization: Bearer <API key>"`)
	}
	sent, bearer := cutScheme(header)
	found := k.find(sent)
	if !bearer || found.tenant == "" {
		return "", fault.New(fault.Unauthenticated, "API_KEY_WRONG", "the API key is not known")
	}
	if !found.expires.IsZero() && !k.now().Before(found.expires) {
		return "", fault.New(fault.Unauthenticated, "API_KEY_EXPIRED", "the API key expired at %s; use a new one", found.expires.Format(time.RFC3339))
	}
	return found.tenant, nil
}

// TenantOf is Tenant for requests with or without a WebSocket handshake. Browsers cannot set its
// headers, so they offer the key as the subprotocol holdfast.key.<key>.
func (k *Keys) TenantOf(r *http.Request) (string, error) { return k.Tenant(k.headerOf(r)) }

// MaySendSystem reports whether the key of the request may send system messages. Without keys,
// everybody may: only this machine can call.
func (k *Keys) MaySendSystem(r *http.Request) bool {
	if k == nil {
		return true
	}
	sent, _ := cutScheme(k.headerOf(r).Get("Authorization"))
	return k.find(sent).systemMessages
}

// headerOf returns the header of a request with the key of its handshake, if that has one.
func (k *Keys) headerOf(r *http.Request) http.Header {
	sent := ""
	for _, offered := range Tokens(r.Header, "Sec-WebSocket-Protocol") {
		if after, found := strings.CutPrefix(offered, socketKey); found {
			sent = after
		}
	}
	if k == nil || sent == "" || r.Header.Get("Authorization") != "" || !Upgrade(r) {
		return r.Header
	}
	return http.Header{"Authorization": {scheme + sent}}
}

// socketKey is the prefix of a subprotocol with a key.
const socketKey = "holdfast.key."

// Upgrade reports whether the request is a WebSocket handshake.
func Upgrade(r *http.Request) bool {
	is := func(wanted string) func(string) bool {
		return func(token string) bool { return strings.EqualFold(token, wanted) }
	}
	return slices.ContainsFunc(Tokens(r.Header, "Connection"), is("upgrade")) && slices.ContainsFunc(Tokens(r.Header, "Upgrade"), is("websocket"))
}

// Tokens returns the entries of a list header.
func Tokens(h http.Header, name string) []string {
	var tokens []string
	for _, line := range h.Values(name) {
		for token := range strings.SplitSeq(line, ",") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	return tokens
}

// cutScheme removes the scheme, in any case (RFC 9110, 11.1).
func cutScheme(header string) (sent string, bearer bool) {
	if len(header) < len(scheme) || len(header) > len(scheme)+maxKey || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", false
	}
	return header[len(scheme):], true
}

// find returns the sent key, or the zero key. It compares with every key, so that the time does not
// reveal a near match.
func (k *Keys) find(sent string) (found key) {
	digest := sha256.Sum256([]byte(sent))
	for _, key := range *k.list.Load() {
		if subtle.ConstantTimeCompare(digest[:], key.digest[:]) == 1 {
			found = key
		}
	}
	return found
}
