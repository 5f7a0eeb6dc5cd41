package profile

import (
	"regexp"
	"sync"
)

// Rows returns the table: servers first, then families of models. Later rows win.
func Rows() []Row { return rows() }

var rows = sync.OnceValue(func() []Row {
	at := func(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }
	return []Row{
		{
			// Reference of all others: files, system messages anywhere, empty texts.
			Name: "openai", Address: at(`^api\.openai\.com(:|/|$)`),
			Fields: `{"outputLimit":"max_completion_tokens","system":"anywhere","alternateRoles":false,"emptyText":true,
				"callContent":"omitted","media":["image","file"],"reasoning":"never"}`,
			Sources: []string{"https://platform.openai.com/docs/api-reference/chat/create"},
		},
		{
			// The models of OpenAI. A first chunk without choices has the results of the content filter. The base URL of a
			// deployment has the api-version in its query; keys are no bearer tokens there.
			Name: "azure", Address: at(`^[^/]*\.(openai\.azure|services\.ai\.azure|cognitiveservices\.azure)\.(com|us|cn)(:|/|$)`),
			Fields: `{"outputLimit":"max_completion_tokens","system":"anywhere","alternateRoles":false,"emptyText":true,
				"callContent":"omitted","reasoning":"never","keyHeader":"api-key"}`,
			Sources: []string{
				"https://learn.microsoft.com/azure/ai-services/openai/reference",
				"https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle",
				"https://github.com/microsoft/autogen/issues/6465",
			},
		},
		{
			// Passes requests on to other providers, whose families apply. Signatures of the model are in reasoning_details.
			Name: "openrouter", Address: at(`^([^/]*\.)?openrouter\.ai(:|/|$)`),
			Fields: `{"media":["image","file"],"reasoning":"calls"}`,
			Sources: []string{
				"https://openrouter.ai/docs/use-cases/reasoning-tokens",
				"https://openrouter.ai/docs/features/multimodal/pdfs",
			},
		},
		{
			// Thinking must come back with all messages with calls, also of earlier turns. Texts only. No JSON schema.
			Name: "deepseek", Address: at(`^([^/]*\.)?deepseek\.com(:|/|$)`),
			Fields: `{"media":[],"reasoning":"calls","reasoningField":"reasoning_content","reasoningFiller":".","output":"json_object"}`,
			Sources: []string{
				"https://api-docs.deepseek.com/guides/thinking_mode",
				"https://github.com/langbot-app/LangBot/issues/2223",
				"https://api-docs.deepseek.com/guides/json_mode",
			},
		},
		{
			// The same rule for thinking; a text that is not empty passes where none was recorded.
			Name: "kimi", Address: at(`^([^/]*\.)?(moonshot\.(ai|cn)|kimi\.com)(:|/|$)`),
			Fields: `{"reasoning":"calls","reasoningField":"reasoning_content","reasoningFiller":"."}`,
			Sources: []string{
				"https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model",
				"https://github.com/anomalyco/opencode/issues/10996",
			},
		},
		{
			// Unknown members are refused: max_completion_tokens, stream_options (usage comes anyway), reasoning. Ids have exactly
			// nine letters and digits. A message of the user may not follow a tool's result. "any" demands a call.
			Name: "mistral", Address: at(`^([^/]*\.)?mistral\.ai(:|/|$)`),
			Fields: `{"streamOptions":false,"reasoning":"never","callExtra":false,"callIDs":"alphanumeric","callIDMin":9,"callIDMax":9,
				"answerAfterTool":true,"requiredChoice":"any"}`,
			Sources: []string{
				"https://github.com/HKUDS/nanobot/pull/2494",
				"https://github.com/dnakov/anon-kode/issues/53",
				"https://github.com/karthink/gptel/issues/1203",
				"https://github.com/avante-corp/avante.nvim/pull/2695",
				"https://github.com/kyaukyuai/gpt-all-star/issues/670",
			},
		},
		{
			// Unknown members of messages are refused, reasoning_content among them.
			Name: "groq", Address: at(`^([^/]*\.)?groq\.com(:|/|$)`),
			Fields: `{"outputLimit":"max_completion_tokens","reasoning":"never","callExtra":false}`,
			Sources: []string{
				"https://console.groq.com/docs/openai",
				"https://github.com/tashfeenahmed/freellmapi/issues/1070",
				"https://github.com/vercel/ai/pull/8057",
			},
		},
		{
			Name: "together", Address: at(`^([^/]*\.)?together\.(xyz|ai)(:|/|$)`),
			Fields: `{"callExtra":false}`,
			Sources: []string{
				"https://docs.together.ai/docs/openai-api-compatibility", "https://docs.together.ai/reference/chat-completions-1",
			},
		},
		{
			// Unknown members are refused, reasoning among them: it is named reasoning_content.
			Name: "fireworks", Address: at(`^([^/]*\.)?fireworks\.ai(:|/|$)`),
			Fields:  `{"reasoningField":"reasoning_content","callExtra":false}`,
			Sources: []string{"https://docs.fireworks.ai/guides/reasoning", "https://github.com/web-infra-dev/midscene/issues/1322"},
		},
		{
			Name: "xai", Address: at(`^([^/]*\.)?x\.ai(:|/|$)`),
			Fields: `{"outputLimit":"max_completion_tokens","system":"anywhere","alternateRoles":false,"callExtra":false}`,
			Sources: []string{
				"https://docs.x.ai/docs/api-reference#chat-completions",
				"https://docs.x.ai/developers/advanced-api-usage/troubleshooting-reasoning",
			},
		},
		{
			// Reasoning is not read. Signatures are in the extra_content of calls.
			Name:    "gemini",
			Address: at(`^generativelanguage\.googleapis\.com(:\d+)?/.*openai|^[^/]*aiplatform\.googleapis\.com(:\d+)?/.*openapi`),
			Fields:  `{"reasoning":"never","toolNames":"letter"}`,
			Sources: []string{
				"https://ai.google.dev/gemini-api/docs/openai",
				"https://cloud.google.com/vertex-ai/generative-ai/docs/reference/nodejs/latest/vertexai/functiondeclaration",
				"https://docs.cloud.google.com/vertex-ai/generative-ai/docs/thought-signatures",
				"https://github.com/can1357/oh-my-pi/issues/10172",
			},
		},
		{
			// System messages are joined at the beginning, whatever their place. strict and response_format are ignored.
			Name: "anthropic", Address: at(`^api\.anthropic\.com(:|/|$)`),
			Fields:  `{"reasoning":"never","callExtra":false,"strict":false,"output":"json_object"}`,
			Sources: []string{"https://platform.claude.com/docs/en/api/openai-sdk"},
		},
		{
			// gpt-oss and others. Unknown members are refused by name.
			Name: "bedrock", Address: at(`^bedrock-(runtime|mantle)[^/]*\.(amazonaws\.com|api\.aws)(:|/|$)`),
			Fields: `{"outputLimit":"max_completion_tokens","callContent":"omitted","reasoning":"never","callExtra":false}`,
			Sources: []string{
				"https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html",
				"https://github.com/brainlid/langchain/pull/356",
				"https://github.com/Portkey-AI/gateway/issues/995",
			},
		},
		{
			// Selected by name: its port is not its own. The template of the model decides about roles. Without a reasoning parser the
			// reasoning stays in the text.
			Name: "vllm", Address: at(`^$`),
			Fields: `{"thinkTags":"start"}`,
			Sources: []string{
				"https://docs.vllm.ai/en/latest/features/reasoning_outputs.html",
				"https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
				"https://github.com/vllm-project/vllm/issues/41114",
			},
		},
		{
			// Selected by name: its port is not its own. A template that refuses a conversation gives status 500.
			Name: "llama.cpp", Address: at(`^$`),
			Fields: `{"callExtra":false,"thinkTags":"start"}`,
			Sources: []string{
				"https://github.com/ggml-org/llama.cpp/issues/23320",
				"https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
				"https://github.com/ggml-org/llama.cpp/issues/19851",
			},
		},
		{
			// A subset of the API, without strict tools and documents. Reasoning arrives and comes back as "reasoning".
			Name: "ollama", Address: at(`^([^/]*\.)?ollama\.com(:|/|$)|^[^/]*:11434(/|$)`),
			Fields:  `{"reasoningField":"reasoning","callExtra":false,"strict":false,"thinkTags":"start"}`,
			Sources: []string{"https://docs.ollama.com/api/openai-compatibility", "https://github.com/ollama/ollama/issues/8528"},
		},
		{
			// Content must be a string, also beside calls. Reasoning may stay in the text.
			Name: "lmstudio", Address: at(`^[^/]*:1234(/|$)`),
			Fields: `{"callExtra":false,"thinkTags":"start"}`,
			Sources: []string{
				"https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1569",
				"https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/261",
				"https://github.com/nugget/thane-ai-agent/pull/1229",
			},
		},

		// Families of models, behind any server.
		{
			// Newer models of OpenAI refuse max_tokens.
			Name: "openai-models", Model: at(`(^|/)(gpt-[4-9]|chatgpt-|o\d+(-|$))`),
			Fields:  `{"outputLimit":"max_completion_tokens","media":["image","file"]}`,
			Sources: []string{"https://platform.openai.com/docs/api-reference/chat/create#chat-create-max_tokens"},
		},
		{
			// Ids with other characters and empty texts are refused, also behind routers.
			Name: "claude-models", Model: at(`(^|/|\.)claude`),
			Fields: `{"callIDs":"word","callContent":"omitted"}`,
			Sources: []string{
				"https://platform.claude.com/docs/en/api/messages",
				"https://github.com/Portkey-AI/gateway/issues/995",
			},
		},
		{
			// Names of tools begin with a letter or an underscore.
			Name: "gemini-models", Model: at(`(^|/)gemini-`),
			Fields:  `{"toolNames":"letter"}`,
			Sources: []string{"https://cloud.google.com/vertex-ai/generative-ai/docs/reference/nodejs/latest/vertexai/functiondeclaration"},
		},
		{
			// Calls without a signature are refused. The placeholder is the API's own.
			Name: "gemini-3-models", Model: at(`(^|/)gemini-[3-9]`),
			Fields: `{"callSignature":"skip_thought_signature_validator"}`,
			Sources: []string{
				"https://ai.google.dev/gemini-api/docs/thought-signatures",
				"https://github.com/strands-agents/sdk-python/pull/1298",
			},
		},
		{
			// Templates and servers of Mistral's models have the rules of Mistral.
			Name: "mistral-models", Model: at(`(^|/)(mistral|ministral|mixtral|magistral|devstral|codestral|pixtral)`),
			Fields: `{"callIDs":"alphanumeric","callIDMin":9,"callIDMax":9,"answerAfterTool":true}`,
			Sources: []string{
				"https://github.com/charmbracelet/crush/issues/279",
				"https://github.com/ggml-org/llama.cpp/issues/19851",
			},
		},
		{
			Name: "deepseek-models", Model: at(`(^|/)deepseek-(v[4-9]|v3\.2|reasoner|chat)`),
			Fields:  `{"reasoning":"calls"}`,
			Sources: []string{"https://github.com/danny-avila/LibreChat/issues/13366"},
		},
		{
			// A server without a parser for reasoning leaves it in the text.
			Name: "deepseek-r1-models", Model: at(`(^|/)deepseek-r1`),
			Fields:  `{"thinkTags":"start"}`,
			Sources: []string{"https://docs.vllm.ai/en/latest/features/reasoning_outputs.html"},
		},
		{
			// Routers pass the rule of Kimi on.
			Name: "kimi-models", Model: at(`(^|/)kimi-k`),
			Fields:  `{"reasoning":"calls","reasoningField":"reasoning_content","reasoningFiller":"."}`,
			Sources: []string{"https://github.com/earendil-works/pi/pull/987"},
		},
		{
			// Its template takes one system message, the first. Compatible servers do so anyway; the row is for routers. A server without a
			// parser for reasoning leaves it in the text.
			Name: "qwen-models", Model: at(`(^|/)(qwen|qwq)`),
			Fields: `{"system":"first","alternateRoles":true,"thinkTags":"start"}`,
			Sources: []string{
				"https://github.com/vllm-project/vllm/issues/41114", "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1569",
			},
		},
		{
			// The template demands alternating roles.
			Name: "gemma-models", Model: at(`(^|/)(gemma|medgemma)`),
			Fields:  `{"system":"first","alternateRoles":true}`,
			Sources: []string{"https://github.com/dnakov/anon-kode/issues/60", "https://github.com/sgl-project/sglang/issues/892"},
		},
		{
			// The template refuses a message with several calls.
			Name: "llama-3-models", Model: at(`(^|/)(meta-)?llama-?3`),
			Fields:  `{"singleCalls":true}`,
			Sources: []string{"https://github.com/vllm-project/vllm/pull/12938"},
		},
	}
})
