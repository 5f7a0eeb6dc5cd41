// Package httpapi is the HTTP surface of all routes: authentication, errors, spans, CORS, and
// streams that end with a broken connection.
package httpapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// ErrorBody is the JSON of an error.
type ErrorBody struct {
	Error     string `json:"error" doc:"a sentence for users"`
	Code      string `json:"code" doc:"for programs: a stable reason"`
	Detail    string `json:"detail,omitempty" doc:"for developers"`
	Retryable bool   `json:"retryable" doc:"the same request may succeed later"`
	Kind      string `json:"kind,omitempty" doc:"of 404 and 413: what is missing or too large, such as session, body or state"`

	Field string `json:"field,omitempty" doc:"of 400: the field with the invalid value"`

	LimitBytes int64 `json:"limitBytes,omitempty" doc:"of 413: the limit"`
	SizeBytes  int64 `json:"sizeBytes,omitempty" doc:"of 413: the size, if it is known"`

	Limit      string  `json:"limit,omitempty" doc:"of 429: the reached limit, such as tenant.queued or user.streams"`
	LimitValue float64 `json:"limitValue,omitempty" doc:"of 429: its value"`

	CurrentStatus  string `json:"currentStatus,omitempty" doc:"of 409: the status of the session"`
	CurrentRunID   string `json:"currentRunId,omitempty" doc:"of 409: the newest run of the session"`
	CurrentVersion int64  `json:"currentVersion,omitempty" doc:"of 409: the version of the session"`

	AvailableTypes []string `json:"availableTypes,omitempty" doc:"of 404 AGENT_NOT_FOUND: the known agents, at most 100"`
}

// sentences are the texts for users, by reason. One without a full stop does not say what to change; the cause follows it.
var sentences = map[string]string{
	"SESSION_BUSY":           "This conversation is still answering the last message.",
	"SESSION_SUSPENDED":      "This conversation waits for an answer to an earlier question.",
	"SESSION_NOT_FOUND":      "There is no such conversation.",
	"SESSION_COMPLETED":      "This conversation has ended; please send a message.",
	"TOO_MANY_WAITING":       "Too many messages wait for an answer in this conversation.",
	"RUN_NOT_FOUND":          "There is no such answer.",
	StopNotObserved:          "It will stop, but has not yet.",
	"AGENT_MISMATCH":         "This conversation belongs to another agent",
	"AGENT_NOT_FOUND":        "There is no such agent",
	"EXECUTOR_UNREACHABLE":   "No executor with this agent can be reached.",
	"METHOD_NOT_FOUND":       "The agent has no such method",
	"MESSAGE_EXISTS":         "This message was sent before",
	"MESSAGE_INVALID":        "The message cannot be sent",
	"MESSAGE_TOO_LARGE":      "The message is too large",
	"FILE_TOO_LARGE":         "The file is too large",
	"FILE_NOT_FOUND":         "There is no such file.",
	"FILE_INVALID":           "The file cannot be read",
	"HISTORY_TOO_LARGE":      "The conversation so far is too long to be continued here; please begin a new one",
	"REQUEST_KEY_REUSED":     "This request was sent before with another content",
	"MESSAGE_NOT_FOUND":      "There is no such message.",
	"RUN_STALE":              "This conversation has newer messages; please reload it.",
	"RESULT_TOO_LARGE":       "The answer is too large",
	"KIND_MISMATCH":          "Another kind of answer is expected here",
	"UNKNOWN_TOOL_CALL":      "There is no such question.",
	callNotOpen:              "This question cannot be answered yet; please try again in a moment.",
	"QUOTA_STARTS":           "Too many requests at once; please wait a moment.",
	"QUOTA_QUEUED":           "Too many requests wait for an answer; please try again later.",
	"QUOTA_STREAMS":          "Too many conversations are open; please close one.",
	"QUOTA_BYTES":            "There is no more room for messages and files.",
	"RUN_CANCELLED":          "This conversation was stopped; please send a message.",
	callbackExpired:          "The time for this result is over.",
	"CALLBACK_UNKNOWN":       "There is nothing here.",
	"CALL_ANSWERED":          "This call has another answer already.",
	"OWNER_NOT_CONTINUABLE":  "This question can no longer be answered; please send a message.",
	"CALLER_TOOLS_REFUSED":   "The agent does not accept this",
	"CALLER_TOOLS_INVALID":   "The tools of this page cannot be used",
	"CALLER_TOOLS_TOO_LARGE": "The tools or instructions of this page are too large",
	"ROUTE_NOT_FOUND":        "There is nothing here.",
	"METHOD_NOT_ALLOWED":     "This address cannot be used that way.",
	UpgradeRequired:          "This address takes WebSocket connections only.",
}

// A call not open yet will be open soon. callRetryAfter is in seconds.
const (
	callNotOpen    = "CALL_NOT_OPEN"
	callRetryAfter = "1"
)

// sentence returns the text for users. Many clients show nothing else, so it says what to change.
func sentence(f *fault.Fault) string {
	s := cmp.Or(sentences[f.Reason], kindSentences[f.Kind])
	switch {
	case strings.HasSuffix(s, "."):
		return s
	case f.Detail == "":
		return s + "."
	case len(f.Detail) > maxCause:
		return s + ": " + strings.ToValidUTF8(f.Detail[:maxCause], "") + "…"
	}
	return s + ": " + strings.TrimRight(f.Detail, ".") + "."
}

