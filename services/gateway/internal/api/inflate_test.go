package api

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func compressed(t *testing.T, text []byte) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return &out
}

func TestARequestThatInflatesOutOfProportionIsRefusedEarly(t *testing.T) {
	t.Parallel()
	words := make([]byte, 1<<20)
	for i := range words {
		words[i] = byte('a' + rand.N(4)) //nolint:gosec // no secret
	}
	for name, c := range map[string]struct {
		text   []byte
		refuse bool
	}{
		"a bomb":           {make([]byte, 61<<20), true},
		"much of the same": {make([]byte, freeInflate), false},
		"text":             {words, false},
		"nothing":          {nil, false},
	} {
		var i inflater
		if err := i.Reset(compressed(t, c.text)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(&i)
		if c.refuse != (fault.ReasonOf(err) == "BODY_TOO_LARGE") || !c.refuse && (err != nil || !bytes.Equal(got, c.text)) {
			t.Errorf("%s: got %d bytes, %v; want a refusal: %v", name, len(got), err, c.refuse)
		}
		if len(got) > 8<<20 {
			t.Errorf("%s: %d bytes were inflated before the refusal", name, len(got))
		}
	}
}
