package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// chunks is the answer of GET /history.
type chunks struct {
	Chunks []struct {
		Sequence  int64
		Chunk     json.RawMessage
		SessionID string
	}
	HasMore                      bool
	LatestSequence, NextSequence int64
	Rewound                      []struct {
		Sequence, At int64
		SessionID    string
	}
}

func (c chunks) sequences() string {
	var all []string
	for _, chunk := range c.Chunks {
		all = append(all, strings.TrimSpace(fmt.Sprint(chunk.Sequence, " ", chunk.SessionID)))
	}
	return strings.Join(all, ", ")
}

func (h *house) history(t *testing.T, query string) (c chunks) {
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

func TestHistoryGivesStoredChunksByPages(t *testing.T) {
	t.Parallel()
	const odd = "a/b. *ü 会话"
	for _, id := range []string{"s1", odd} {
		h := open(t, nil)
		run := h.begin(t, id, "hi", nil)
		run.Say(1, Started(), StepStarted(), Text("One "), Call("c1", `{"a":[1,2],"b":12345678901234567890}`))
		child := run.Child("below")
		child.Say(1, Text("from below"))
		run.Say(1, Result("c1", `{"b":null}`), StepCommitted())
		q := "sessionId=" + url.QueryEscape(id)
		var got []string
		var texts []string
		for from, more := int64(0), true; more; {
			page := h.history(t, fmt.Sprintf("%s&fromSequence=%d&limit=3", q, from))
			got = append(got, page.sequences())
			for _, c := range page.Chunks {
				texts = append(texts, string(c.Chunk))
			}
			if from = page.NextSequence; page.LatestSequence != 7 {
				t.Errorf("the latest sequence is %d, want 7", page.LatestSequence)
			}
			more = page.HasMore
		}
		if want := []string{"1, 2, 3", "4, 5 below, 6", "7"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		told := h.resume(t, "/sse?"+q).until("{}")
		for i, text := range texts {
			if want := fmt.Sprintf(`{"sequence":%d,"chunk":%s`, i+1, text); !strings.HasPrefix(told[i].data, want) {
				t.Errorf("history has %s, the stream %s", want, told[i].data)
			}
		}
		if !strings.Contains(texts[3], `"arguments":{"a":[1,2],"b":12345678901234567890}`) {
			t.Errorf("the arguments are not embedded: %s", texts[3])
		}
	}
}

func TestHistoryCanBeOfOneRunOrOfLaterSteps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first := h.begin(t, "s1", "one", nil)
	first.Say(1, Started(), StepStarted(), StepCommitted())
	first.Complete(Says(1, "One"))
	second := h.begin(t, "s1", "two", first)
	second.Say(1, Started())
	second.Say(2, StepStarted(), Text("Two"))
	second.Say(3, StepStarted())
	for query, want := range map[string]string{
		"sessionId=s1":                                     "1, 2, 3, 5, 6, 7, 8",
		"sessionId=s1&runId=run-1":                         "1, 2, 3",
		"sessionId=s1&runId=run-2":                         "5, 6, 7, 8",
		"sessionId=s1&fromStep=2":                          "6, 7, 8",
		"sessionId=s1&fromStep=3&runId=run-2":              "8",
		"sessionId=s1&runId=nobody":                        "",
		"sessionId=s1&fromSequence=8":                      "",
		"sessionId=s1&fromSequence=5&limit=1&runId=run-2":  "6",
		"sessionId=s1&limit=1000&fromStep=0&fromSequence=": "1, 2, 3, 5, 6, 7, 8",
	} {
		if got := h.history(t, query).sequences(); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

func TestHistoryTellsWhatIsVoidOfEarlierPages(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	at := run.Say(1, Started())
	run.Say(1, StepStarted(), Text("void"))
	run.Rewind(at)
	run.Say(1, StepStarted())
	page := h.history(t, "sessionId=s1&fromSequence=3")
	if len(page.Rewound) != 1 || page.Rewound[0].Sequence != 4 || page.Rewound[0].At != 1 || page.Rewound[0].SessionID != "" || page.sequences() != "5" {
		t.Errorf("got %+v", page)
	}
	if whole := h.history(t, "sessionId=s1"); whole.Rewound != nil && whole.sequences() != "1, 5" {
		t.Errorf("got %+v", whole)
	}
}

func TestHistoryRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.begin(t, "s1", "hi", nil)
	for query, want := range map[string]string{
		"":                                    "ID_INVALID",
		"sessionId=s1&limit=0":                "PARAMETER_INVALID",
		"sessionId=s1&limit=1001":             "PARAMETER_INVALID",
		"sessionId=s1&limit=x":                "PARAMETER_INVALID",
		"sessionId=s1&fromSequence=-1":        "PARAMETER_INVALID",
		"sessionId=s1&fromStep=-1":            "PARAMETER_INVALID",
		"sessionId=s1&fromStep=2147483648":    "PARAMETER_INVALID",
		"sessionId=s1&runId=" + tooLong():     "ID_INVALID",
		"sessionId=s1&runId=" + "%00":         "ID_INVALID",
		"sessionId=" + tooLong():              "ID_INVALID",
		"sessionId=s1&fromSequence=" + "9e15": "PARAMETER_INVALID",
	} {
		refused(t, h.request(t, http.MethodGet, "/history?"+query, ""), 400, want)
	}
	refused(t, h.request(t, http.MethodGet, "/history?sessionId=nobody", ""), 404, "SESSION_NOT_FOUND")
	refused(t, h.request(t, http.MethodGet, "/snapshot?sessionId=nobody", ""), 404, "SESSION_NOT_FOUND")
	refused(t, h.request(t, http.MethodGet, "/snapshot", ""), 400, "ID_INVALID")
	if page := h.history(t, "sessionId=s1&fromSequence=9007199254740993"); page.LatestSequence != 0 {
		t.Errorf("got %+v", page)
	}
}

func tooLong() string { return strings.Repeat("x", 257) }

func TestWhatAnEventOfANewerWriterSaysIsPassedOver(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Say(1, Started(), &eventv1.Chunk{}, Text("One"))
	if page := h.history(t, "sessionId=s1"); page.sequences() != "1, 3" || page.NextSequence != 3 {
		t.Errorf("got %+v", page)
	}
}
