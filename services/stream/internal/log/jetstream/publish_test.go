package jetstream

import (
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestAnAcknowledgementIsReadAsTheServerWritesItAndInAnyOtherForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		`{"stream":"holdfast-live-03","seq":1700000000000042}`:           1700000000000042,
		`{"stream":"holdfast-live-03","seq":7,"duplicate":true}`:         7,
		`{"stream":"holdfast-live-03","domain":"hub","seq":7}`:           7,
		`{"seq":7,"stream":"holdfast-live-03"}`:                          7,
		`{ "stream": "holdfast-live-03", "seq": 7 }`:                     7,
		`{"stream":"a\",\"seq\":8,\"x","seq":7}`:                         7,
		`{"stream":"holdfast-live-03","seq":18446744073709551615}`:       1<<64 - 1,
		`{"type":"x","stream":"holdfast-live-03","seq":9,"value":"1.2"}`: 9,
	} {
		if got, err := readAcknowledgement([]byte(text)); got != want || err != nil {
			t.Errorf("%s: got %d, %v; want %d", text, got, err, want)
		}
	}
	refused := `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"s","seq":0}`
	if _, err := readAcknowledgement([]byte(refused)); !isCode(err, natsjs.JSErrCodeStreamWrongLastSequence) {
		t.Errorf("%s: got %v, want the refusal", refused, err)
	}
	for _, text := range []string{``, `{`, `{"stream":"`, `{"stream":"s","seq":}`, `{"stream":"s","seq":-1}`, `{"stream":"s","seq":1`} {
		if got, err := readAcknowledgement([]byte(text)); err == nil {
			t.Errorf("%s: got %d, want an error", text, got)
		}
	}
}
