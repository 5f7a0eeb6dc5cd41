package httpapi

import (
	"maps"
	"net/http"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// About describes a route, in the OpenAPI document and in docs/api.md. A route without a Name is not
// part of the API: a file of the page.
type About struct {
	Name       string // of the operation, such as listSessions; unique
	Summary    string // one sentence
	Parameters []Parameter
	// Body is a value of the body's type, nil for none. Its fields have the tags json, doc, enum,
	// and required if a body without the field is refused.
	Body         any
	OptionalBody bool
	BodyType     string // content type of a body other than JSON; "" for none
	MaxBytes     int64  // of the body
	Answers      []Answer
	Faults       Faults // that neither the parameters, the body nor the server explain
	Stream       bool   // an open answer counts against HOLDFAST_GATEWAY_MAX_STREAMS
	// Frames are the types of the frames that a client may send over the socket of the route; nil without a socket.
	Frames []string
	RPC    string // method of the Connect service that does the same, with the same Faults; "" for none
}

// Answer is a successful answer.
type Answer struct {
	Status int
	About  string
	Type   string // content type; "" for JSON
	// Body is a value of the answer's JSON type; nil without JSON. Fields without omitempty are
	// always present.
	Body any
}

// Faults lists reasons by kind.
type Faults map[fault.Kind][]string

// AllFaults returns the reasons of the route by HTTP status, sorted: its own, and the reasons of its caller, parameters
// and body.
func (route Route) AllFaults() map[int][]string {
	byStatus := map[int][]string{}
	add := func(kind fault.Kind, reasons ...string) {
		for _, reason := range reasons {
			status := statusOf(&fault.Fault{Kind: kind, Reason: reason})
			byStatus[status] = append(byStatus[status], reason)
		}
	}
	add(fault.Denied, "HOST_REFUSED", "ORIGIN_REFUSED")
	add(fault.Internal, "INTERNAL")
	if !route.Public {
		add(fault.Unauthenticated, "API_KEY_EXPIRED", "API_KEY_MISSING", "API_KEY_WRONG", "TOKEN_EXPIRED", "TOKEN_INVALID")
		add(fault.Exhausted, "AUTH_THROTTLED")
		add(fault.Denied, "SCOPE_MISSING")
		add(fault.Unavailable, "ISSUER_UNAVAILABLE", "UNAVAILABLE", "STORE_UNAVAILABLE")
	}
	for _, p := range route.About.Parameters {
		if p.In != "path" || p.Type != Text { // any text is valid there
			add(fault.Invalid, p.reason())
		}
	}
	if route.About.Body != nil {
		add(fault.Invalid, "BODY_INVALID")
		add(fault.TooLarge, "BODY_TOO_LARGE")
		add(fault.Exhausted, "BODY_MEMORY_FULL")
	}
	if route.About.Stream && !route.Public {
		add(fault.Unauthenticated, "CREDENTIAL_ENDED")
	}
	if route.About.Stream {
		add(fault.Exhausted, "QUOTA_STREAMS", "TOO_MANY_STREAMS")
		add(fault.Unavailable, "GATEWAY_STOPPING")
	}
	for kind, reasons := range route.About.Faults {
		add(kind, reasons...)
	}
	for status := range maps.Keys(byStatus) {
		slices.Sort(byStatus[status])
		byStatus[status] = slices.Compact(byStatus[status])
	}
	return byStatus
}

// statusOf returns the HTTP status of the fault.
func statusOf(f *fault.Fault) int {
	switch f.Reason { // reasons with a status that no kind has
	case methodNotAllowed:
		return http.StatusMethodNotAllowed
	case UpgradeRequired:
		return http.StatusUpgradeRequired
	case StopNotObserved:
		return http.StatusGatewayTimeout
	case callbackExpired:
		return http.StatusGone
	default:
		return rpc.HTTPStatus(f.Kind)
	}
}
