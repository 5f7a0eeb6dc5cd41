package agents

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestTheLimitsOfAProviderAndOfItsModelsAreRead(t *testing.T) {
	t.Parallel()
	a := parseOne(t, `
models:
  local:
    provider: openai
    apiKeyEnv: K
    limits: {requestsPerMinute: 500, tokensPerMinute: 2147483647, concurrency: 50}
    modelLimits: {large: {concurrency: 1}, unused: {requestsPerMinute: 1}}
  anthropic:
    modelLimits:
      small/x: {tokensPerMinute: 7}
agents:
  - {name: a, model: local/large, fallbacks: [local/other, anthropic/small/x, anthropic/b]}
`)
	all := model.Governor{Name: "local", Limits: model.Limits{RequestsPerMinute: 500, TokensPerMinute: 1<<31 - 1, Concurrency: 50}}
	for name, want := range map[string][]model.Governor{
		"local/large":       {all, {Name: "local/large", Limits: model.Limits{Concurrency: 1}}},
		"local/other":       {all},
		"anthropic/small/x": {{Name: "anthropic/small/x", Limits: model.Limits{TokensPerMinute: 7}}},
		"anthropic/b":       nil,
	} {
		if got := a.Governors[name]; !slices.Equal(got, want) || a.Models[name] == nil {
			t.Errorf("governors of %s = %+v, want %+v", name, got, want)
		}
	}
}

func TestMistakesInLimitsHaveTheirPlace(t *testing.T) {
	t.Parallel()
	_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(`models:
  a: {provider: openai, limits: {requestsPerMinute: 0}}
  b: {provider: openai, limits: {tokensPerMinute: 2147483648}}
  c: {provider: openai, limits: {concurrency: many}}
  d: {provider: openai, limits: {concurency: 1}}
  e: {provider: openai, limits: {}}
  f: {provider: openai, limits: 5}
  g: {provider: openai, modelLimits: {gpt: {requestsPerMinute: 1.5}}}
  h: {provider: openai, modelLimits: {gpt: }}
  i: {provider: openai, modelLimits: {"g\0": {concurrency: 1}, ` + strings.Repeat("x", 255) + `: {concurrency: 1}}}
  j: {provider: openai, modelLimits: [gpt]}
agents: [{name: a, model: mine/x}]
`)}, testKnown())
	wantMistakes(t, err,
		`a.yaml:2: a: limits: requestsPerMinute is 0; it must be between 1 and 2147483647`,
		`a.yaml:3: b: limits: tokensPerMinute is 2147483648; it must be between 1 and 2147483647`,
		`a.yaml:4: c: limits: concurrency must be an integer`,
		`a.yaml:5: d: limits: there is no field "concurency"; did you mean "concurrency"?`,
		`a.yaml:6: e: limits: give at least one of requestsPerMinute, tokensPerMinute and concurrency`,
		`a.yaml:7: f: limits: must be an object with fields`,
		`a.yaml:8: g: modelLimits: gpt: requestsPerMinute must be an integer`,
		`a.yaml:9: h: modelLimits: gpt: give at least one of`,
		`a.yaml:10: i: modelLimits: provider/name has at most 256 bytes without control characters, not "i/g\x00"`,
		`a.yaml:10: i: modelLimits: provider/name has at most 256 bytes without control characters, not "i/xxx`,
		`a.yaml:11: j: modelLimits must be an object`,
	)
}

func TestTwoFilesDeclareTheSameLimits(t *testing.T) {
	t.Parallel()
	const agents = "agents: [{name: %, model: p/x}]\n"
	declare := func(name, limits string) string {
		return "models: {p: {provider: openai, apiKeyEnv: K, " + limits + "}}\n" + strings.Replace(agents, "%", name, 1)
	}
	for limits, same := range map[string]bool{
		"limits: {concurrency: 1}, modelLimits: {x: {concurrency: 2}}": true,
		"limits: {concurrency: 1}, modelLimits: {x: {concurrency: 3}}": false,
		"limits: {concurrency: 2}, modelLimits: {x: {concurrency: 2}}": false,
		"limits: {concurrency: 1}":                                     false,
	} {
		dir := writeFiles(t, map[string]string{
			"a.yaml": declare("a", "limits: {concurrency: 1}, modelLimits: {x: {concurrency: 2}}"), "b.yaml": declare("b", limits),
		})
		set, _, err := Load(t.Context(), []string{dir}, nil, testKnown())
		if same && (err != nil || len(set.Agents) != 2) {
			t.Errorf("%s: %v, want two agents", limits, err)
		}
		if !same && (err == nil || !strings.Contains(err.Error(), `the provider "p" is declared differently`)) {
			t.Errorf("%s: %v, want the difference reported", limits, err)
		}
	}
}