// kindSentences are the texts for users of reasons missing in sentences. No client can repair a failure inside a
// service.
var kindSentences = map[fault.Kind]string{
	fault.Invalid:         "The request is not valid",
	fault.TooLarge:        "The request is too large",
	fault.Unauthenticated: "A valid API key or token is needed",
	fault.Denied:          "This is not allowed",
	fault.NotFound:        "It was not found",
	fault.Conflict:        "That is not possible at the moment",
	fault.Stale:           "That is not possible at the moment",
	fault.Exhausted:       "Too much at once; please wait a moment",
	fault.Unavailable:     "The service is not available at the moment; please try again.",
	fault.Internal:        "Something went wrong on our side.",
}

// maxCause bounds the cause in a sentence for users, in bytes.
const maxCause = 400

// faultOf returns the error as a fault. Other errors become INTERNAL.
func faultOf(err error) *fault.Fault {
	f, ok := fault.From(err)
	if !ok {
		f = &fault.Fault{Kind: fault.KindOf(err), Reason: "INTERNAL"}
		if f.Kind == fault.Unavailable {
			f.Reason = "UNAVAILABLE"
		}
	}
	return f
}

// errorBodyOf returns the JSON of the fault. Internal faults have no detail.
func errorBodyOf(f *fault.Fault) ErrorBody {
	detail := f.Detail
	if f.Kind == fault.Internal {
		detail = ""
	}
	number := func(key string) int64 {
		n, _ := strconv.ParseInt(f.Meta[key], 10, 64) // 0 if it is missing
		return n
	}
	var types []string
	if known := f.Meta["availableTypes"]; known != "" {
		types = strings.Split(known, ",")
	}
	limitValue, _ := strconv.ParseFloat(f.Meta[fault.LimitValue], 64) // 0 if it is missing
	return ErrorBody{
		Limit: f.Meta[fault.LimitName], LimitValue: limitValue,
		Error: sentence(f), Code: f.Reason, Detail: detail,
		Retryable: f.Kind == fault.Exhausted || f.Kind == fault.Unavailable, Kind: subject(f), Field: f.Meta["field"],
		LimitBytes: number(fault.LimitBytes), SizeBytes: number(fault.SizeBytes),
		CurrentStatus: f.Meta["currentStatus"], CurrentRunID: f.Meta["currentRunId"], CurrentVersion: number("currentVersion"),
		AvailableTypes: types,
	}
}

// subject returns what is missing or too large, such as session, by the reason of the fault; "" for
// other faults.
func subject(f *fault.Fault) string {
	if f.Kind != fault.NotFound && f.Kind != fault.TooLarge {
		return ""
	}
	name := strings.TrimPrefix(f.Reason, "UNKNOWN_")
	for _, suffix := range []string{"_NOT_FOUND", "_TOO_LARGE", "_SIZE_EXCEEDED"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.ToLower(name)
}

// ErrorTexts returns the values of WriteError, for other transports.
func ErrorTexts(err error) (sentence, code, detail string) {
	if r := RefusalOf(err); r != nil {
		return r.message(), r.Reason(), ""
	}
	b := errorBodyOf(faultOf(err))
	return b.Error, b.Code, b.Detail
}

// WriteError answers with the error. An error without a fault becomes INTERNAL, without details.
func WriteError(w http.ResponseWriter, err error) {
	if r := RefusalOf(err); r != nil {
		r.write(w)
		return
	}
	f := faultOf(err)
	WriteJSON(w, writeErrorHeaders(w, f), errorBodyOf(f))
}

// Headers of an error answered as text.
const (
	ErrorCodeHeader   = "X-Holdfast-Error-Code"
	ErrorDetailHeader = "X-Holdfast-Error-Detail"
)

// maxDetailHeader bounds the detail in a header, in bytes. Proxies limit headers.
const maxDetailHeader = 1 << 10

// writeErrorAsText is WriteError for clients that show the body to users: the body is the sentence alone. The code and
// the detail are headers. A client that accepts JSON receives JSON.
func writeErrorAsText(w http.ResponseWriter, r *http.Request, err error) {
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		WriteError(w, err)
		return
	}
	if r := RefusalOf(err); r != nil {
		w.Header().Set(ErrorCodeHeader, r.Reason())
		writeBody(w, r.Status, "text/plain; charset=utf-8", []byte(r.message()))
		return
	}
	f := faultOf(err)
	b := errorBodyOf(f)
	status := writeErrorHeaders(w, f)
	w.Header().Set(ErrorCodeHeader, b.Code)
	if b.Detail != "" {
		quoted := strconv.QuoteToASCII(b.Detail)
		detail := quoted[1 : len(quoted)-1]
		w.Header().Set(ErrorDetailHeader, detail[:min(len(detail), maxDetailHeader)])
	}
	writeBody(w, status, "text/plain; charset=utf-8", []byte(b.Error))
}

// writeErrorHeaders returns the status of the fault and sets the headers that belong to it.
func writeErrorHeaders(w http.ResponseWriter, f *fault.Fault) int {
	if f.Reason == callNotOpen {
		w.Header().Set("Retry-After", callRetryAfter)
	} else if seconds := f.RetryAfterSeconds(); seconds > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if f.Kind == fault.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	}
	return statusOf(f)
}

// WriteJSON answers with the value as JSON.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil { // values always marshal; a partial one must not look whole
		status, text = http.StatusInternalServerError, []byte(`{"error":"Something went wrong on our side.","code":"INTERNAL"}`)
	}
	writeBody(w, status, "application/json; charset=utf-8", append(text, '\n'))
}

func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have closed the connection
}
