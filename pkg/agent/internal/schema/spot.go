package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPointer bounds the pointers that are told, in bytes.
const maxPointer = 1000

// spot is a place of the schema's document. It knows the way to the root and not the
// text of its pointer, so that many places below a long name take no more than one. nil
// where a place is not there.
type spot struct {
	above  *spot
	token  string
	value  any
	inside map[string]*spot
	node   *node // nil until the place is compiled
}

// child gives the place of a member or an item, nil where there is none.
func (s *spot) child(token string) *spot {
	if s == nil {
		return nil
	}
	if known := s.inside[token]; known != nil {
		return known
	}
	value, ok := part(s.value, token)
	if !ok {
		return nil
	}
	if s.inside == nil {
		s.inside = map[string]*spot{}
	}
	s.inside[token] = &spot{above: s, token: token, value: value}
	return s.inside[token]
}

// follow gives the place that a pointer leads to, nil where it leads nowhere.
func (s *spot) follow(pointer string) *spot {
	if pointer == "" {
		return s
	}
	if pointer[0] != '/' {
		return nil
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		s = s.child(strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return s
}

// part gives a member of an object or an item of a list.
func part(value any, token string) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		inner, ok := v[token]
		return inner, ok
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(v) || strconv.Itoa(i) != token {
			return nil, false
		}
		return v[i], true
	}
	return nil, false
}

// wrong is a mistake at the place, or at a keyword of it.
func (s *spot) wrong(keyword, format string, args ...any) error {
	var tokens []string
	if keyword != "" {
		tokens = append(tokens, keyword)
	}
	for ; s.above != nil; s = s.above {
		tokens = append(tokens, s.token)
	}
	place := pointer(tokens)
	if place == "" {
		place = "/"
	}
	return fmt.Errorf("at %s: %w", place, fmt.Errorf(format, args...))
}

// pointer makes a JSON pointer of tokens, the last first. What is too long is cut.
func pointer(tokens []string) string {
	var b strings.Builder
	for i := len(tokens) - 1; i >= 0 && b.Len() <= maxPointer; i-- {
		b.WriteByte('/')
		b.WriteString(escape(clip(tokens[i], maxPointer)))
	}
	return clip(b.String(), maxPointer)
}

func escape(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}
