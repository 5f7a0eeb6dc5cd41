package flat

import (
	"encoding/json"
	"errors"
	"net/url"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func FuzzAFlatBodyIsDecodedAsItIsEncoded(f *testing.F) {
	for _, seed := range []string{
		`{"sessionId":"s","agentType":"a","message":"hi","metadata":{"k":"v"},"tags":["a","b"]}`,
		`{"sessionId":null,"messages":[{"role":"user","parts":[{"text":{"text":"x"}}]}]}`,
		`{"sessionId":"s","sessionId":"t"}`, `{"unknown":1}`, `[]`, `{"metadata":{"k":1}}`, `{"state":{"a":1e400}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || !utf8.Valid(text) { // as the route checks
			return
		}
		var got agentv1.StartRequest
		if err := decode(text, got.ProtoReflect(), ""); err != nil {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		encoded, err := eventv1.MarshalMessage(&got)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var again agentv1.StartRequest
		if err := decode(encoded, again.ProtoReflect(), ""); err != nil || !proto.Equal(&got, &again) {
			t.Errorf("%q is %v, which is encoded as %s and decoded as %v, %v", text, &got, encoded, &again, err)
		}
	})
}

func FuzzAQuerySetsFieldsOrIsRefused(f *testing.F) {
	for _, seed := range []string{"limit=10&userId=u&tags=a&tags=b&metadata[k]=v", "limit=-1", "limit=99999999999999999999", "metadata[=x&metadata[]=y", "status=failed", "exactTotal=maybe", "userId=%ff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		var got agentv1.ListSessionsRequest
		if err := (definition{}).setQuery(query, got.ProtoReflect()); err != nil {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if _, err := proto.Marshal(&got); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
