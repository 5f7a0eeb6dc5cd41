package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// largeAnswer returns a stored answer of messages of one megabyte each.
func largeAnswer(messages int) []*eventv1.Message {
	var all []*eventv1.Message
	for step := range messages {
		all = append(all, AssistantMessage(int32(step+1), fmt.Sprintf("%03d", step)+strings.Repeat("x", 1<<20)))
	}
	return all
}

type page struct {
	Messages []struct {
		ID    string
		Parts []struct{ Text string }
	}
	Total, Offset, Limit int
	HasMore              bool
}

func (h *fixture) page(t *testing.T, offset, limit int) (p page, size int) {
	t.Helper()
	got := text(t, h.request(t, http.MethodGet, fmt.Sprintf("/messages?sessionId=s1&offset=%d&limit=%d", offset, limit), ""))
	if err := json.Unmarshal([]byte(got), &p); err != nil {
		t.Fatalf("%.200s: %v", got, err)
	}
	return p, len(got)
}

func TestPagesOfLargeMessagesEndEarlyAndHoldEachMessageOnce(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	var former *Run
	var want []string
	for turn, steps := range []int{3, 3, 10, 1} {
		former = h.begin(t, "s1", fmt.Sprint(turn), former)
		former.Complete(largeAnswer(steps)...)
		want = append(want, fmt.Sprintf("u-%d 1", turn), fmt.Sprintf("%s %d", former.GetMessageId(), 2*steps))
	}
	for _, limit := range []int{200, 6} {
		var got []string
		for offset, more := 0, true; more; {
			p, size := h.page(t, offset, limit)
			for _, m := range p.Messages {
				got = append(got, fmt.Sprintf("%s %d", m.ID, len(m.Parts)))
			}
			if most := 8<<20 + 1<<12; size > most && len(p.Messages) > 1 {
				t.Errorf("offset %d, limit %d: %d messages have %d bytes, at most %d may be in one page", offset, limit, len(p.Messages), size, most)
			}
			if p.Offset != offset || p.Limit < 1 || p.Limit > limit || p.Total != 21 {
				t.Fatalf("offset %d, limit %d: got %d, %d of %d", offset, limit, p.Offset, p.Limit, p.Total)
			}
			offset, more = p.Offset+p.Limit, p.HasMore
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %q, want %q", limit, got, want)
		}
	}
}

func TestAnAnswerThatIsTooLargeIsCutAndSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Complete(largeAnswer(20)...)
	var all []string
	for offset, more := 0, true; more; {
		p, size := h.page(t, offset, 50)
		if size > 17<<20 {
			t.Errorf("offset %d: %d bytes", offset, size)
		}
		for _, m := range p.Messages {
			all = append(all, m.ID)
			if last := m.Parts[len(m.Parts)-1].Text; m.ID == "msg_run1" && !strings.HasSuffix(last, "too large to be shown.") {
				t.Errorf("the answer ends with %.100q", last)
			}
		}
		offset, more = p.Offset+p.Limit, p.HasMore
	}
	if want := []string{"u-hi", "msg_run1"}; !slices.Equal(all, want) {
		t.Errorf("got %q, want %q", all, want)
	}
	got := dataLines(h.resume(t, "/chat/s1/stream").rest())
	if len(got) < 18<<20 || !strings.HasSuffix(got, "[DONE]\n") {
		t.Errorf("the replay has %d bytes and ends with %q; want it whole", len(got), got[max(0, len(got)-300):])
	}
}
