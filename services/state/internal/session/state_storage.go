package session

import (
	"encoding/json"
	"unicode/utf8"
)

// maxStateWrites bounds the writes folded onto a whole state by a reader.
const maxStateWrites = 64

// storeState sets the merged custom state and decides how to store it: whole, or as the
// writes since the last whole state. There are at most maxStateWrites such writes, and
// together they have at most half the size of the state. An unchanged state is not stored.
// The session has its new version already.
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

// storeWholeState stores the custom state as a whole.
func (s *Session) storeWholeState(change *Change, text string) {
	s.State, s.StateVersion, s.StateBase = text, s.Version, s.Version
	s.StateWrites, s.StateBytes = 0, 0
	change.NewState = true
}

// restoreState sets the custom state to an earlier version. The next state is stored whole,
// since the number of writes before this one is unknown.
func (s *Session) restoreState(text string, version, base int64) {
	s.State, s.StateVersion, s.StateBase = text, version, base
	s.StateWrites, s.StateBytes = maxStateWrites, 0
}

// encodedSize returns the size in bytes of the stored writes. It is false for writes that
// JSON cannot represent exactly.
func encodedSize(ops []StateOp) (size int64, ok bool) {
	for _, op := range ops {
		if !utf8.ValidString(op.Key) || !utf8.ValidString(op.Value) {
			return 0, false // JSON would replace the invalid bytes
		}
	}
	text, err := json.Marshal(ops)
	return int64(len(text)), err == nil && len(ops) > 0
}
