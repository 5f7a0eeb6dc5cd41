// Package grant signs and verifies grants. A grant proves that its holder works for a session: the state service
// hands one out with each claim of a run, and the state and stream services check it. Holders pass it on as opaque
// bytes.
//
// A grant is signed with HMAC-SHA256 under a secret that only state and stream know:
//
//	version(1) tenant root session run   epoch expires        MAC
//	1 byte     length-prefixed texts     varints              32 bytes, of everything before it
//
// A grant proves who received it, not that it is still in force: the service that checks it compares the epoch with
// the session's.
package grant

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// MinSecret is the shortest secret in bytes: as many as the MAC has.
const MinSecret = sha256.Size

// version is the first byte of a grant.
const version = 1

// Config names the secret. The state and stream services must have the same one.
type Config struct {
	Secret string `env:"HOLDFAST_GRANT_SECRET" secret:"true" doc:"secret of state and stream that signs the grants of claims, at least 32 bytes; several with commas between them: the first signs, all are accepted. Empty: no grants are made or checked"`
}

// Grant says what its holder may do: write and read a session, for a run or for one call of a method.
type Grant struct {
	Tenant  string
	Root    string // of the session's family; empty without a run
	Session string
	Run     string    // empty for the call of a method, outside of runs
	Epoch   int64     // of the claim; 0 without a run
	Expires time.Time // exclusive, in milliseconds; zero means never
}

// Keys sign and verify grants. The zero value does neither. Safe for concurrent use.
type Keys struct{ secrets [][]byte }

// Keys returns the keys of the configured secrets. Invalid (GRANT_SECRET_INVALID): one is too short.
func (c Config) Keys() (Keys, error) {
	var k Keys
	if c.Secret == "" {
		return k, nil
	}
	for secret := range strings.SplitSeq(c.Secret, ",") {
		if len(secret) < MinSecret {
			return Keys{}, fault.New(fault.Invalid, "GRANT_SECRET_INVALID",
				"a secret of HOLDFAST_GRANT_SECRET has %d bytes: it must have at least %d, such as the output of \"openssl rand -hex 32\"",
				len(secret), MinSecret)
		}
		k.secrets = append(k.secrets, []byte(secret))
	}
	return k, nil
}

// Enabled reports whether grants are made and checked.
func (k Keys) Enabled() bool { return len(k.secrets) > 0 }

// Sign returns the grant as signed bytes; nil without a secret.
func (k Keys) Sign(g Grant) []byte {
	if !k.Enabled() {
		return nil
	}
	texts := [...]string{g.Tenant, g.Root, g.Session, g.Run}
	size := 1 + len(texts)*binary.MaxVarintLen16 + 2*binary.MaxVarintLen64 + sha256.Size
	for _, text := range texts {
		size += len(text)
	}
	b := append(make([]byte, 0, size), version)
	for _, text := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	b = binary.AppendVarint(b, g.Epoch)
	var expires int64
	if !g.Expires.IsZero() {
		expires = g.Expires.UnixMilli()
	}
	b = binary.AppendVarint(b, expires)
	return append(b, mac(k.secrets[0], b)...)
}

// Verify returns the content of a signed grant that has not expired. Denied (GRANT_MISSING): signed is empty. Denied
// (GRANT_REFUSED): the grant is not from the state service, or has expired. Without a secret every grant is refused.
func (k Keys) Verify(signed []byte, now time.Time) (Grant, error) {
	if len(signed) == 0 {
		return Grant{}, fault.New(fault.Denied, "GRANT_MISSING", "the call needs the grant of a claim: pass on the one that came with it")
	}
	if len(signed) <= sha256.Size {
		return Grant{}, Refused("it is not from the state service")
	}
	body, sum := signed[:len(signed)-sha256.Size], signed[len(signed)-sha256.Size:]
	for _, secret := range k.secrets {
		if !hmac.Equal(sum, mac(secret, body)) {
			continue
		}
		g, ok := decode(body)
		switch {
		case !ok:
			return Grant{}, Refused("it has the format of another version")
		case !g.Expires.IsZero() && !now.Before(g.Expires):
			return Grant{}, Refused("it has expired")
		}
		return g, nil
	}
	return Grant{}, Refused("it is not from the state service")
}

// Refused is the fault of a grant that does not cover its call: Denied (GRANT_REFUSED).
func Refused(why string) error {
	return fault.New(fault.Denied, "GRANT_REFUSED", "the grant is refused: %s", why)
}

func mac(secret, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(body)
	return h.Sum(nil)
}

// decode reads a body with a valid MAC. It reports false for another version.
func decode(b []byte) (g Grant, ok bool) {
	if b[0] != version {
		return g, false
	}
	b = b[1:]
	for _, text := range []*string{&g.Tenant, &g.Root, &g.Session, &g.Run} {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return g, false
		}
		*text, b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	epoch, n := binary.Varint(b)
	if n <= 0 {
		return g, false
	}
	expires, m := binary.Varint(b[n:])
	if m <= 0 || n+m != len(b) {
		return g, false
	}
	if g.Epoch = epoch; expires != 0 {
		g.Expires = time.UnixMilli(expires)
	}
	return g, true
}
