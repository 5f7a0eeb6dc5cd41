package pipe

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
)

func TestAFrameReadsAsItWasWritten(t *testing.T) {
	t.Parallel()
	calls := []call{
		{number: 1, method: 0, payload: []byte("first")},
		{number: 1 << 40, method: 7, timeout: 3 * time.Second, traceparent: "00-1-2-01", tracestate: "a=b", payload: []byte{}},
	}
	answers := []answer{{number: 1, payload: []byte("yes")}, {number: 2, status: []byte("no")}, {number: 3}}
	var b []byte
	for _, c := range calls {
		b = append(c.head(b, len(c.payload)), c.payload...)
	}
	b = append(answers[0].head(b, answerPayload, 3), "yes"...)
	b = append(answers[1].head(b, answerStatus, 2), "no"...)
	b = answers[2].head(b, answerPayload, 0)
	b = appendVarint(b, frameCancelled, 9)
	b = appendVarint(b, 15, 1) // a field of a later version
	b = appendVarint(b, frameEnding, 1)

	var gotCalls []call
	var gotAnswers []answer
	var cancelled []uint64
	ending := false
	f := frame{in: mem.SliceBuffer(b)}
	err := f.read(reader{
		call:      func(c call) { gotCalls = append(gotCalls, c) },
		answer:    func(a answer) { gotAnswers = append(gotAnswers, a) },
		cancelled: func(number uint64) { cancelled = append(cancelled, number) },
		ending:    func() { ending = true },
	})
	calls[1].payload = nil // an empty payload is not sent
	if err != nil || !reflect.DeepEqual(gotCalls, calls) || !reflect.DeepEqual(gotAnswers, answers) || !ending || !reflect.DeepEqual(cancelled, []uint64{9}) {
		t.Errorf("read = %v\n%+v\n%+v\n%v %v, want\n%+v\n%+v\n[9] true", err, gotCalls, gotAnswers, cancelled, ending, calls, answers)
	}
}

func FuzzAnyBytesAreReadOrRefused(f *testing.F) {
	f.Add(call{number: 5, method: 1, timeout: time.Second, traceparent: "t"}.head(nil, 0))
	f.Add(answer{number: 5}.head(nil, answerStatus, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got []byte
		f := frame{in: mem.SliceBuffer(b)}
		err := f.read(reader{
			call:   func(c call) { got = append(got, c.payload...) },
			answer: func(a answer) { got = append(append(got, a.payload...), a.status...) },
		})
		if err == nil && len(got) > len(b) {
			t.Errorf("read %d bytes of payload from a frame of %d", len(got), len(b))
		}
	})
}

func TestAnOutboxGivesWholeEntriesInOrderUpToAFrame(t *testing.T) {
	t.Parallel()
	o := newOutbox()
	entry := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 3000) }
	var want []byte
	for i := range 100 {
		o.put(entry(i))
		want = append(want, entry(i)...)
	}
	large := bytes.Repeat([]byte("x"), FrameBytes+1)
	o.put(large)
	want = append(want, large...)
	var got []byte
	err := o.flush(func(v any) error {
		out := v.(*frame).out
		if n := out.Len(); n > FrameBytes && n != len(large) || n%3000 != 0 && n != len(large) {
			t.Errorf("a frame holds %d bytes, want whole entries in at most %d", n, FrameBytes)
		}
		got = append(got, out.Materialize()...)
		return nil
	})
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("flush = %v, %d bytes, want %d in order", err, len(got), len(want))
	}
	if out := o.take(); out != nil {
		t.Errorf("an empty outbox gives %d bytes", out.Len())
	}
}
