package profile_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

func find(t *testing.T, base, model, override string) profile.Profile {
	t.Helper()
	address, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	o, err := profile.ParseOverride(json.RawMessage(override))
	if err != nil {
		t.Fatal(err)
	}
	return profile.Find(address, model, o)
}

// examples are a base URL and a model of each row.
var examples = map[string]struct{ base, model string }{
	"openai":             {"https://api.openai.com/v1", "gpt-5"},
	"azure":              {"https://us.openai.azure.com/openai/v1", "deployment"},
	"openrouter":         {"https://openrouter.ai/api/v1", "x/y"},
	"deepseek":           {"https://api.deepseek.com/v1", "deepseek-v4-flash"},
	"kimi":               {"https://api.moonshot.ai/v1", "kimi-k2.5"},
	"mistral":            {"https://api.mistral.ai/v1", "magistral-medium-latest"},
	"groq":               {"https://api.groq.com/openai/v1", "openai/gpt-oss-120b"},
	"together":           {"https://api.together.xyz/v1", "zai-org/GLM-5"},
	"fireworks":          {"https://api.fireworks.ai/inference/v1", "accounts/fireworks/models/glm-5"},
	"xai":                {"https://api.x.ai/v1", "grok-4.3"},
	"gemini":             {"https://generativelanguage.googleapis.com/v1beta/openai/", "gemini-2.5-flash"},
	"anthropic":          {"https://api.anthropic.com/v1", "claude-opus-5-5"},
	"bedrock":            {"https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1", "openai.gpt-oss-120b-1:0"},
	"vllm":               {"", ""},
	"llama.cpp":          {"", ""},
	"ollama":             {"http://127.0.0.1:11434/v1", "llama3.2"},
	"lmstudio":           {"http://127.0.0.1:1234/v1", "some"},
	"openai-models":      {"https://proxy.example/v1", "openai/gpt-5-mini"},
	"claude-models":      {"https://proxy.example/v1", "anthropic/claude-sonnet-5"},
	"gemini-models":      {"https://proxy.example/v1", "google/gemini-2.5-pro"},
	"gemini-3-models":    {"https://proxy.example/v1", "google/gemini-3-pro"},
	"mistral-models":     {"http://127.0.0.1:8000/v1", "mistralai/Devstral-Small-2"},
	"deepseek-models":    {"https://proxy.example/v1", "deepseek/deepseek-v4-pro"},
	"deepseek-r1-models": {"http://127.0.0.1:8000/v1", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"},
	"kimi-models":        {"https://proxy.example/v1", "moonshotai/Kimi-K2.5"},
	"qwen-models":        {"http://127.0.0.1:8000/v1", "Qwen/Qwen3-32B"},
	"gemma-models":       {"http://127.0.0.1:8080/v1", "gemma-3-27b-it"},
	"llama-3-models":     {"http://127.0.0.1:8000/v1", "meta-llama/Llama-3.1-8B-Instruct"},
}

// Each row names a source, changes only fields that exist, and is found by its example or by its name alone.
func TestEachRowIsFoundByItsAddressOrModel(t *testing.T) {
	t.Parallel()
	var names []string
	for _, r := range profile.Rows() {
		names = append(names, r.Name)
		example, ok := examples[r.Name]
		if !ok {
			t.Errorf("%s: there is no example", r.Name)
			continue
		}
		if len(r.Sources) == 0 {
			t.Errorf("%s: there is no source", r.Name)
		}
		base, model := example.base, example.model
		override := ""
		if base == "" { // known by its name alone
			base, model, override = "http://127.0.0.1:8000/v1", "some", `"`+r.Name+`"`
		}
		got, err := json.Marshal(find(t, base, model, override))
		if err != nil {
			t.Fatal(err)
		}
		var fields, want map[string]any
		if json.Unmarshal(got, &fields) != nil || json.Unmarshal([]byte(r.Fields), &want) != nil {
			t.Fatalf("%s: %s or %s is no object", r.Name, got, r.Fields)
		}
		for name, value := range want {
			if has, known := fields[name]; !known || !reflect.DeepEqual(has, value) && !isFamilyField(r, example.model, name) {
				t.Errorf("%s: %s is %v, want %v", r.Name, name, fields[name], value)
			}
		}
	}
	if unknown := slices.DeleteFunc(slices.Collect(maps.Keys(examples)), func(n string) bool { return slices.Contains(names, n) }); len(unknown) > 0 {
		t.Errorf("there are no rows for the examples %v", unknown)
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(names) {
		t.Errorf("the names %v are not unique", names)
	}
}

// isFamilyField reports whether the family of the model decides about a field of a server's row.
func isFamilyField(server profile.Row, model, field string) bool {
	for _, r := range profile.Rows() {
		var fields map[string]any
		if r.Address == nil && r.Name != server.Name && r.Model.MatchString(strings.ToLower(model)) && json.Unmarshal([]byte(r.Fields), &fields) == nil && fields[field] != nil {
			return true
		}
	}
	return false
}

func TestAServerWithoutARowGetsWhatMostAccept(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"http://127.0.0.1:9999/v1", "https://notopenai.com/v1", "https://api.openai.com.evil.example/v1", "https://example.com/api.x.ai/v1"} {
		if got := find(t, base, "some-model", ""); !reflect.DeepEqual(got, profile.Compatible()) {
			t.Errorf("%s: got %+v", base, got)
		}
	}
}

func TestAnOverrideWins(t *testing.T) {
	t.Parallel()
	const base = "https://api.openai.com/v1"
	if p := find(t, base, "gpt-5", `"mistral"`); p.CallIDMax != 9 || p.OutputLimit != profile.LimitTokens {
		t.Errorf("by name: got %+v", p)
	}
	if p := find(t, base, "gpt-5", `"compatible"`); !reflect.DeepEqual(p, profile.Compatible()) {
		t.Errorf("compatible: got %+v", p)
	}
	if p := find(t, base, "gpt-5", `{"outputLimit":"max_tokens"}`); p.OutputLimit != profile.LimitTokens || p.System != profile.SystemAnywhere {
		t.Errorf("by field: got %+v", p)
	}
	if p := find(t, base, "gpt-5", `{"base":"groq","media":[],"omit":["user"]}`); p.Reasoning != profile.ReasoningNever || len(p.Media) != 0 || !slices.Equal(p.Omit, []string{"user"}) {
		t.Errorf("by both: got %+v", p)
	}
	if p := find(t, "https://api.mistral.ai/v1", "m", `{"callIDMax":40}`); p.CallIDMax != 40 {
		t.Errorf("a limit: got %+v", p)
	}
	for _, nothing := range []string{"", "null", "{}"} {
		if got := find(t, "http://127.0.0.1/v1", "m", nothing); !reflect.DeepEqual(got, profile.Compatible()) {
			t.Errorf("%q: got %+v", nothing, got)
		}
	}
}

func TestInvalidOverridesAreRefused(t *testing.T) {
	t.Parallel()
	for override, want := range map[string]string{
		`"mistrl"`:               "there is no profile",
		`{"base":"none"}`:        "there is no profile",
		`{"base":1}`:             "base must be",
		`[]`:                     "a name or an object",
		`1`:                      "a name or an object",
		`{"outputlimitt":"x"}`:   "unknown field",
		`{"outputLimit":"x"}`:    "must be one of",
		`{"outputLimit":5}`:      "cannot unmarshal",
		`{"system":"last"}`:      "must be one of",
		`{"reasoning":"some"}`:   "must be one of",
		`{"media":["hologram"]}`: "media has",
		`{"callIDMax":1}`:        "callIDMax",
		`{"toolNames":"digit"}`:  "must be one of",
		`{"thinkTags":"end"}`:    "must be one of",
		`{"keyHeader":"a b"}`:    "name of a header",
		`{"keyHeader":""}`:       "name of a header",
		`{"callIDMin":99}`:       "callIDMin",
	} {
		if _, err := profile.ParseOverride(json.RawMessage(override)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", override, err, want)
		}
	}
}
