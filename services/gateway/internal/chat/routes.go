package chat

import (
	"encoding/json"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// describedChatRequest describes the keys that request.UnmarshalJSON reads.
type describedChatRequest struct {
	ID        string                 `json:"id" required:"true" doc:"the session; a new id begins a session"`
	Messages  []describedChatMessage `json:"messages" doc:"the conversation; a new session takes in all of it, a known one only what is new"`
	Message   json.RawMessage        `json:"message" doc:"the last message alone, or its text"`
	Trigger   string                 `json:"trigger" enum:"submit-message,regenerate-message" doc:"submit-message if missing"`
	MessageID string                 `json:"messageId" doc:"the message to edit or to answer again"`
	AgentType string                 `json:"agentType" doc:"the agent of a new session"`
	OnBusy    string                 `json:"onBusy" enum:"reject,enqueue,interrupt,rollback" doc:"what happens while a run is live; interrupt if missing, unless the agent has a policy"`
	RunID     string                 `json:"runId" doc:"the newest run that the client knows"`
	State     json.RawMessage        `json:"state" doc:"the custom state of a new session, an object; it needs the scope operate, and has no effect otherwise"`

	Tools        []describedTool `json:"tools" doc:"tools of the page for the turn of a new message, whose calls it answers; the agent has to permit callerTools. An object in place of the list belongs to the app"`
	Instructions string          `json:"instructions" doc:"instructions to the model for the turn of a new message; the agent has to permit callerInstructions"`
}

// describedTool describes a callerTool.
type describedTool struct {
	Name           string          `json:"name" required:"true" doc:"1 to 64 characters of A-Z a-z 0-9 _ -"`
	Description    string          `json:"description"`
	InputSchema    json.RawMessage `json:"inputSchema" required:"true" doc:"the JSON Schema of the arguments, of type object"`
	OutputSchema   json.RawMessage `json:"outputSchema" doc:"the JSON Schema of the result"`
	Strict         bool            `json:"strict" doc:"asks the provider to constrain the arguments to the schema"`
	AnswerWithinMS int64           `json:"answerWithinMs" doc:"how long a call waits for its answer, at most a year; no limit if missing"`
}

// describedChatMessage describes a UIMessage of a request.
type describedChatMessage struct {
	ID       string              `json:"id"`
	Role     string              `json:"role" required:"true" enum:"user,assistant,system"`
	Parts    []describedChatPart `json:"parts"`
	Metadata json.RawMessage     `json:"metadata" doc:"of the app; any JSON value"`
}

// describedChatPart describes a part of a UIMessage. Parts of calls have more keys.
type describedChatPart struct {
	Type      string          `json:"type" required:"true" doc:"text, file, data-NAME, tool-NAME, …"`
	Text      string          `json:"text"`
	MediaType string          `json:"mediaType"`
	URL       string          `json:"url" doc:"of a file: a data: or https: URL, or that of a stored file"`
	Filename  string          `json:"filename"`
	Data      json.RawMessage `json:"data" doc:"of a data part of a user: any JSON value, stored for clients and not shown to models"`
}

// AISDKParameter is the client's version of the AI SDK, for the routes of the chat.
func AISDKParameter() httpapi.Parameter {
	return httpapi.Parameter{
		Name: "aiSdk",
		Doc:  "the major version of the client's package ai; without it, the client receives what all versions from 5 on accept",
		Type: httpapi.Integer, Min: 5, Max: 1 << 31, Refusal: "AI_SDK_INVALID",
	}
}

// Routes are the routes of the chat over HTTP.
func (c *Chat) Routes() []httpapi.Route {
	stream := "a UI message stream of the AI SDK"
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/chat", Handler: c.Post, Scope: auth.Chat, TextErrors: true, About: httpapi.About{
			Name: "chat",
			Summary: "Accepts what useChat sends (a message, an edit, a regeneration, results of client tools, approvals) and streams the " +
				"answer. The limit of the body counts without the data: URLs of files; with them, it is HOLDFAST_GATEWAY_MAX_UPLOAD_BYTES.",
			Parameters: []httpapi.Parameter{AISDKParameter()}, Body: describedChatRequest{}, MaxBytes: c.limits.MaxBytes, Stream: true,
			Answers: []httpapi.Answer{{Status: http.StatusOK, About: stream, Type: "text/event-stream"}},
			Faults: httpapi.Faults{
				fault.Invalid: {
					"AGENT_REQUIRED", "ANSWER_INVALID", "CALLER_TOOLS_INVALID", "FILE_INVALID", "ID_INVALID", "KIND_MISMATCH", "MESSAGE_INVALID",
					"METADATA_INVALID", "ON_BUSY_INVALID", "STATE_INVALID",
				},
				fault.NotFound: {"AGENT_NOT_FOUND", "FILE_NOT_FOUND", "MESSAGE_NOT_FOUND", "UNKNOWN_TOOL_CALL"},
				fault.Conflict: {
					"AGENT_MISMATCH", "MESSAGE_EXISTS", "OWNER_NOT_CONTINUABLE", "REQUEST_KEY_REUSED", "RUN_CANCELLED", "RUN_STALE", "SESSION_BUSY",
					"SESSION_COMPLETED", "SESSION_SUSPENDED",
				},
				fault.TooLarge: {
					"CALLER_TOOLS_TOO_LARGE", "FILE_TOO_LARGE", "HISTORY_TOO_LARGE", "MESSAGE_TOO_LARGE", "RESULT_TOO_LARGE", "STATE_SIZE_EXCEEDED",
					"TOO_MANY_MESSAGES", "TOO_MANY_PARTS",
				},
				fault.Denied:      {"APPROVER_REFUSED", "CALLER_TOOLS_REFUSED"},
				fault.Exhausted:   {"QUOTA_BYTES", "QUOTA_QUEUED", "QUOTA_STARTS", "TOO_MANY_FILES", "TOO_MANY_WAITING"},
				fault.Unavailable: {"CALL_NOT_OPEN"},
			},
		}},
		{Method: http.MethodGet, Pattern: "/chat/{id}/stream", Handler: c.Resume, Scope: auth.Read, TextErrors: true, About: httpapi.About{
			Name: "resumeChat", Summary: "Streams the whole current message, then live text.", Stream: true,
			Parameters: []httpapi.Parameter{
				httpapi.PathID("id", "the session"), AISDKParameter(),
				{Name: "runId", Doc: "the run; the newest one if missing", Type: httpapi.ID},
				{Name: "fromSequence", Doc: "streams the rest after the event with this id: SEQUENCE or SEQUENCE.PARTS", Refusal: "CURSOR_INVALID"},
				{Name: "Last-Event-ID", In: "header", Doc: "as fromSequence, and takes precedence", Refusal: "CURSOR_INVALID"},
			},
			Answers: []httpapi.Answer{
				{Status: http.StatusOK, About: stream, Type: "text/event-stream"},
				{Status: http.StatusNoContent, About: "there is nothing to stream"},
			},
		}},
	}
}
