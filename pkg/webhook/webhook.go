// Package webhook signs HTTP requests and verifies them, according to Standard Webhooks 1.0.0
// (https://www.standardwebhooks.com).
//
// A signature is the HMAC-SHA256 of ID.TIMESTAMP.BODY. A sender with several secrets makes a signature with each, and a
// receiver accepts a request if one of its secrets made one of them. So a secret is replaced without an interruption: the
// receiver learns the new one, then the sender, and then both forget the old one.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Headers of a signed request.
const (
	IDHeader        = "Webhook-Id"
	TimestampHeader = "Webhook-Timestamp" // seconds since 1970
	SignatureHeader = "Webhook-Signature" // v1,BASE64, separated by spaces
)

// Tolerance is how far the time of a request may be away from the receiver's.
const Tolerance = 5 * time.Minute

// MaxID bounds the id of a request, in bytes.
const MaxID = 64

// The size of a secret, in bytes.
const (
	minSecret = 24
	maxSecret = 64
)

const (
	secretPrefix  = "whsec_"
	version       = "v1,"
	maxSignatures = 32 // that are looked at in one request
)

// Secret is a key that sender and receiver share. The zero value is none.
type Secret struct{ key string }

// ParseSecret reads whsec_ and the base64 of 24 to 64 bytes. Invalid (SECRET_INVALID); the detail does not repeat the text.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	if !ok {
		return Secret{}, fault.New(fault.Invalid, "SECRET_INVALID", "a secret begins with %s", secretPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Secret{}, fault.New(fault.Invalid, "SECRET_INVALID", "a secret is %s and base64", secretPrefix)
	}
	if len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, fault.New(fault.Invalid, "SECRET_INVALID",
			"a secret has %d to %d bytes, and this one has %d", minSecret, maxSecret, len(key))
	}
	return Secret{string(key)}, nil
}

// String hides the secret.
func (s Secret) String() string { return secretPrefix + "…" }

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// sign returns one signature.
func (s Secret) sign(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(s.key))
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return version + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Sign sets the headers of a request with a body, with a signature of each secret. It sets none of them without secrets.
func Sign(header http.Header, id string, now time.Time, body []byte, secrets ...Secret) {
	if len(secrets) == 0 {
		return
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		signatures[i] = s.sign(id, timestamp, body)
	}
	header.Set(IDHeader, id)
	header.Set(TimestampHeader, timestamp)
	header.Set(SignatureHeader, strings.Join(signatures, " "))
}

// Verifier verifies requests. Safe for concurrent use if Seen is.
type Verifier struct {
	Secrets []Secret
	// Seen refuses a request that arrives twice; nil accepts it.
	Seen *Memory
}

// Verify checks the headers of a request with a body, which it has not read yet otherwise.
//
// Unauthenticated: SECRET_MISSING without secrets, SIGNATURE_MISSING, SIGNATURE_INVALID, and TIMESTAMP_INVALID for a time
// further away than Tolerance. Conflict: REPLAYED.
func (v Verifier) Verify(header http.Header, body []byte, now time.Time) error {
	id, timestamp, given := header.Get(IDHeader), header.Get(TimestampHeader), header.Get(SignatureHeader)
	if len(v.Secrets) == 0 {
		return fault.New(fault.Unauthenticated, "SECRET_MISSING", "the receiver has no secret to verify requests with")
	}
	if id == "" || timestamp == "" || given == "" {
		return fault.New(fault.Unauthenticated, "SIGNATURE_MISSING",
			"a request needs the headers webhook-id, webhook-timestamp and webhook-signature")
	}
	if len(id) > MaxID {
		return fault.New(fault.Unauthenticated, "SIGNATURE_INVALID", "webhook-id has %d bytes; at most %d are allowed", len(id), MaxID)
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fault.New(fault.Unauthenticated, "TIMESTAMP_INVALID", "webhook-timestamp must be seconds since 1970")
	}
	if away := now.Sub(time.Unix(seconds, 0)).Abs(); away > Tolerance {
		return fault.New(fault.Unauthenticated, "TIMESTAMP_INVALID",
			"the request is %v away from the time here; at most %v are allowed; compare the clocks", away.Truncate(time.Second), Tolerance)
	}
	if !v.matches(strings.Fields(given), id, timestamp, body) {
		return fault.New(fault.Unauthenticated, "SIGNATURE_INVALID", "no signature fits: compare the secrets of sender and receiver")
	}
	if v.Seen != nil && !v.Seen.add(id, now) {
		return fault.New(fault.Conflict, "REPLAYED", "a request with this webhook-id has arrived already")
	}
	return nil
}

// matches reports whether one of the secrets made one of the signatures. It takes the same time for each of them.
func (v Verifier) matches(given []string, id, timestamp string, body []byte) bool {
	found := false
	for _, s := range v.Secrets {
		want := []byte(s.sign(id, timestamp, body))
		for _, signature := range given[:min(len(given), maxSignatures)] {
			found = hmac.Equal([]byte(signature), want) || found
		}
	}
	return found
}
