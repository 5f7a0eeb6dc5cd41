package session

import (
	"slices"
	"strings"
	"unicode"
)

// Memory is a fact that outlives its session.
type Memory struct {
	ID        string
	EntityID  string // subject of the fact; may be empty
	Source    string // origin of the fact; may be empty
	Text      string
	Metadata  map[string]string
	CreatedAt Millis
	UpdatedAt Millis
}

// SearchWords returns the words under which a text is indexed: runs of letters and digits in lower
// case, cut to 64 characters, unique and sorted. It stops after limit words of the text.
func SearchWords(text string, limit int) []string {
	const longest = 64
	seen := map[string]bool{}
	var words []string
	separates := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }
	for word := range strings.FieldsFuncSeq(text, separates) {
		if len(words) == limit {
			break
		}
		runes := []rune(strings.ToLower(word))
		word = string(runes[:min(longest, len(runes))])
		if !seen[word] {
			seen[word] = true
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return words
}

// MaxSearchWords is the limit of SearchWords for a stored record.
const MaxSearchWords = 1000
