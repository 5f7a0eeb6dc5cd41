package jetstream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// names makes the subjects and stream names of one namespace.
//
//	<namespace>.chunks.<partition>.<tenant>.<root>.<session>   stored
//	<namespace>.live.<partition>.<tenant>.<root>.<session>     told again as it is stored
//	<namespace>.chunks.<partition>.=                           probes, of no session
type names struct{ namespace string }

func (n names) stream(partition int) string {
	return fmt.Sprintf("%s_CHUNKS_%02d", strings.ToUpper(n.namespace), partition)
}

func (n names) stored(partition int) string {
	return fmt.Sprintf("%s.chunks.%02d.", n.namespace, partition)
}

func (n names) live(partition int) string {
	return fmt.Sprintf("%s.live.%02d.", n.namespace, partition)
}

// probe returns the subject of the records that are written to see whether the
// partition has everything (renew.go). It has one token where records have
// three, and one that no id has.
func (n names) probe(partition int) string { return n.stored(partition) + "=" }

// subject returns the subject of a stream's records.
func (n names) subject(partition int, s bus.Stream) string {
	return n.stored(partition) + sessionKey(s)
}

// filter returns the subject that matches the records of a scope.
func (n names) filter(partition int, s bus.Scope) string {
	if s.Family {
		return n.stored(partition) + familyKey(s.Stream) + "*"
	}
	return n.subject(partition, s.Stream)
}

// sessionKey is what the subjects of a session end with.
func sessionKey(s bus.Stream) string { return familyKey(s) + token(s.Session) }

// familyKey is what stands before the session in it, dot included.
func familyKey(s bus.Stream) string { return token(s.Tenant) + "." + token(s.Root) + "." }

const hexDigits = "0123456789abcdef"

// plain says which bytes stand for themselves in a token. The escape is not
// one of them, so two ids never have one token.
func plain(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
}

// token writes an id as one legal token of a subject: every byte but letters,
// digits, '-' and '_' becomes '=' and two hexadecimal digits. Three ids of 256
// bytes stay below the 4,096 bytes of a NATS control line.
func token(id string) string {
	i := 0
	for i < len(id) && plain(id[i]) {
		i++
	}
	if i == len(id) {
		return id
	}
	var b strings.Builder
	b.Grow(len(id) + 2*(len(id)-i))
	for i := range len(id) {
		if c := id[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// fromToken is the inverse of token.
func fromToken(t string) (string, error) {
	if !strings.Contains(t, "=") {
		return t, nil
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] != '=' {
			b.WriteByte(t[i])
			continue
		}
		if i+2 >= len(t) {
			return "", fmt.Errorf("token %q ends inside an escape", t)
		}
		c, err := strconv.ParseUint(t[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("token %q: %w", t, err)
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}
