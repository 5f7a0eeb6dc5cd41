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

// maxCallID leaves room in the 256 bytes of an id for the suffix of a renamed one.
const maxCallID = 240

// digestLength is 26 characters of base32: 130 bits.
const digestLength = 26

// digest is the same for the same texts and for no others.
func digest(texts ...string) string {
	hash := sha256.New()
	for _, text := range texts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		hash.Write(length[:])
		hash.Write([]byte(text))
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil)))[:digestLength]
}

// messageID names the n-th message of its kind that a step of a run appends.
func messageID(run Run, step int, kind string, n int) string {
	return "msg_" + digest(run.Tenant, run.SessionID, run.RunID, strconv.Itoa(step), kind, strconv.Itoa(n))
}

// idempotencyKey names a call over all attempts at it. In a step without a plan the model may be
// asked again, and may use the id of a call that was made for another one: so the key also
// depends on what is called.
func idempotencyKey(run Run, step int, c agent.ToolCall) string {
	arguments := strings.ToValidUTF8(string(c.Arguments), "\uFFFD") // as the journal has them
	return "call_" + digest(run.Tenant, run.SessionID, run.RunID, strconv.Itoa(step), c.ID, c.Name, arguments)
}

// approvalID names the question whether a call may be made.
func approvalID(run Run, step int, callID string) string {
	return "approval_" + digest(run.Tenant, run.SessionID, run.RunID, strconv.Itoa(step), "approval", callID)
}

// saltLength is 8 characters of base32: 40 bits, beside an id that is unique in its reply.
const saltLength = 8

// salt tells the ids of calls of a step from those of all other steps that the session has
// ever had, also where it has taken them back since. The first run of a session has none.
func salt(s Start, step int) string {
	if s.Turn <= 1 {
		return ""
	}
	return digest(s.Run.Tenant, s.Run.SessionID, s.Run.RunID, strconv.Itoa(step), "salt")[:saltLength]
}

// uniqueID gives a provider's id of a call of the tool, with the salt where the provider may
// give it again, or, where it is taken already, the id with the smallest number behind it
// that makes it free. An id that cannot be one is replaced.
func uniqueID(id, tool, salt string, taken func(string) bool) string {
	again := counts(id) || tool != "" && strings.Contains(id, tool)
	if !validID(id) {
		id, again = "call_"+digest(id), true
	}
	if again && salt != "" {
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

// words is an id of words and numbers, such as call_0, toolCall1 or functions.find:12.
var words = regexp.MustCompile(`^([A-Z]+|([A-Z]?[a-z]+)*)[0-9]*([^A-Za-z0-9]+([A-Z]+|([A-Z]?[a-z]+)*)[0-9]*)*$`)

// counts reports whether an id is not one that was drawn by lot: whoever gives it may give it
// to another call too.
func counts(id string) bool { return words.MatchString(id) }

func validID(id string) bool {
	return id != "" && len(id) <= maxCallID && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}
