package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// storedState is the custom state in a store.
type storedState struct {
	whole  map[int64]string
	writes map[int64]string
}

func (k storedState) write(t *rapid.T, change *Change) {
	switch {
	case change == nil:
	case change.NewState:
		k.whole[change.Session.StateVersion] = change.Session.State
	case change.StateWrite != nil:
		text, err := json.Marshal(change.StateWrite)
		if err != nil {
			t.Fatal(err)
		}
		k.writes[change.Session.StateVersion] = string(text)
	}
}

// read folds the versions, and returns the number and size of the writes.
func (k storedState) read(t *rapid.T, base, version int64) (text string, count, size int) {
	var writes []string
	for at := base + 1; at <= version; at++ {
		if write, ok := k.writes[at]; ok {
			writes = append(writes, write)
			size += len(write)
		}
	}
	whole, ok := k.whole[base]
	if !ok {
		t.Fatalf("no whole state is stored as of %d", base)
	}
	text, err := FoldState(whole, writes)
	if err != nil {
		t.Fatal(err)
	}
	return text, len(writes), size
}

func drawOps(t *rapid.T) []StateOp {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) StateOp {
		key := rapid.SampledFrom([]string{"a", "b", "c", "<ü\x01\u2028", "bad\xff"}).Draw(t, "key")
		switch kind := rapid.SampledFrom([]OpKind{OpReplace, OpAppend, OpDelete}).Draw(t, "kind"); kind {
		case OpReplace:
			values := []string{`1`, ` { "x" : [ 1 , 2 ] } `, `null`, "\t\"\\u0041<&\"\n", `[]`, `"` + strings.Repeat("long", 40) + `"`}
			return StateOp{key, kind, rapid.SampledFrom(values).Draw(t, "value")}
		case OpAppend:
			return StateOp{key, kind, rapid.SampledFrom([]string{`[1]`, ` [ 2 , "<" ] `, `[]`, `[{"a":1e400}]`}).Draw(t, "value")}
		default:
			return StateOp{Key: key, Kind: kind}
		}
	}), 0, 4).Draw(t, "ops")
}

func TestTheStoredStateReadsAsTheMergedText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.SampledFrom([]string{`{}`, ` { "a" : [ 1 ] , "b":2, "a":[3] } `, `{"big":"` + strings.Repeat("x", 2000) + `"}`}).Draw(t, "state")
		s := Session{Key: sessionKey, Version: 1, State: state, StateVersion: 1, StateBase: 1}
		k := storedState{whole: map[int64]string{1: state}, writes: map[int64]string{}}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			ops := drawOps(t)
			change, _, err := MergeState{Key: sessionKey, Ops: ops, Limits: Limits{State: 100_000}}.Decide(&View{Session: &s})
			if err != nil {
				t.Fatal(err)
			}
			k.write(t, change)
			if change != nil {
				s = *change.Session
			}
			text, count, size := k.read(t, s.StateBase, s.StateVersion)
			if text != s.State {
				t.Fatalf("reads %s, was merged to %s", text, s.State)
			}
			if count != int(s.StateWrites) || size != int(s.StateBytes) || count > maxStateWrites {
				t.Fatalf("got %d writes of %d bytes, the session says %d of %d", count, size, s.StateWrites, s.StateBytes)
			}
			if change != nil && change.StateWrite != nil && 2*size > len(text) {
				t.Fatalf("got %d bytes of writes beside a state of %d", size, len(text))
			}
		}
	})
}

func TestASmallWriteIsStoredWithoutTheWholeState(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.State = `{"big":"` + strings.Repeat("x", 20_000) + `"}`
	whole := 0
	for i := range 200 {
		c := Commit{ClaimRef: ref, Step: v.Session.StepCount + 1, Ops: []StateOp{{"n", OpReplace, fmt.Sprint(i)}}, Limits: Limits{State: 100_000}}
		change, checkpoint, err := c.Decide(v)
		must(t, err)
		if change.NewState == (change.StateWrite != nil) {
			t.Fatalf("got a whole %v and a write %v", change.NewState, change.StateWrite)
		}
		if change.NewState {
			whole++
		}
		s := change.Session
		if checkpoint.StateVersion != s.Version || checkpoint.StateBase != s.StateBase || s.StateVersion != s.Version || change.NewState != (s.StateBase == s.Version) {
			t.Fatalf("got checkpoint %+v of %+v", checkpoint, s)
		}
		v.Session = s
	}
	if whole != 3 { // one after every 64 writes
		t.Errorf("200 small writes stored the whole state %d times", whole)
	}
}

func TestAnUnchangedStateIsNotStored(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.State = `{"a":1}`
	change, _, err := Commit{ClaimRef: ref, Step: 4, Ops: []StateOp{{"a", OpReplace, "1"}}, Limits: Limits{State: 100}}.Decide(v)
	if err != nil || change.NewState || change.StateWrite != nil || change.Session.StateVersion != 1 || change.Checkpoint.StateVersion != 1 {
		t.Errorf("commit: got %+v, %v", change, err)
	}
	merge := MergeState{Key: sessionKey, Ops: []StateOp{{"a", OpReplace, "1"}, {"b", OpAppend, "[1]"}, {"b", OpDelete, ""}}, Limits: Limits{State: 100}}
	if change, got, err := merge.Decide(v); err != nil || change != nil || got.Version != 7 {
		t.Errorf("merge: got %+v, %+v, %v", change, got, err)
	}
	change, version, err := SaveState{Key: sessionKey, State: `{"a":1}`, Limits: Limits{State: 100}}.Decide(v)
	if err != nil || version != 8 || change.NewState || change.Session.StateVersion != 1 {
		t.Errorf("save: got %+v, %v", change, err)
	}
}

func TestSaveStateReplacesTheWholeState(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.StateWrites, v.Session.StateBytes = 3, 30
	change, version, err := SaveState{Key: sessionKey, State: `{"b":2}`, ExpectedVersion: 7, Limits: Limits{State: 7}}.Decide(v)
	must(t, err)
	if s := change.Session; version != 8 || !change.NewState || s.State != `{"b":2}` || s.StateBase != 8 || s.StateVersion != 8 || s.StateWrites != 0 || s.StateBytes != 0 {
		t.Errorf("got %+v", s)
	}
	_, _, err = SaveState{Key: sessionKey, State: `{"b":23}`, Limits: Limits{State: 7}}.Decide(v)
	refused(t, err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
}

func TestMergingWarnsAndRespectsTheLimit(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.State = `{"a":1}`
	change, got, err := MergeState{Key: sessionKey, Ops: []StateOp{{"a", OpAppend, "[2]"}}, Limits: Limits{State: 100}}.Decide(v)
	if err != nil || got.Version != 8 || len(got.Warnings) != 1 || change.Session.State != `{"a":[2]}` {
		t.Errorf("got %+v, %+v, %v", change, got, err)
	}
	_, _, err = MergeState{Key: sessionKey, Ops: []StateOp{{"a", OpAppend, "[2]"}}, Limits: Limits{State: 3}}.Decide(v)
	refused(t, err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
}
