package model_test

import (
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The words are those of providers and servers, and of no one else.
func TestTheRefusedPartIsReadFromTheWordsOfAProvider(t *testing.T) {
	t.Parallel()
	type refusal = model.Refusal
	context := func(limit, count int64) *refusal {
		return &refusal{Part: model.RefusedContext, Limit: limit, Count: count}
	}
	image := func(reason model.FileProblem, limit, count int64) *refusal {
		return &refusal{Part: model.RefusedFile, Kind: model.KindImage, Reason: reason, Limit: limit, Count: count}
	}
	document := func(reason model.FileProblem, limit, count int64) *refusal {
		return &refusal{Part: model.RefusedFile, Kind: model.KindDocument, Reason: reason, Limit: limit, Count: count}
	}
	at := func(message, part int, r *refusal) *refusal {
		r.Locations = []model.Location{{Message: message, Part: part}}
		return r
	}
	tests := []struct {
		server, param, code, text string
		want                      *refusal
	}{
		{"OpenAI", "messages", "context_length_exceeded", "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens (8001 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.", context(8192, 9001)},
		{"OpenAI Responses", "input", "context_length_exceeded", "Your input exceeds the context window of this model. Please adjust your input and try again.", context(0, 0)},
		{"OpenAI", "messages", "array_above_max_length", "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2050 instead.", context(2048, 2050)},
		{"OpenAI", "messages[1].content", "string_above_max_length", "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760, but got a string with length 20000000 instead.", context(10485760, 20000000)},
		{"vLLM", "", "", "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please reduce the length of the input messages.", context(4096, 5000)},
		{"llama.cpp", "", "exceed_context_size_error", "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it", context(4096, 9000)},
		{"LM Studio", "", "", "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.", context(4096, 5000)},
		{"Mistral", "", "3051", "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", context(32768, 40000)},
		{"Groq", "", "rate_limit_exceeded", "Request too large for model `llama-3.1-8b-instant` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 7200, please reduce your message size and try again.", context(6000, 7200)},
		{"Together", "", "", "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and 512 `max_new_tokens`", context(4097, 5000)},
		{"Fireworks", "", "", "The prompt is too long: 10000, model maximum context length: 8191", context(8191, 10000)},
		{"xAI", "", "", "This model's maximum prompt length is 131072 but the request contains 140000 tokens.", context(131072, 140000)},
		{"Kimi", "", "", "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)", context(8192, 9000)},
		{"Qwen", "", "invalid_parameter_error", "Range of input length should be [1, 30720]", context(30720, 0)},
		{"Bedrock", "", "", "Input is too long for requested model.", context(0, 0)},
		{"OpenRouter", "", "", "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens (39000 of text input, 1000 in the output). Please reduce the length of either one.", context(32768, 40000)},
		{"Anthropic", "", "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", context(200000, 210000)},
		{"Anthropic", "", "invalid_request_error", "input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length or `max_tokens` and try again", context(197202, 200000)},
		{"Gemini", "", "", "The input token count (1,200,000) exceeds the maximum number of tokens allowed (1048575).", context(1048575, 1200000)},
		{"Anthropic", "", "request_too_large", "Request exceeds the maximum size", &refusal{Part: model.RefusedSize}},
		{"Gemini", "", "", "Request payload size exceeds the limit: 20971520 bytes.", &refusal{Part: model.RefusedSize}},

		{"Anthropic", "", "invalid_request_error", "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 9000000 bytes > 5242880 bytes", at(0, 1, image(model.FileTooLarge, 5242880, 9000000))},
		{"Anthropic", "", "invalid_request_error", "messages.0.content.0.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels", at(0, 0, image(model.FileTooWide, 8000, 0))},
		{"Anthropic", "", "invalid_request_error", "Could not process image", image(model.FileUnreadable, 0, 0)},
		{"Anthropic", "", "invalid_request_error", "messages.0.content.0.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", at(0, 0, image(model.FileUnsupported, 0, 0))},
		{"Anthropic", "", "invalid_request_error", "The PDF specified was not valid.", document(model.FileUnreadable, 0, 0)},
		{"Anthropic", "", "invalid_request_error", "A maximum of 100 PDF pages may be provided.", document(model.FileTooLong, 100, 0)},
		{"Bedrock", "", "", "too many images and documents: 21 + 0 > 20", &refusal{Part: model.RefusedFile, Reason: model.FilesTooMany, Limit: 20, Count: 21}},
		{"OpenAI", "", "invalid_image_format", "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].", image(model.FileUnsupported, 0, 0)},
		{"OpenAI", "messages[0].content[1].image_url", "invalid_image_url", "Error while downloading https://example.com/a.png. Upstream status code: 404.", at(0, 1, image(model.FileUnreachable, 0, 0))},
		{"OpenAI", "", "", "Invalid content type. image_url is only supported by certain models.", image(model.FileKindNotTaken, 0, 0)},
		{"vLLM", "", "", "At most 1 image(s) may be provided in one request.", image(model.FilesTooMany, 1, 0)},
		{"vLLM", "", "", "my-model is not a multimodal model", image(model.FileKindNotTaken, 0, 0)},
		{"Gemini", "", "", "Unsupported MIME type: image/bmp", image(model.FileUnsupported, 0, 0)},
		{"Gemini", "", "", "Unable to process input image. Please retry or report in https://developers.generativeai.google/guide/troubleshooting", image(model.FileUnreadable, 0, 0)},
		{"Gemini", "", "", "The document has no pages.", document(model.FileTooLong, 0, 0)},
		{"Gemini", "", "", "Cannot fetch content from the provided URL. Please ensure the URL is valid.", &refusal{}},

		{"Azure", "", "content_filter", "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", &refusal{Part: model.RefusedContent}},
		{"OpenAI", "", "invalid_prompt", "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", &refusal{Part: model.RefusedContent}},
		{"Anthropic", "", "invalid_request_error", "Output blocked by content filtering policy", &refusal{Part: model.RefusedContent}},
		{"Qwen", "", "data_inspection_failed", "Input data may contain inappropriate content.", &refusal{Part: model.RefusedContent}},

		{"Anthropic", "", "invalid_request_error", "tools.3.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level", &refusal{Part: model.RefusedTool, Tool: 4}},
		{"OpenAI", "tools[2].function.parameters", "invalid_function_parameters", "Invalid schema for function 'pay': In context=('properties', 'x'), array schema missing items.", &refusal{Part: model.RefusedTool, Name: "pay"}},
		{"OpenAI", "tools", "array_above_max_length", "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 140 instead.", &refusal{Part: model.RefusedTool, Limit: 128, Count: 140}},
		{"Gemini", "", "", "* GenerateContentRequest.tools[0].function_declarations[3].name: Invalid function name.", &refusal{Part: model.RefusedTool, Tool: 4}},

		{"OpenAI", "temperature", "unsupported_value", "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.", &refusal{Part: model.RefusedParameter, Name: "temperature"}},
		{"OpenAI", "max_tokens", "invalid_value", "max_tokens is too large: 5000. This model supports at most 4096 completion tokens, whereas you provided 5000.", &refusal{Part: model.RefusedParameter, Name: "max_tokens", Limit: 4096, Count: 5000}},
		{"Anthropic", "", "invalid_request_error", "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022", &refusal{Part: model.RefusedParameter, Name: "max_tokens", Limit: 8192, Count: 100000}},
		{"OpenAI", "x", "unknown_parameter", "Unknown parameter: 'x'.", &refusal{Part: model.RefusedParameter, Name: "x"}},

		{"Anthropic", "", "invalid_request_error", "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", at(1, 0, &refusal{})},
		{"vLLM", "", "", `[{"type":"value_error","loc":["body","messages",2,"content",1,"image_url"],"msg":"Value error"}]`, at(2, 1, image("", 0, 0))},
		{"Gemini", "", "", "* GenerateContentRequest.contents[3].parts[12].inline_data.data: the data must not be empty", at(3, 12, &refusal{Part: model.RefusedFile, Reason: model.FileUnreadable})},
		{"OpenAI Responses", "input[4].content[0]", "invalid_value", "Invalid value.", at(4, 0, &refusal{})},
		{"Anthropic", "", "invalid_request_error", "messages: text content blocks must be non-empty", &refusal{}},
		{"vLLM", "", "", "System message must be at the beginning.", &refusal{}},
		{"Gemini", "", "", "Please ensure that function response turn comes immediately after a function call turn.", &refusal{}},
		{"DeepSeek", "", "invalid_request_error", "The reasoning_content in the thinking mode must be passed back to the API.", &refusal{}},
	}
	for _, test := range tests {
		e := &model.Error{Code: model.CodeInvalidRequest, StatusCode: 400, Message: test.text}
		model.SetRefusal(e, test.param, test.code)
		if !reflect.DeepEqual(e.Refusal, test.want) {
			t.Errorf("%s: %s\ngot  %+v\nwant %+v", test.server, test.text, e.Refusal, test.want)
		}
	}
}

func TestARefusalWithTheStatusOfAnotherFailureIsNotRepeatedUnchanged(t *testing.T) {
	t.Parallel()
	for text, e := range map[string]*model.Error{
		"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj": {Code: model.CodeUnavailable, Retryable: true, StatusCode: 500},
		"Context size has been exceeded.": {Code: model.CodeUnavailable, Retryable: true, StatusCode: 500},
		"Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 41000. The input or output tokens must be reduced in order to run successfully.": {Code: model.CodeRateLimited, Retryable: true, StatusCode: 429},
	} {
		e.Message = text
		if model.SetRefusal(e, "", ""); e.Code != model.CodeInvalidRequest || e.Retryable || e.Refusal == nil || e.Refusal.Part == model.RefusedSomething {
			t.Errorf("%s: got %+v, want a refusal", text, e)
		}
	}
	for text, e := range map[string]model.Error{
		"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.": {Code: model.CodeRateLimited, Retryable: true, StatusCode: 429},
		"The image service is down":  {Code: model.CodeUnavailable, Retryable: true, StatusCode: 503},
		"Your account has no credit": {Code: model.CodeDenied, StatusCode: 403},
	} {
		e.Message = text
		got := e
		if model.SetRefusal(&got, "", ""); !reflect.DeepEqual(got, e) {
			t.Errorf("%s: got %+v, want it unchanged", text, got)
		}
	}
}
