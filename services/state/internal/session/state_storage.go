package session

import (
	"encoding/json"
	"unicode/utf8"
)

// maxStateWrites is how many writes are folded onto a whole state at most: what a
// reader of the state pays for the bytes that the writers save.
const maxStateWrites = 64

// storeState puts the merged custom state into the session's row, which has its new
// version already, and decides how it is stored: as a whole, or as the writes that
// made it. The writes since the last whole state are at most longestFold, and
// together at most half as long as the state. So a state that grows by little
// costs little, and all that is kept of it stays below one and a half times its
// size for each time that it was written anew.
//
// A text that the writes leave as it was is not stored again.
func (s *Session) storeState(change *Change, ops []StateOp, text string) {
	if text == s.State {
		return
	}
	if size, ok := encodedSize(ops); ok && s.StateWrites < maxStateWrites && s.StateBytes+size <= int64(len(text))/2 {
		s.State, s.StateVersion = text, s.Version
		s.StateWrites++
		s.StateBytes += size
		change.StateWrite = ops
		return
	}
	s.storeWholeState(change, text)
}

// storeWholeState stores the custom state as a text of its own.
func (s *Session) storeWholeState(change *Change, text string) {
	s.State, s.StateVersion, s.StateBase = text, s.Version, s.Version
	s.StateWrites, s.StateBytes = 0, 0
	change.NewState = true
}

// encodedSize returns how many bytes the writes take where they are kept. It is
// false for writes that would not come back as they are.
func encodedSize(ops []StateOp) (size int64, ok bool) {
	for _, op := range ops {
		if !utf8.ValidString(op.Key) || !utf8.ValidString(op.Value) {
			return 0, false // JSON would put other characters into their place
		}
	}
	text, err := json.Marshal(ops)
	return int64(len(text)), err == nil && len(ops) > 0
}
