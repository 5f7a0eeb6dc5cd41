package profile_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// build stands for a wire: a request that shows every field of the profile, and has the members of an agent with all options.
func build(p profile.Profile) (json.RawMessage, error) {
	members := map[string]any{
		"model": "m", "messages": []string{}, p.OutputLimit: 7, "temperature": 0.5, "reasoning_effort": "low", "parallel_tool_calls": true,
	}
	for _, name := range p.Omit {
		delete(members, name)
	}
	p.Omit = nil
	members["profile"] = p
	return json.Marshal(members)
}

// refusals are the words of real servers, with the change that makes the request acceptable.
var refusals = map[string]func(p profile.Profile) bool{
	"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.": func(p profile.Profile) bool {
		return p.OutputLimit == profile.LimitCompletion
	},
	"Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.": func(p profile.Profile) bool {
		return slices.Contains(p.Omit, "temperature")
	},
	`{"detail":[{"type":"extra_forbidden","loc":["body","parallel_tool_calls"],"msg":"Extra inputs are not permitted"}]}`: func(p profile.Profile) bool {
		return slices.Contains(p.Omit, "parallel_tool_calls")
	},
	"Model does not support parameter reasoning_effort": func(p profile.Profile) bool { return slices.Contains(p.Omit, "reasoning_effort") },
	`{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted"}]}`: func(p profile.Profile) bool {
		return !p.StreamOptions
	},
	"The `reasoning_content` in the thinking mode must be passed back to the API.": func(p profile.Profile) bool {
		return p.ReasoningFiller != "" && p.ReasoningField == "reasoning_content"
	},
	"thinking is enabled but reasoning_content is missing in assistant tool call message at index 2": func(p profile.Profile) bool { return p.ReasoningFiller != "" },
	"'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]": func(p profile.Profile) bool {
		return p.Reasoning == profile.ReasoningNever
	},
	"messages[4].reasoning: reasoning is not supported with this model": func(p profile.Profile) bool { return p.Reasoning == profile.ReasoningNever },
	"Extra inputs are not permitted, field: 'messages[8].reasoning', value: 'Now I need to read'": func(p profile.Profile) bool {
		return p.Reasoning == profile.ReasoningNever
	},
	"messages.1.reasoning_content: Extra inputs are not permitted":                    func(p profile.Profile) bool { return p.Reasoning == profile.ReasoningNever },
	"Function call is missing a thought_signature in functionCall parts.":             func(p profile.Profile) bool { return p.CallSignature != "" },
	"Unrecognized request argument supplied: messages[1].tool_calls[0].extra_content": func(p profile.Profile) bool { return !p.CallExtra },
	"System role not supported":                                      func(p profile.Profile) bool { return p.System == profile.SystemUser },
	"Only user, assistant and tool roles are supported, got system.": func(p profile.Profile) bool { return p.System == profile.SystemUser },
	"Error: Jinja Exception: After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.": func(p profile.Profile) bool {
		return p.AlternateRoles && p.AnswerAfterTool
	},
	"Unexpected role 'user' after role 'tool'": func(p profile.Profile) bool { return p.AnswerAfterTool },
	"Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9.": func(p profile.Profile) bool {
		return p.CallIDs == profile.IDAlphanumeric && p.CallIDMin == 9 && p.CallIDMax == 9
	},
	"messages.3.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'": func(p profile.Profile) bool { return p.CallIDs == profile.IDWord },
	"This model only supports single tool-calls at once!":                              func(p profile.Profile) bool { return p.SingleCalls },
	"This response_format type is unavailable now":                                     func(p profile.Profile) bool { return p.Output == profile.OutputObject },
	"tool_choice 'required' is incompatible with thinking enabled":                     func(p profile.Profile) bool { return p.RequiredChoice == "" },
	"The content field in the Message object at messages.1 is empty. Add a ContentBlock object to the content field and try again.": func(p profile.Profile) bool {
		return p.CallContent != profile.ContentEmpty
	},
	"tools.0.function.strict: Extra inputs are not permitted": func(p profile.Profile) bool { return !p.Strict },
}

func TestKnownRefusalsTeachAnAcceptableProfile(t *testing.T) {
	t.Parallel()
	for refusal, accepts := range refusals {
		p := profile.Compatible()
		if accepts(p) {
			t.Errorf("%s: the profile is accepted before", refusal)
		}
		// Each lesson is a request more.
		const patience = 3
		for range patience {
			body, err := build(p)
			if err != nil {
				t.Fatal(err)
			}
			learned, ok := profile.Learn(p, refusal, body, build)
			if !ok {
				break
			}
			if p = learned; accepts(p) {
				break
			}
		}
		if !accepts(p) {
			t.Errorf("%s: got %+v", refusal, p)
		}
	}
}

// A server that refuses everything in the same words is asked a limited number of times, never with the same body, and always with the
// limit of the reply, which bounds the costs.
func TestLessonsEnd(t *testing.T) {
	t.Parallel()
	all := strings.Join(slices.Sorted(func(yield func(string) bool) {
		for r := range refusals {
			if !yield(r) {
				return
			}
		}
	}), "\n")
	const most = 32
	for _, refusal := range append([]string{all, "max_tokens and max_completion_tokens are not supported"}, slices.Sorted(func(yield func(string) bool) {
		for r := range refusals {
			if !yield(r) {
				return
			}
		}
	})...) {
		p := profile.Compatible()
		seen := map[string]bool{}
		for n := 0; ; n++ {
			body, err := build(p)
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(body)] || n > most {
				t.Fatalf("%.80s: request %d: %s", refusal, n, body)
			}
			seen[string(body)] = true
			if !strings.Contains(string(body), `"`+p.OutputLimit+`":7`) {
				t.Fatalf("%.80s: the limit is gone: %s", refusal, body)
			}
			learned, ok := profile.Learn(p, refusal, body, build)
			if !ok {
				break
			}
			p = learned
		}
	}
}

func TestOtherRefusalsTeachNothing(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"", "no", "The model is overloaded.", "Incorrect API key provided.",
		"This model's maximum context length is 1000 tokens. However, you requested 1300 tokens (1000 in the messages, 300 in max_tokens).",
		"'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 1000 tokens.",
		"max_tokens must be at most 8192", "messages: unexpected value", "model not supported", "unknown model m",
	} {
		body, _ := build(profile.Compatible())
		if p, ok := profile.Learn(profile.Compatible(), refusal, body, build); ok {
			t.Errorf("%q: got %+v", refusal, p)
		}
	}
}
