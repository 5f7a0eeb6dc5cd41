package agents

import "testing"

func TestAProviderMayHaveAProfile(t *testing.T) {
	t.Parallel()
	a := parseOne(t, `
models:
  local:
    provider: openai
    baseURL: http://127.0.0.1:9/v1
    profile: {base: mistral, outputLimit: max_completion_tokens}
    modelProfiles: {tiny: llama.cpp}
agents: [{name: a, description: b, systemPrompt: c, model: local/m}]
`)
	got := a.Models["local/m"].(silentModel).settings
	if want := `{"base":"mistral","outputLimit":"max_completion_tokens"}`; got.Profile != want {
		t.Errorf("profile = %s, want %s", got.Profile, want)
	}
	if want := `{"tiny":"llama.cpp"}`; got.ModelProfiles != want {
		t.Errorf("profiles of models = %s, want %s", got.ModelProfiles, want)
	}
}

func TestMistakesInProfilesAreReported(t *testing.T) {
	t.Parallel()
	_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(`
models:
  one: {provider: openai, apiKeyEnv: K, profile: mistrl}
  two: {provider: openai, apiKeyEnv: K, profile: {system: last}}
  three: {provider: openai, apiKeyEnv: K, modelProfiles: {m: {callIDMax: 1}}}
  four: {provider: anthropic, apiKeyEnv: K, profile: mistral}
agents: [{name: a, description: b, systemPrompt: c, model: one/m}]
`)}, testKnown())
	wantMistakes(t, err,
		`one: profile: there is no profile "mistrl"; known: compatible, openai`,
		`two: profile: system is "last"; it must be one of anywhere, first, developer, user`,
		`three: modelProfiles: m: callIDMin is 1 and callIDMax is 1`,
		`four: profile and modelProfiles are for the openai provider only`,
	)
}
