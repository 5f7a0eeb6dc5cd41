package jetstream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// names makes the subjects and stream names of one namespace. A message is published
// under the first subject and heard under the second, once it is stored.
//
//	<namespace>.append.<partition>.<tenant>.<root>.<session>
//	<namespace>.stored.<partition>.<tenant>.<root>.<session>
type names struct{ namespace string }

func (n names) stream(partition int) string {
	return fmt.Sprintf("%s-live-%02d", n.namespace, partition)
}
func (n names) append(partition int) string {
	return fmt.Sprintf("%s.append.%02d.", n.namespace, partition)
}
func (n names) stored(partition int) string {
	return fmt.Sprintf("%s.stored.%02d.", n.namespace, partition)
}

// filter returns the subject that matches the messages of a scope.
func (n names) filter(partition int, s log.Scope) string {
	session := "*"
	if !s.Family {
		session = token(s.Session)
	}
	return n.append(partition) + token(s.Tenant) + "." + token(s.Root) + "." + session
}

// streamOf reads the end of a subject: tenant, root and session.
func streamOf(subject string) (log.Stream, error) {
	parts := strings.Split(subject, ".")
	if len(parts) < 3 {
		return log.Stream{}, fmt.Errorf("subject %q names no session", subject)
	}
	parts = parts[len(parts)-3:]
	for i, t := range parts {
		id, err := fromToken(t)
		if err != nil {
			return log.Stream{}, err
		}
		parts[i] = id
	}
	return log.Stream{Tenant: parts[0], Root: parts[1], Session: parts[2]}, nil
}

const hexDigits = "0123456789abcdef"

// plain reports whether a byte stands for itself in a token. The escape does not, so two
// ids never have one token.
func plain(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
}

// token writes an id as one legal token of a subject: every byte but letters, digits, '-'
// and '_' becomes '=' and two hexadecimal digits. Three ids of 256 bytes stay below the
// 4,096 bytes of a NATS control line.
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
