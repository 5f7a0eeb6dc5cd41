package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestOnlyTheLastMessageIsDecoded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a conversation":       `{"id":"s","messages":[{"role":"assistant","parts":[{"type":"text","text":"1"}]},{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}]}`,
		"an odd older message": `{"id":"s","messages":[1,{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}],"more":[{}]}`,
		"keys written apart":   ` { "ID" : "s" , "Messages" : [ null , { "id" : "u" , "role" : "user" , "parts" : [ { "type" : "text" , "text" : "hi" } ] } ] } `,
		"keys given twice":     `{"id":"t","messages":[{"role":"system"}],"id":"s","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}]}`,
	} {
		var r request
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := r.operation()
		if err != nil || got.intent != send || r.ID != "s" || got.message.GetId() != "u" || got.message.GetParts()[0].GetText().GetText() != "hi" {
			t.Errorf("%s: got %q, %v, %v", name, r.ID, got, err)
		}
	}
}

// The wanted offsets and fields are those of encoding/json for a plain struct.
func TestAWrongTypeIsToldWithItsPlaceInTheBody(t *testing.T) {
	t.Parallel()
	type plain struct {
		ID       string    `json:"id"`
		Messages []message `json:"messages"`
		Trigger  string    `json:"trigger"`
	}
	for _, text := range []string{
		`[]`, `1`, `"x"`, `{"id":1}`, `{"id" : {"a":1}}`, `{"id":"s","messages":{"a":1}}`, `{"id":"s","messages":"x"}`,
		`{"messages":[{"id":"u"}, 5]}`, `{"messages":[{}, {"id": 1}]}`, `{"messages":[{"parts":"x"}],"trigger":2}`,
		`{"messages":[{"parts":[{"type":"text"},{"text":7}]}]}`,
	} {
		where := func(err error) string {
			wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
			if !ok {
				return fmt.Sprint(err)
			}
			return fmt.Sprintf("%s at %q, byte %d", wrong.Value, wrong.Field, wrong.Offset)
		}
		got, want := where(json.Unmarshal([]byte(text), &request{})), where(json.Unmarshal([]byte(text), &plain{}))
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestAMessageOfVeryManyPartsIsRefused(t *testing.T) {
	t.Parallel()
	parts := func(count int) string {
		return `{"role":"user","parts":[` + strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x"},`, count), ",") + `]}`
	}
	for _, form := range []string{`{"id":"s","messages":[%s]}`, `{"id":"s","message":%s}`} {
		if err := json.Unmarshal(fmt.Appendf(nil, form, parts(maxParts+1)), &request{}); fault.ReasonOf(err) != "MESSAGE_INVALID" {
			t.Errorf("%s: got %v, want MESSAGE_INVALID", form, err)
		}
		r := request{}
		if err := json.Unmarshal(fmt.Appendf(nil, form, parts(maxParts)), &r); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		if got, err := r.operation(); err != nil || len(got.message.GetParts()) != maxParts {
			t.Errorf("%s: got %d parts, %v", form, len(got.message.GetParts()), err)
		}
	}
}

// The test measures the allocations of the process, so it runs alone.
func TestALargeBodyOfTinyValuesCostsLittleMoreThanItself(t *testing.T) { //nolint:paralleltest // see above
	const size = 1 << 20
	for name, text := range map[string]string{
		"parts":       `{"messages":[{"parts":[` + strings.Repeat(`{},`, size/3) + `{}]}]}`,
		"old parts":   `{"messages":[{"parts":[` + strings.Repeat(`{},`, size/3) + `{}]},{"role":"user"}]}`,
		"messages":    `{"messages":[` + strings.Repeat(`{},`, size/3) + `{"role":"user"}]}`,
		"other lists": `{"extra":[` + strings.Repeat(`1,`, size/2) + `1]}`,
	} {
		body := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = json.Unmarshal(body, &request{}) // other tests check the error
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 24*size {
			t.Errorf("%s: %d MB for a body of %d MB", name, got>>20, len(body)>>20)
		}
	}
}

func TestAStreamAfterAnswersDoesNotKeepTheBody(t *testing.T) {
	t.Parallel()
	call := `{"type":"tool-add","toolCallId":"c1","state":"output-available","input":{},"output":1}`
	for name, parts := range map[string]string{"answers": call, "no answers": ""} {
		var body request
		if err := json.Unmarshal(fmt.Appendf(nil, `{"id":"s","messages":[{"id":"m","role":"assistant","parts":[%s]}]}`, parts), &body); err != nil {
			t.Fatal(err)
		}
		if p, err := new(Chat).check(Request{}, &body); err != nil || p.body.list.raw != nil {
			t.Errorf("%s: got %v and %d messages, want none", name, err, len(body.list.raw))
		}
	}
}

func TestTheStateServiceAloneLimitsTheHistoryOfANewSession(t *testing.T) {
	t.Parallel()
	const earlier = 9000 // HOLDFAST_STATE_MAX_HISTORY_MESSAGES may be that high
	messages := strings.Repeat(`{"role":"user","parts":[{"type":"text","text":"x"}]},`, earlier) + `{"role":"user","parts":[{"type":"text","text":"hi"}]}`
	var body request
	if err := json.Unmarshal([]byte(`{"id":"s","messages":[`+messages+`]}`), &body); err != nil {
		t.Fatal(err)
	}
	p := &post{body: &body}
	if got, err := p.history(body.list.earlier(send), earlier); err != nil || len(got) != earlier {
		t.Errorf("got %d messages, %v, want %d", len(got), err, earlier)
	}
}
