package grant

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Callback says whose result is posted to a URL. Its token is the last segment of the URL, and the right to answer one call.
//
// The state service derives a key for each session and hands it out with the session's claims, so an executor can make the
// URLs of the sessions that it works for, and of no others. A token is the base64 (RFC 4648, 5, without padding) of
//
//	version(1) tenant session run call   expires   MAC
//	1 byte     length-prefixed texts     varint    32 bytes, HMAC-SHA256 of everything before it under the session's key
//
// It is signed, not encrypted: whoever has the URL can read the ids.
type Callback struct {
	Tenant  string
	Session string
	Run     string // that made the call; after a rewind, another run may use the id of the call again
	Call    string
	Expires time.Time // exclusive, in milliseconds
}

// callbackPurpose separates the keys of sessions from other uses of a secret.
const callbackPurpose = "holdfast callback 1\x00"

// maxToken bounds a token in bytes. Four ids of 256 bytes make less.
const maxToken = 2 << 10

// CallbackKeys derive the keys of sessions, and verify tokens. The zero value has no secret. Safe for concurrent use.
type CallbackKeys struct{ secrets [][]byte }

// NewCallbackKeys returns the keys of the secrets, with commas between them: the first signs, all are accepted. No secret
// derives no keys and refuses every token. Invalid (CALLBACK_KEYS_INVALID): one has less than MinSecret bytes.
func NewCallbackKeys(secrets string) (CallbackKeys, error) {
	var k CallbackKeys
	if secrets == "" {
		return k, nil
	}
	for secret := range strings.SplitSeq(secrets, ",") {
		if len(secret) < MinSecret {
			return CallbackKeys{}, fault.New(fault.Invalid, "CALLBACK_KEYS_INVALID",
				"a secret of HOLDFAST_CALLBACK_KEYS has %d bytes: it must have at least %d, such as the output of \"openssl rand -hex 32\"",
				len(secret), MinSecret)
		}
		k.secrets = append(k.secrets, []byte(secret))
	}
	return k, nil
}

// Of returns the key of a session, for SignCallback; nil without a secret.
func (k CallbackKeys) Of(tenant, session string) []byte {
	if len(k.secrets) == 0 {
		return nil
	}
	return callbackKey(k.secrets[0], tenant, session)
}

func callbackKey(secret []byte, tenant, session string) []byte {
	return mac(secret, appendText(appendText([]byte(callbackPurpose), tenant), session))
}

// SignCallback returns the token of a callback under the key of its session.
func SignCallback(key []byte, c Callback) string {
	b := []byte{version}
	for _, text := range []string{c.Tenant, c.Session, c.Run, c.Call} {
		b = appendText(b, text)
	}
	b = binary.AppendVarint(b, c.Expires.UnixMilli())
	return base64.RawURLEncoding.EncodeToString(append(b, mac(key, b)...))
}

// ReadCallback returns the content of a token without a check of its signature, which only the state service can make.
// NotFound (CALLBACK_UNKNOWN): it is no token.
func ReadCallback(token string) (Callback, error) {
	c, _, _, err := openCallback(token)
	return c, err
}

// Verify returns the content of a signed token that has not expired. NotFound (CALLBACK_UNKNOWN): it is not signed by this
// service. Conflict (CALLBACK_EXPIRED): its time is up.
func (k CallbackKeys) Verify(token string, now time.Time) (Callback, error) {
	c, body, sum, err := openCallback(token)
	if err != nil {
		return Callback{}, err
	}
	for _, secret := range k.secrets {
		if !hmac.Equal(sum, mac(callbackKey(secret, c.Tenant, c.Session), body)) {
			continue
		}
		if !now.Before(c.Expires) {
			return Callback{}, fault.New(fault.Conflict, "CALLBACK_EXPIRED",
				"the URL was valid until %s; the call has ended without its result", c.Expires.UTC().Format(time.RFC3339))
		}
		return c, nil
	}
	return Callback{}, errCallbackUnknown()
}

func errCallbackUnknown() error {
	return fault.New(fault.NotFound, "CALLBACK_UNKNOWN", "there is no such callback; post to the URL exactly as the call was given it")
}

// openCallback splits a token, and reads its content.
func openCallback(token string) (c Callback, body, sum []byte, err error) {
	if len(token) > maxToken {
		return c, nil, nil, errCallbackUnknown()
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) <= sha256.Size || b[0] != version {
		return c, nil, nil, errCallbackUnknown()
	}
	body, sum = b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	rest := body[1:]
	for _, text := range []*string{&c.Tenant, &c.Session, &c.Run, &c.Call} {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return Callback{}, nil, nil, errCallbackUnknown()
		}
		*text, rest = string(rest[n:n+int(size)]), rest[n+int(size):]
	}
	expires, n := binary.Varint(rest)
	if n <= 0 || n != len(rest) {
		return Callback{}, nil, nil, errCallbackUnknown()
	}
	c.Expires = time.UnixMilli(expires)
	return c, body, sum, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
