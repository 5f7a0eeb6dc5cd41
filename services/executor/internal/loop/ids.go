package loop

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// maxCallID leaves room for the suffix of a renamed id within the limit of 256 bytes.
const maxCallID = 240

// digestLength is 26 characters of base32: 130 bits.
const digestLength = 26

// Digest returns equal digests for equal texts only.
func Digest(texts ...string) string {
	hash := sha256.New()
	for _, text := range texts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		hash.Write(length[:])
		hash.Write([]byte(text))
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil)))[:digestLength]
}

// MessageID returns the id of the n-th message of its kind in a step of a run.
func MessageID(run Run, step int, kind string, n int) string {
	return "msg_" + Digest(run.Tenant, run.SessionID, run.RunID, strconv.Itoa(step), kind, strconv.Itoa(n))
}

// idempotencyKey identifies a call over all attempts. In a step without a plan the model may be called again and
// reuse a call id for another call, so the key includes the tool and its arguments.
func idempotencyKey(run Run, step int, c agent.ToolCall) string {
	arguments := strings.ToValidUTF8(string(c.Arguments), "\uFFFD") // as stored in the journal
	return "call_" + Digest(run.Tenant, run.SessionID, run.RunID, strconv.Itoa(step), c.ID, c.Name, arguments)
}

// approvalID returns the id of the approval request of a call.
func approvalID(run Run, step int, callID string) string {
	return "approval_" + Digest(run.Tenant, run.SessionID, run.RunID, strconv.Itoa(step), "approval", callID)
}

// CompanionID returns the id of the session of a new companion. Clients do not know the run's id, and so cannot
// guess it.
func CompanionID(run Run, name string) string {
	return Digest(run.Tenant, run.SessionID, run.RunID, "companion", name)
}

// saltLength is 8 characters of base32: 40 bits, beside an id unique in its reply.
const saltLength = 8

// salt distinguishes a step's call ids from those of all other steps of the tree of sessions, including rewound
// ones. The first run of a root has no salt.
func salt(s Start, step int) string {
	if s.Turn <= 1 && s.Depth == 0 {
		return ""
	}
	return Digest(s.Run.Tenant, s.Run.SessionID, s.Run.RunID, strconv.Itoa(step), "salt")[:saltLength]
}

// uniqueID returns a session-wide id for a provider's call id: with the salt if the provider may repeat the id,
// and with the smallest free number as a suffix if the id is taken. It replaces an invalid id.
func uniqueID(id, tool, salt string, taken func(string) bool) string {
	predictable := wordID.MatchString(id) || tool != "" && strings.Contains(id, tool)
	if !validID(id) {
		id = "call_" + Digest(id)
		predictable = true
	}
	if predictable && salt != "" {
		id += "_" + salt
	}
	if !taken(id) {
		return id
	}
	for n := 1; ; n++ {
		if candidate := fmt.Sprintf("%s_%d", id, n); !taken(candidate) {
			return candidate
		}
	}
}

// wordID matches ids of words and numbers, such as call_0, "toolCall1" or functions.find:12, which a provider may repeat.
var wordID = regexp.MustCompile(`^([A-Z]+|([A-Z]?[a-z]+)*)[0-9]*([^A-Za-z0-9]+([A-Z]+|([A-Z]?[a-z]+)*)[0-9]*)*$`)

func validID(id string) bool {
	return id != "" && len(id) <= maxCallID && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}
