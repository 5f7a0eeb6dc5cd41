package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// chunks is the answer of GET /history.
type chunks struct {
	Chunks []struct {
		Sequence int64
		Chunk    json.RawMessage
	}
	HasMore                      bool
	LatestSequence, NextSequence int64
	Rewound                      []struct {
		Sequence, At int64
	}
}

func (c chunks) sequences() string {
	var all []string
	for _, chunk := range c.Chunks {
		all = append(all, placeName(chunk.Sequence))
	}
	return strings.Join(all, ", ")
}

func (h *fixture) history(t *testing.T, query string) (c chunks) {
	t.Helper()
	response := h.request(t, http.MethodGet, "/history?"+query, "")
	got := text(t, response)
	if response.StatusCode != http.StatusOK || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s: got %d %q: %s", query, response.StatusCode, response.Header.Get("Cache-Control"), got)
	}
	if err := json.Unmarshal([]byte(got), &c); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	return c
}

func TestHistoryRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.begin(t, "s1", "hi", nil)
	for query, want := range map[string]string{
		"":                                           "ID_INVALID",
		"sessionId=s1&limit=0":                       "PARAMETER_INVALID",
		"sessionId=s1&limit=1001":                    "PARAMETER_INVALID",
		"sessionId=s1&limit=x":                       "PARAMETER_INVALID",
		"sessionId=s1&fromSequence=-1":               "PARAMETER_INVALID",
		"sessionId=s1&fromStep=-1":                   "PARAMETER_INVALID",
		"sessionId=s1&fromStep=2147483648":           "PARAMETER_INVALID",
		"sessionId=s1&runId=" + tooLong():            "ID_INVALID",
		"sessionId=s1&runId=" + "%00":                "ID_INVALID",
		"sessionId=" + tooLong():                     "ID_INVALID",
		"sessionId=s1&fromSequence=" + "9e15":        "PARAMETER_INVALID",
		"sessionId=s1&fromSequence=9007199254740992": "PARAMETER_INVALID",
	} {
		wantFault(t, h.request(t, http.MethodGet, "/history?"+query, ""), 400, want)
	}
	wantFault(t, h.request(t, http.MethodGet, "/history?sessionId=nobody", ""), 404, "SESSION_NOT_FOUND")
	wantFault(t, h.request(t, http.MethodGet, "/snapshot?sessionId=nobody", ""), 404, "SESSION_NOT_FOUND")
	wantFault(t, h.request(t, http.MethodGet, "/snapshot", ""), 400, "ID_INVALID")
}

func tooLong() string { return strings.Repeat("x", 257) }

func TestHistoryGivesStoredChunksByPages(t *testing.T) {
	t.Parallel()
	const odd = "a/b. *ü 会话"
	for _, id := range []string{"s1", odd} {
		h := open(t, nil)
		run := h.begin(t, id, "hi", nil)
		run.Show(1, Started(), StepStarted(), Text("One "), Call("c1", `{"a":[1,2],"b":12345678901234567890}`))
		run.Child("below").Show(1, Text("from below"))
		run.Show(1, Result("c1", `{"b":null}`), StepCommitted())
		run.Show(2, StepStarted())
		last := run.Show(2, Text("Two"))
		q := "sessionId=" + url.QueryEscape(id)
		var got []string
		var texts []string
		for from, more := int64(0), true; more; {
			page := h.history(t, fmt.Sprintf("%s&fromSequence=%d&limit=4", q, from))
			got = append(got, page.sequences())
			for _, c := range page.Chunks {
				texts = append(texts, fmt.Sprintf(`{"sequence":%d,"chunk":%s`, c.Sequence, c.Chunk))
			}
			if from, more = page.NextSequence, page.HasMore; !more && (page.LatestSequence != last || from != last) {
				t.Errorf("the last page ends at %s, the latest is %s", placeName(from), placeName(page.LatestSequence))
			}
		}
		want := []string{
			"1.stored.1, 1.stored.2, 1.stored.3, 1.stored.4", "1.stored.5, 1.stored.6, 1.stored.7, 1.stored.8", "1.committed, 2.1.1, 2.1.2",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		told := h.resume(t, "/sse?"+q).until("{}")
		told = slices.DeleteFunc(told, func(e event) bool { return strings.Contains(e.data, `"sessionId"`) })
		for i, text := range texts {
			if !strings.HasPrefix(told[i].data, text) {
				t.Errorf("history has %s, the stream %s", text, told[i].data)
			}
		}
		if !strings.Contains(texts[6], `"arguments":{"a":[1,2],"b":12345678901234567890}`) {
			t.Errorf("the arguments are not embedded: %s", texts[6])
		}
	}
}

func TestHistoryCanBeOfOneRunOrOfLaterSteps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first := h.begin(t, "s1", "one", nil)
	first.Show(1, Started(), StepStarted(), StepCommitted(), Completed())
	first.Complete(AssistantMessage(1, "One"))
	second := h.begin(t, "s1", "two", first)
	second.Show(1, Started())
	second.Show(2, StepStarted(), Text("Two"), StepCommitted())
	last := second.Show(3, StepStarted())
	const one, started, two, three = "1.stored.1, 1.stored.2, 1.stored.3, 1.committed, 1.last", "2.stored.1", "2.stored.2, 2.stored.3, 2.committed", "3.1.1"
	for query, want := range map[string]string{
		"sessionId=s1":                                 one + ", " + started + ", " + two + ", " + three,
		"sessionId=s1&runId=run_1":                     one,
		"sessionId=s1&runId=run_2":                     started + ", " + two + ", " + three,
		"sessionId=s1&fromStep=2":                      two + ", " + three,
		"sessionId=s1&fromStep=3&runId=run_2":          three,
		"sessionId=s1&runId=nobody":                    "",
		fmt.Sprint("sessionId=s1&fromSequence=", last): "",
		fmt.Sprint("sessionId=s1&limit=1&runId=run_2&fromSequence=", position.Committed(2)): three,
		"sessionId=s1&limit=1000&fromStep=0&fromSequence=":                                  one + ", " + started + ", " + two + ", " + three,
	} {
		if got := h.history(t, query).sequences(); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

func TestHistoryReportsVoidEntriesOfEarlierPages(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), StepStarted(), StepCommitted())
	void := run.Show(2, StepStarted(), Text("void"))
	run.Rewind(0)
	run.Show(2, StepStarted())
	page := h.history(t, fmt.Sprint("sessionId=s1&fromSequence=", void))
	if len(page.Rewound) != 1 || page.Rewound[0].At != position.Committed(1) || page.sequences() != "2.2.1" {
		t.Errorf("got %+v", page)
	}
	if whole := h.history(t, "sessionId=s1"); whole.Rewound != nil || whole.sequences() != "1.stored.1, 1.stored.2, 1.committed, 2.2.1" {
		t.Errorf("got %+v", whole)
	}
}

func TestWhatAnEventOfANewerWriterSaysIsPassedOver(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	last := run.Show(1, Started(), &eventv1.Chunk{}, Text("One"))
	if page := h.history(t, "sessionId=s1"); page.sequences() != "1.33.1, 1.33.3" || page.NextSequence != last {
		t.Errorf("got %+v", page)
	}
}
