package api_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api"
)

func TestABrokenRuleNamesItsFieldAndItself(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request       proto.Message
		reason, field string
	}{
		"no id":                     {&agentv1.GetRequest{}, "ID_INVALID", "session_id"},
		"a long id":                 {&agentv1.GetRequest{SessionId: strings.Repeat("x", 257)}, "ID_INVALID", "session_id"},
		"the longest id":            {&agentv1.GetRequest{SessionId: strings.Repeat("x", 256)}, "", ""},
		"an id with a C1 control":   {&agentv1.GetRequest{SessionId: "a\u0085b"}, "ID_INVALID", "session_id"},
		"an id of 300 bytes":        {&agentv1.GetRequest{SessionId: strings.Repeat("日", 100)}, "ID_INVALID", "session_id"},
		"any other id":              {&agentv1.GetRequest{SessionId: "日本 / .*"}, "", ""},
		"a long checkpoint id":      {&agentv1.RewindRequest{SessionId: "s", CheckpointId: strings.Repeat("x", 321)}, "ID_INVALID", "checkpoint_id"},
		"the longest checkpoint id": {&agentv1.RewindRequest{SessionId: "s", CheckpointId: strings.Repeat("x", 320)}, "", ""},
		"no message":                {&agentv1.StartRequest{}, "MESSAGE_INVALID", ""},
		"an empty message":          {&agentv1.StartRequest{Messages: []*agentv1.InputMessage{{}}}, "MESSAGE_INVALID", "messages[0]"},
		"a role of nobody":          {&agentv1.StartRequest{Messages: []*agentv1.InputMessage{{Text: "x"}, {Text: "x", Role: "tool"}}}, "MESSAGE_INVALID", "messages[1].role"},
		"an unknown policy":         {&agentv1.StartRequest{Message: "x", OnBusy: 9}, "ON_BUSY_INVALID", "on_busy"},
		"31 days":                   {&agentv1.StartRequest{Message: "x", TimeoutMs: 2_592_000_001}, "TIMEOUT_INVALID", "timeout_ms"},
		"a limit of 201":            {&agentv1.ListUsageRequest{SessionId: "s", Limit: 201}, "LIMIT_INVALID", "limit"},
		"a limit of 200":            {&agentv1.ListUsageRequest{SessionId: "s", Limit: 200}, "", ""},
		"a page before the first":   {&agentv1.ListMessagesRequest{SessionId: "s", Offset: -1}, "LIMIT_INVALID", "offset"},
		"no status":                 {&agentv1.ListSessionsRequest{Statuses: []string{"active", "dead"}}, "STATUS_INVALID", "statuses[1]"},
		"a parent without an id":    {&agentv1.ListSessionsRequest{Family: &agentv1.ListSessionsRequest_ParentSessionId{}}, "ID_INVALID", "parent_session_id"},
		"a cursor and an offset":    {&agentv1.ListSessionsRequest{Cursor: "x", Offset: 1}, "CURSOR_INVALID", ""},
		"1001 sessions":             {&agentv1.QueryUsageRequest{SessionIds: make([]string, 1001)}, "QUERY_INVALID", "session_ids"},
		"a short bucket":            {&agentv1.QueryUsageRequest{BucketMs: 999}, "QUERY_INVALID", "bucket_ms"},
		"a cleared user":            {&agentv1.UpdateSessionRequest{SessionId: "s", UserId: proto.String("")}, "", ""},
		"an expiry before 1970":     {&agentv1.UpdateSessionRequest{SessionId: "s", ExpiresAt: proto.Int64(-1)}, "EXPIRES_AT_INVALID", "expires_at"},
		"an expiry in 9999":         {&agentv1.UpdateSessionRequest{SessionId: "s", ExpiresAt: proto.Int64(253402300799999)}, "", ""},
		"an expiry after 9999":      {&agentv1.UpdateSessionRequest{SessionId: "s", ExpiresAt: proto.Int64(253402300800000)}, "EXPIRES_AT_INVALID", "expires_at"},
		"a cleared expiry":          {&agentv1.UpdateSessionRequest{SessionId: "s", ExpiresAt: proto.Int64(0)}, "", ""},
	} {
		err := api.Validate(tc.request)
		f, _ := fault.From(err)
		switch {
		case tc.reason == "" && err == nil:
		case tc.reason == "" || f == nil || f.Kind != fault.Invalid || f.Reason != tc.reason || f.Meta["field"] != tc.field || f.Meta["rule"] != tc.reason:
			t.Errorf("%s: got %v, %v", name, err, f)
		}
	}
}

// A rule names the limit of its field.
func TestABrokenRuleNamesItsLimit(t *testing.T) {
	t.Parallel()
	for want, request := range map[string]proto.Message{
		"session_id must be an id: 1 to 256 bytes without control characters":                   &agentv1.GetRequest{SessionId: strings.Repeat("x", 257)},
		"checkpoint_id must be an id: 1 to 320 bytes without control characters":                &agentv1.RewindRequest{SessionId: "s", CheckpointId: strings.Repeat("x", 321)},
		"checkpoint_id must be an id of at most 320 bytes without control characters, or empty": &agentv1.ResumeRequest{SessionId: "s", CheckpointId: strings.Repeat("x", 321)},
		"limit must be 1 to 200, or 0 for 50":                                                   &agentv1.ListUsageRequest{SessionId: "s", Limit: 201},
		"timeout_ms must be 1 to 2592000000 milliseconds, or 0 for no limit":                    &agentv1.StartRequest{Message: "x", TimeoutMs: 2_592_000_001},
	} {
		err := api.Validate(request)
		if f, _ := fault.From(err); f == nil || f.Detail != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for name, request := range map[string]proto.Message{
		"get":   &agentv1.GetSessionRequest{SessionId: "a-session-of-usual-length"},
		"start": &agentv1.StartRequest{SessionId: "a-session-of-usual-length", AgentType: "demo", Message: strings.Repeat("word ", 40), UserId: "ada", RequestKey: "k"},
		"list":  &agentv1.ListSessionsRequest{UserId: "ada", Statuses: []string{"active"}, Limit: 50},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := api.Validate(request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
