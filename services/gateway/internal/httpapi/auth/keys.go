package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// DefaultTenant is the tenant of all callers without API keys.
const DefaultTenant = "default"

const (
	keyPrefix  = "hf_"
	keyIDBytes = 16  // of the digest
	maxID      = 256 // bytes
)

// Keys are the API keys of a file. They may be used by many goroutines.
type Keys struct {
	file string
	now  func() time.Time
	list atomic.Pointer[[]key]
	text []byte // of the file, as last read; for reload
}

// key is a key with the identity of its callers.
type key struct {
	Identity
	digest [sha256.Size]byte
	used   *atomic.Int64 // Unix time in milliseconds; 0 for never
}

// entry is one key of the file.
type entry struct {
	Name    string    `yaml:"name"`
	Tenant  string    `yaml:"tenant"`
	SHA256  string    `yaml:"sha256"`
	Subject string    `yaml:"subject"` // the user of the key; empty for none
	Scopes  []string  `yaml:"scopes"`  // empty for DefaultScopes
	Expires time.Time `yaml:"expires"` // RFC 3339; zero for never

	SystemMessages any `yaml:"systemMessages"` // of former releases
}

// New returns a key and its digest for the keys file. The key itself is not stored.
func New() (key, digest string) {
	key = keyPrefix + rand.Text()
	sum := sha256.Sum256([]byte(key))
	return key, hex.EncodeToString(sum[:])
}

// ReadKeys reads a keys file: a YAML list of {name, tenant, sha256, scopes, subject, expires}. Invalid
// (API_KEYS_INVALID): the file cannot be read, has no key, or has an incomplete entry.
func ReadKeys(file string, now func() time.Time) (*Keys, error) {
	k := &Keys{file: file, now: now}
	_, _, err := k.reload()
	return k, err
}

// reload reads the file. It returns the keys that it has added and removed, nil if the file is unchanged. While the
// file is invalid, the keys before the change stay.
func (k *Keys) reload() (added, removed []key, err error) {
	text, err := os.ReadFile(k.file)
	if err != nil {
		return nil, nil, invalid("%v", err)
	}
	former := k.all()
	if former != nil && bytes.Equal(text, k.text) {
		return nil, nil, nil
	}
	keys, err := parseKeys(k.file, text)
	if err != nil {
		return nil, nil, err
	}
	for n := range keys {
		if at := slices.IndexFunc(former, func(old key) bool { return old.digest == keys[n].digest }); at >= 0 {
			keys[n].used = former[at].used
		}
	}
	added = slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return slices.ContainsFunc(former, k.same) })
	removed = slices.DeleteFunc(slices.Clone(former), func(k key) bool { return slices.ContainsFunc(keys, k.same) })
	k.text = text
	k.list.Store(&keys)
	return added, removed, nil
}

// same reports whether both are the same key with the same rights.
func (k key) same(other key) bool { return k.KeyID == other.KeyID }

// all returns the keys as last read; none of nil.
func (k *Keys) all() []key {
	if k == nil {
		return nil
	}
	if list := k.list.Load(); list != nil {
		return *list
	}
	return nil
}

func parseKeys(file string, text []byte) ([]key, error) {
	var entries []entry
	if err := yaml.UnmarshalWithOptions(text, &entries, yaml.DisallowUnknownField()); err != nil {
		return nil, invalid("%s is not a YAML list of {name, tenant, sha256, scopes, subject, expires}: %v", file, err)
	}
	if len(entries) == 0 {
		return nil, invalid("%s has no keys", file)
	}
	var keys []key
	for i, e := range entries {
		parsed, err := e.parse()
		if err != nil {
			return nil, invalid("%s, key %d (%s): %v", file, i+1, e.Name, err)
		}
		keys = append(keys, parsed)
	}
	return keys, nil
}

