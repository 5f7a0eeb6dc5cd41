package uistream_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

func FuzzAnyStoredMessageIsShown(f *testing.F) {
	for _, seed := range []string{
		`{"id":"u","role":"ROLE_USER","parts":[{"text":{"text":"hi"}},{"file":{"mediaType":"image/png","url":"https://a/b"}}],"uiMetadata":"{\"a\":1}"}`,
		`{"id":"m","runId":"r","step":1,"role":"ROLE_ASSISTANT","parts":[{"text":{"text":"x"}},{"toolCall":{"toolCallId":"c","toolName":"add","arguments":"{\"__proto__\":1}"}}]}`,
		`{"runId":"r","step":1,"role":"ROLE_TOOL","parts":[{"toolResult":{"toolCallId":"c","toolName":"add","success":true,"result":"{"}}]}`,
	} {
		var m eventv1.Message
		if err := protojson.Unmarshal([]byte(seed), &m); err != nil {
			f.Fatal(err)
		}
		encoded, err := proto.Marshal(&m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded, encoded)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var a, b eventv1.Message
		if proto.Unmarshal(first, &a) != nil || proto.Unmarshal(second, &b) != nil {
			return
		}
		for _, m := range (uistream.Stored{Messages: []*eventv1.Message{&a, &b}}).Conversation() {
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatalf("%v, %v: %v", &a, &b, err)
			}
			if m.Role == "" {
				t.Errorf("%v, %v: a message without a role: %s", &a, &b, text)
			}
		}
	})
}
