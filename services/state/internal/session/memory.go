package session

import (
	"slices"
	"strings"
	"unicode"
)

// Memory is a fact that outlives the session that it was learnt in.
type Memory struct {
	ID        string
	EntityID  string // whom or what it is about; may be empty
	Source    string // where it came from; may be empty
	Text      string
	Metadata  map[string]string
	CreatedAt Millis
	UpdatedAt Millis
}

// Words returns the words of a text by which it is found: runs of letters and
// digits in lower case, each once, sorted, at most limit of them, the first ones
// of the text. A word longer than 64 letters counts by its first 64.
func Words(text string, limit int) []string {
	const longest = 64
	seen := map[string]bool{}
	var words []string
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
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

// WordsOf bounds the words by which a record is found.
const WordsOf = 1000
