package openai_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

// A reply means the same wherever its chunks cut the tags of reasoning.
func TestReasoningBetweenTagsIsNoText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ tags, content, reasoning, text string }{
		{"start", "<think>\nTwo and two.\n</think>\n\nFour.", "Two and two.\n", "Four."},
		{"start", "\n <think>Two</think>Four", "Two", "Four"},
		{"start", "<think>\n\n</think>\n\nFour.", "", "Four."},
		{"start", "<think>a < b </thin </think>Four", "a < b </thin ", "Four"},
		{"start", "<think>cut sh", "cut sh", ""},
		{"start", "<think>cut </thi", "cut </thi", ""},
		{"start", "<think", "", "<think"},
		{"start", "<b>Four</b> <think>no</think>", "", "<b>Four</b> <think>no</think>"},
		{"start", " Four.", "", " Four."},
		{"start", "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
		{"open", "Two and two.\n</think>\nFour.", "Two and two.\n", "Four."},
		{"open", "<think>Two</think>Four", "Two", "Four"},
		{"open", "Two and", "Two and", ""},
		{"open", "\n", "", ""},
		{"never", "<think>Two</think>Four", "", "<think>Two</think>Four"},
	} {
		for seed := range uint64(60) {
			random, rest := rand.New(rand.NewPCG(seed, 1)), test.content
			var choices []string
			for rest != "" {
				n := 1 + random.IntN(min(len(rest), 1+int(seed)))
				text, err := json.Marshal(rest[:n])
				if err != nil {
					t.Fatal(err)
				}
				choices = append(choices, deltaChoice(`"content":`+string(text)))
				rest = rest[n:]
			}
			call := seed%2 == 1
			if call {
				choices = append(choices, deltaChoice(`"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]`))
			}
			server := modeltest.ServeStream(t, []byte(stream(append(choices, finishChoice("stop"))...)), modeltest.Ended, modeltest.Encoding{})
			m := connect(t, server, openai.Config{Profile: fmt.Sprintf(`{"thinkTags":%q}`, test.tags)})
			got := modeltest.Collect(t, m.Generate(t.Context(), modeltest.NewRequest("m")))
			if reasoning := strings.Join(got.Reasoning, "|"); got.Err != nil || got.Text != test.text || reasoning != test.reasoning || (len(got.Calls) == 1) != call {
				t.Errorf("%s %q, seed %d: got the text %q, the reasoning %q, %d calls and the error %v, want %q and %q",
					test.tags, test.content, seed, got.Text, reasoning, len(got.Calls), got.Err, test.text, test.reasoning)
			}
		}
	}
}

func TestAServerThatSeparatesReasoningMayWriteTags(t *testing.T) {
	t.Parallel()
	server := modeltest.ServeStream(t, []byte(stream(deltaChoice(`"reasoning_content":"Two"`), deltaChoice(`"content":"<think>"`), deltaChoice(`"content":" is a tag."`), finishChoice("stop"))), modeltest.Ended, modeltest.Encoding{})
	got := modeltest.Collect(t, connect(t, server, openai.Config{Profile: "vllm"}).Generate(t.Context(), modeltest.NewRequest("m")))
	if got.Text != "<think> is a tag." || !slices.Equal(got.Reasoning, []string{"Two"}) {
		t.Errorf("got %+v", got)
	}
}

func TestAzureGetsTheKeyAndTheVersionInItsWay(t *testing.T) {
	t.Parallel()
	for profile, headers := range map[string][2]string{
		"azure": {"", modeltest.Key},
		`{"base":"azure","keyHeader":"Authorization"}`: {"Bearer " + modeltest.Key, ""},
		"compatible": {"Bearer " + modeltest.Key, ""},
	} {
		for _, api := range []string{openai.APIChat, openai.APIResponses} {
			server := modeltest.NewServer(t, "testdata/"+api+"/replies", modeltest.Text, modeltest.Encoding{})
			m, err := openai.New(openai.Config{BaseURL: server.URL + "/openai/deployments/d?api-version=2024-10-21", APIKey: modeltest.Key, API: api, Profile: profile}, server.Client)
			if err != nil {
				t.Fatal(err)
			}
			if reply := modeltest.Collect(t, m.Generate(t.Context(), modeltest.NewRequest("m"))); reply.Err != nil {
				t.Fatal(reply.Err)
			}
			sent := server.Requests()[0]
			if got := [2]string{sent.Header.Get("Authorization"), sent.Header.Get("Api-Key")}; got != headers || sent.Query != "api-version=2024-10-21" || !strings.HasPrefix(sent.Path, "/openai/deployments/d/") {
				t.Errorf("%s, %s: got the headers %q, the path %s and the query %q", profile, api, got, sent.Path, sent.Query)
			}
		}
	}
}

func TestToolsWhoseNamesTheServerRefusesAreCalledByTheirOwn(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"gemini", "compatible"} {
		s := &strictServer{refuses: func(body string) (int, string) {
			if strings.Contains(body, `"3d-render"`) {
				return 400, `{"error":{"message":"Invalid function name. Must start with a letter or an underscore."}}`
			}
			return 0, ""
		}}
		s.answer = stream(deltaChoice(`"tool_calls":[{"index":0,"id":"c","function":{"name":"_3d-render","arguments":"{}"}}]`), finishChoice("tool_calls"))
		reply := modeltest.Collect(t, connectStrict(t, s, openai.Config{Profile: profile}).Generate(t.Context(), modeltest.RequestOfTool("3d-render")))
		if reply.Err != nil || len(reply.Calls) != 1 || reply.Calls[0].Name != "3d-render" || strings.Count(s.bodies[len(s.bodies)-1], `"_3d-render"`) != 2 {
			t.Errorf("%s: got %+v for the requests %q", profile, reply, s.bodies)
		}
		if want := map[string]int{"gemini": 1, "compatible": 2}[profile]; len(s.bodies) != want {
			t.Errorf("%s: got %d requests, want %d", profile, len(s.bodies), want)
		}
	}
}
