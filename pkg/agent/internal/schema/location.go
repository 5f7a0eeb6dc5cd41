package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPointer bounds printed pointers, in bytes.
const maxPointer = 1000

// location is a place in the schema document; nil is a place that does not exist. It links to its
// parent rather than storing its pointer, so that many places below a long name stay small.
type location struct {
	parent   *location
	token    string
	value    any
	children map[string]*location
	node     *node // nil until it is compiled
}

// child returns the place of a member or an item.
func (s *location) child(token string) *location {
	if s == nil {
		return nil
	}
	if known := s.children[token]; known != nil {
		return known
	}
	value, ok := part(s.value, token)
	if !ok {
		return nil
	}
	if s.children == nil {
		s.children = map[string]*location{}
	}
	s.children[token] = &location{parent: s, token: token, value: value}
	return s.children[token]
}

// follow returns the place at a JSON pointer.
func (s *location) follow(pointer string) *location {
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

// part returns a member of an object or an item of a list.
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

// errorAt returns an error with the place, or with a keyword there.
func (s *location) errorAt(keyword, format string, args ...any) error {
	var tokens []string
	if keyword != "" {
		tokens = append(tokens, keyword)
	}
	for ; s.parent != nil; s = s.parent {
		tokens = append(tokens, s.token)
	}
	location := pointer(tokens)
	if location == "" {
		location = "/"
	}
	return fmt.Errorf("at %s: %w", location, fmt.Errorf(format, args...))
}

// pointer returns the JSON pointer of tokens in reverse order. A long one is cut.
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