func (e entry) parse() (key, error) {
	digest, err := hex.DecodeString(e.SHA256)
	scopes, unknown := ParseScopes(e.Scopes)
	switch {
	case err != nil || len(digest) != sha256.Size:
		return key{}, errors.New("sha256 must be the 64 hex digits of the key's SHA-256")
	case e.Tenant == "" || !isID(e.Tenant):
		return key{}, fmt.Errorf("tenant must be 1 to %d bytes", maxID)
	case e.Subject != "" && !isID(e.Subject):
		return key{}, fmt.Errorf("subject must be at most %d bytes", maxID)
	case e.SystemMessages != nil:
		return key{}, errors.New(
			"systemMessages is no longer known: leave it out, and give a key that may send system messages the scope operate (scopes: [operate])",
		)
	case len(unknown) > 0:
		return key{}, fmt.Errorf("there is no scope %.50q; the scopes are read, chat, approve, operate and admin", unknown[0])
	case len(scopes) == 0:
		scopes = DefaultScopes()
	}
	caller := Identity{Tenant: e.Tenant, Subject: e.Subject, Key: e.Name, Scopes: scopes, Expires: e.Expires}
	caller.KeyID = keyID(digest, caller)
	return key{Identity: caller, digest: [sha256.Size]byte(digest), used: new(atomic.Int64)}, nil
}

// isID reports whether a text may be an id, or is empty.
func isID(text string) bool {
	return len(text) <= maxID && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// keyID returns the id of a key. A key with other rights has another id, so that a change ends its streams and tokens.
func keyID(digest []byte, i Identity) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %q %q %q", digest, i.Tenant, i.Subject, i.Scopes))
	return hex.EncodeToString(sum[:keyIDBytes])
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "API_KEYS_INVALID", "HOLDFAST_GATEWAY_API_KEYS: "+format, args...)
}

// identify returns the caller with a key. Unauthenticated (API_KEY_WRONG, API_KEY_EXPIRED).
func (k *Keys) identify(sent string) (Identity, error) {
	found := k.find(sent)
	if found.Tenant == "" {
		return Identity{}, fault.New(fault.Unauthenticated, "API_KEY_WRONG", "the API key is not known")
	}
	now := k.now()
	if expired(found.Expires, now) {
		return Identity{}, fault.New(
			fault.Unauthenticated,
			"API_KEY_EXPIRED",
			"the API key expired at %s; use a new one",
			found.Expires.Format(time.RFC3339),
		)
	}
	found.used.Store(now.UnixMilli())
	return found.Identity, nil
}

// expired reports whether a time has come; zero never comes.
func expired(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// KeyUse is a key with its last use.
type KeyUse struct {
	Identity
	LastUse int64 // Unix time in milliseconds; 0 for not since the start of this gateway
}

// ListKeys returns the keys of a tenant, in the order of the file.
func (c *Credentials) ListKeys(tenant string) (list []KeyUse) {
	for _, k := range c.Keys.all() {
		if k.Tenant == tenant {
			list = append(list, KeyUse{k.Identity, k.used.Load()})
		}
	}
	return list
}

// holds reports whether the key of a caller still is in the file, with the same rights, and has not expired.
func (k *Keys) holds(caller Identity, now time.Time) bool {
	return slices.ContainsFunc(k.all(), func(key key) bool {
		return key.KeyID == caller.KeyID && key.Tenant == caller.Tenant && !expired(key.Expires, now)
	})
}

// Upgrade reports whether the request is a WebSocket handshake.
func Upgrade(r *http.Request) bool {
	is := func(wanted string) func(string) bool {
		return func(token string) bool { return strings.EqualFold(token, wanted) }
	}
	return slices.ContainsFunc(Tokens(r.Header, "Connection"), is("upgrade")) &&
		slices.ContainsFunc(Tokens(r.Header, "Upgrade"), is("websocket"))
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

// find returns the sent key, or the zero key. It compares with every key, so that the time does not
// reveal a near match.
func (k *Keys) find(sent string) (found key) {
	digest := sha256.Sum256([]byte(sent))
	for _, key := range k.all() {
		if subtle.ConstantTimeCompare(digest[:], key.digest[:]) == 1 {
			found = key
		}
	}
	return found
}
