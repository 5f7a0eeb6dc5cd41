package remote_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func FuzzAnyChunksOfARemoteAgentAreCopied(f *testing.F) {
	for _, c := range append(argumentsOf(1, "c", `{"a":`), text(1, "x"), begins(1, "c", true), asks(1, "c"), ends(1, "c", `{`), committed(1)) {
		encoded, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded, encoded, encoded)
	}
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		var chunks []*eventv1.Chunk
		for _, encoded := range [][]byte{first, second, third} {
			var c eventv1.Chunk
			if proto.Unmarshal(encoded, &c) != nil {
				return
			}
			chunks = append(chunks, &c)
		}
		steps, _ := play(newMirror(0), append(chunks, committed(1))...)
		for _, step := range steps {
			if _, err := json.Marshal(step); err != nil {
				t.Errorf("%v: %v", chunks, err)
			}
		}
	})
}
