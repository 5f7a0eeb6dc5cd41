// Package flat serves the methods of the Connect service as plain HTTP with JSON: one rule, two
// encodings. The JSON of a message is that of eventv1.MarshalMessage.
package flat

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// Shape describes the JSON of a message for the OpenAPI document.
type Shape struct {
	Name     string // of the schema; "" for the message's own
	Message  protoreflect.MessageDescriptor
	Without  []string        // fields missing in the JSON
	Required []string        // required fields of a request, and optional ones that an answer always has
	Inline   string          // a field, whose own fields the JSON has in its place
	Fixed    map[string]bool // the only value of a field
}

// OneOf describes an answer with one of several shapes.
type OneOf []Shape

// definition is a route of a method.
type definition struct {
	method, pattern string
	name, summary   string
	request, answer string            // names of the schemas; "" for those of the messages
	rename          map[string]string // public names of request fields, by JSON name
	hide            []string          // request fields that are not in the body
	required        []string          // request fields in a body
	limits          map[string]httpapi.Parameter
	inline          string // field of the answer
	id, of          string // the field of {id}, by JSON name, and what it names; "" for sessionId and the session
	stream          bool
	faults          httpapi.Faults
}

// pathID is the wildcard for the session's id.
const pathID = "{id}"

func (d definition) inPath(name string) bool {
	return name == cmp.Or(d.id, "sessionId") && strings.Contains(d.pattern, pathID)
}

func (d definition) nameOf(f protoreflect.FieldDescriptor) string {
	return cmp.Or(d.rename[f.JSONName()], f.JSONName())
}

func (d definition) hasBody() bool {
	return d.method == http.MethodPost || d.method == http.MethodPatch || d.method == http.MethodPut
}

// route returns the route of a method. fix, if not nil, changes the request before it is served.
func route[In, Out proto.Message](
	d definition,
	limits httpapi.Limits,
	serve func(context.Context, In) (Out, error),
	fix func(In),
) httpapi.Route {
	var in In
	var out Out
	message := in.ProtoReflect().Descriptor()
	about := httpapi.About{Name: d.name, Summary: d.summary, Faults: maps.Clone(d.faults), Stream: d.stream}
	about.RPC = strings.TrimSuffix(string(message.Name()), "Request")
	if about.Faults != nil {
		about.Faults[fault.Invalid] = append(Reasons(message), d.faults[fault.Invalid]...)
	}
	if strings.Contains(d.pattern, pathID) {
		about.Parameters = append(about.Parameters, httpapi.PathID("id", cmp.Or(d.of, "the session")))
	}
	switch {
	case d.hasBody():
		about.Body = Shape{Name: d.request, Message: message, Without: d.hide, Required: d.required}
		about.MaxBytes = limits.MaxBytes
	default:
		about.Parameters = append(about.Parameters, d.parametersOf(message)...)
	}
	about.Answers = []httpapi.Answer{{Status: http.StatusOK, About: "the answer", Body: Shape{
		Name: d.answer, Message: out.ProtoReflect().Descriptor(), Inline: d.inline,
	}}}
	return httpapi.Route{
		Method:  d.method,
		Pattern: d.pattern,
		About:   about,
		Handler: func(w http.ResponseWriter, r *http.Request, _ string) error {
			request := in.ProtoReflect().New()
			if err := d.read(w, r, limits, request); err != nil {
				return err
			}
			typed := request.Interface().(In)
			if fix != nil {
				fix(typed)
			}
			if err := api.Validate(typed); err != nil {
				return d.inJSONNames(err)
			}
			answer, err := serve(r.Context(), typed)
			if err != nil {
				return err
			}
			text, err := encode(answer, d.inline)
			if err == nil {
				httpapi.WriteJSON(w, http.StatusOK, text)
			}
			return err
		},
	}
}

// refuseUnknown returns the route with a check of its query. A filter with a misspelt name would
// otherwise list everything. Invalid (PARAMETER_INVALID).
func refuseUnknown(route httpapi.Route) httpapi.Route {
	var names []string
	for _, p := range route.About.Parameters {
		if p.In == "" {
			names = append(names, p.Name)
		}
	}
	faults := httpapi.Faults{}
	maps.Copy(faults, route.About.Faults)
	faults[fault.Invalid] = append(slices.Clip(faults[fault.Invalid]), "PARAMETER_INVALID")
	route.About.Faults = faults
	next := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request, tenant string) error {
		for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
			plain, _, _ := strings.Cut(name, "[") // of pairs
			if !slices.Contains(names, plain) {
				return fault.New(fault.Invalid, "PARAMETER_INVALID",
					"there is no parameter %.100q here; the parameters are: %s", name, strings.Join(names, ", "))
			}
		}
		return next(w, r, tenant)
	}
	return route
}

// read sets the fields of m from the path, and from the body or the query. Invalid (BODY_INVALID,
// ID_INVALID, PARAMETER_INVALID), TooLarge (BODY_TOO_LARGE).
func (d definition) read(w http.ResponseWriter, r *http.Request, limits httpapi.Limits, m protoreflect.Message) error {
	if !d.hasBody() {
		if err := d.setQuery(r.URL.Query(), m); err != nil {
			return err
		}
	} else {
		var body json.RawMessage
		if err := httpapi.ReadJSON(w, r, limits, &body); err != nil {
			return err
		}
		if !utf8.Valid(body) {
			return wrongType("", "UTF-8")
		}
		if err := decode(body, m, "", d.hide...); err != nil {
			return err
		}
	}
	if field := cmp.Or(d.id, "sessionId"); d.inPath(field) {
		if err := httpapi.CheckID("id", r.PathValue("id")); err != nil {
			return err
		}
		m.Set(m.Descriptor().Fields().ByJSONName(field), protoreflect.ValueOfString(r.PathValue("id")))
	}
	return nil
}
