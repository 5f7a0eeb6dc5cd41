package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Type is the type of a parameter.
type Type string

// The types of parameters.
const (
	Text    Type = ""
	ID      Type = "id" // a text of 1 to 256 bytes
	Integer Type = "integer"
	Boolean Type = "boolean"
)

// Parameter is a parameter of a route. Handlers read it with its methods, and the description of the
// route names it, so the two agree.
type Parameter struct {
	Name     string
	In       string // query if empty, path or header
	Doc      string
	Type     Type
	Required bool
	Default  int64    // of an Integer, if it is missing
	Min, Max int64    // of an Integer
	True     bool     // a Boolean is true if it is missing
	Words    []string // of a Text: its only values
	Many     bool     // it may be repeated
	Pairs    bool     // it has keys: name[key]=value
	Refusal  string   // reason of the refusal; "" for that of the type

	// Field is the field of a contract with the comment for Doc.
	Field protoreflect.FullName
}

// SessionParameter is the session's id in the query.
func SessionParameter() Parameter {
	return Parameter{Name: "sessionId", Doc: "the session", Type: ID, Required: true}
}

// PathID is an id in the path.
func PathID(name, doc string) Parameter {
	return Parameter{Name: name, In: "path", Doc: doc, Type: ID, Required: true}
}

func (p Parameter) reason() string {
	switch {
	case p.Refusal != "":
		return p.Refusal
	case p.Type == ID:
		return "ID_INVALID"
	default:
		return "PARAMETER_INVALID"
	}
}

// Number returns the value of an Integer. Invalid (PARAMETER_INVALID).
func (p Parameter) Number(r *http.Request) (int64, error) {
	return p.ParseNumber(r.URL.Query().Get(p.Name))
}

// ParseNumber is Number for a text from elsewhere; "" is missing.
func (p Parameter) ParseNumber(text string) (int64, error) {
	if text == "" {
		return p.Default, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < p.Min || n > p.Max {
		return 0, fault.New(fault.Invalid, p.reason(), "%s is %.30q: it has to be a number from %d to %d", p.Name, text, p.Min, p.Max)
	}
	return n, nil
}

// Bool returns the value of a Boolean. Invalid (PARAMETER_INVALID).
func (p Parameter) Bool(r *http.Request) (bool, error) {
	return p.ParseBool(r.URL.Query().Get(p.Name))
}

// ParseBool is Bool for a text from elsewhere; "" is missing.
func (p Parameter) ParseBool(text string) (bool, error) {
	switch text {
	case "":
		return p.True, nil
	case "true", "false":
		return text == "true", nil
	default:
		return false, fault.New(fault.Invalid, p.reason(), "%s is %.30q: it has to be true or false", p.Name, text)
	}
}

// String returns the value of a Text or an ID, "" if an optional one is missing. Invalid (ID_INVALID,
// PARAMETER_INVALID).
func (p Parameter) String(r *http.Request) (string, error) {
	text := r.URL.Query().Get(p.Name)
	switch {
	case text == "" && !p.Required:
		return "", nil
	case p.Type == ID:
		return text, CheckID(p.Name, text)
	case len(p.Words) > 0 && !slices.Contains(p.Words, text):
		return "", fault.New(fault.Invalid, p.reason(), "%s is %.50q: it must be one of %s", p.Name, text, strings.Join(p.Words, ", "))
	default:
		return text, nil
	}
}
