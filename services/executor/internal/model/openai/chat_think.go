package openai

import (
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// The tags of templates around reasoning that a server did not take out of the text.
const (
	thinkOpens  = "<think>"
	thinkCloses = "</think>"
)

// thinkSplitter separates the reasoning between tags at the beginning of a reply from its text. Tags may be split anywhere.
type thinkSplitter struct {
	state    thinkState
	buffered string // what may be a part of a tag, or white space around one
}

type thinkState int

const (
	thinkNever  thinkState = iota // the text goes on as it is
	thinkMaybe                    // the reply may begin with a tag
	thinkBegins                   // in the reasoning, nothing of which has come
	thinkInside                   // in the reasoning
	thinkAfter                    // behind the reasoning, before the text
)

func newThinkSplitter(tags string) thinkSplitter {
	switch tags {
	case profile.ThinkStart:
		return thinkSplitter{state: thinkMaybe}
	case profile.ThinkOpen:
		return thinkSplitter{state: thinkBegins}
	}
	return thinkSplitter{}
}

// add returns the pieces certain by now.
func (s *thinkSplitter) add(text string) (pieces []contentPiece) {
	if s.state == thinkNever {
		return []contentPiece{{text: text}}
	}
	s.buffered += text
	if s.state == thinkMaybe || s.state == thinkBegins {
		began := strings.TrimLeftFunc(s.buffered, unicode.IsSpace)
		switch {
		case strings.HasPrefix(began, thinkOpens):
			s.state = thinkBegins
			s.buffered = strings.TrimLeftFunc(began[len(thinkOpens):], unicode.IsSpace)
		case strings.HasPrefix(thinkOpens, began) && len(s.buffered) <= maxThinkSpace:
			return nil // more must come
		case s.state == thinkMaybe:
			return s.flush()
		}
		if s.state == thinkBegins && s.buffered != "" {
			s.state = thinkInside
			s.buffered = strings.TrimLeftFunc(s.buffered, unicode.IsSpace)
		}
	}
	if s.state == thinkInside {
		reasoning, rest, closed := strings.Cut(s.buffered, thinkCloses)
		if !closed {
			end := len(reasoning) - partOfTag(reasoning)
			s.buffered = reasoning[end:]
			reasoning = reasoning[:end]
		} else {
			s.state = thinkAfter
			s.buffered = rest
		}
		if reasoning != "" {
			pieces = append(pieces, contentPiece{text: reasoning, thinking: true})
		}
	}
	if s.state == thinkAfter {
		if s.buffered = strings.TrimLeftFunc(s.buffered, unicode.IsSpace); s.buffered != "" {
			pieces = append(pieces, s.flush()...)
		}
	}
	return pieces
}

// maxThinkSpace limits the white space before a tag, in bytes.
const maxThinkSpace = 256

// partOfTag returns how many bytes at the end of a text may begin the closing tag.
func partOfTag(text string) int {
	for n := min(len(text), len(thinkCloses)-1); n > 0; n-- {
		if strings.HasPrefix(thinkCloses, text[len(text)-n:]) {
			return n
		}
	}
	return 0
}

// flush returns what is buffered. Later text goes on as it is.
func (s *thinkSplitter) flush() []contentPiece {
	piece := contentPiece{text: s.buffered, thinking: s.state == thinkBegins || s.state == thinkInside}
	s.state = thinkNever
	s.buffered = ""
	if piece.text == "" || piece.thinking && strings.TrimSpace(piece.text) == "" {
		return nil
	}
	return []contentPiece{piece}
}
