package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Refusal is an error with which a program refuses a request by rules of its own. The request is answered with it, and
// nothing is done.
//
// It is no fault: code that looks for a reason of this system must not take the program's code for one.
type Refusal struct {
	// Status is that of the answer over HTTP: 400 to 499, or 503 for a program that cannot decide at the moment.
	Status int
	// Code is a stable word for programs, in the form UPPER_SNAKE. Empty is ENTRY_REFUSED.
	Code string
	// Message is a sentence for users.
	Message string
	// Body is the body of the answer over HTTP, as JSON, in place of the usual error. Other transports do not send it.
	Body json.RawMessage
}

// EntryRefused is the code of a refusal without one.
const EntryRefused = "ENTRY_REFUSED"

// Error returns the code and the message.
func (r *Refusal) Error() string { return r.Reason() + ": " + r.Message }

// Reason returns the code, or ENTRY_REFUSED.
func (r *Refusal) Reason() string { return cmp.Or(r.Code, EntryRefused) }

// refusalCode is the form of a code.
var refusalCode = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// Valid reports whether status, code and body have their form.
func (r *Refusal) Valid() bool {
	status := r.Status >= 400 && r.Status <= 499 || r.Status == http.StatusServiceUnavailable
	return status && refusalCode.MatchString(r.Reason()) && (len(r.Body) == 0 || json.Valid(r.Body))
}

func (r *Refusal) message() string { return cmp.Or(r.Message, "This is not allowed.") }

// Fault returns the refusal as a fault, for transports without HTTP statuses: at the border, where it is written.
func (r *Refusal) Fault() *fault.Fault {
	kind, known := refusalKinds[r.Status]
	if !known {
		kind = fault.Invalid
	}
	return fault.New(kind, r.Reason(), "%s", r.message())
}

var refusalKinds = map[int]fault.Kind{
	http.StatusUnauthorized: fault.Unauthenticated, http.StatusPaymentRequired: fault.Denied, http.StatusForbidden: fault.Denied,
	http.StatusNotFound: fault.NotFound, http.StatusGone: fault.NotFound, http.StatusConflict: fault.Conflict,
	http.StatusRequestEntityTooLarge: fault.TooLarge, http.StatusTooManyRequests: fault.Exhausted,
	http.StatusServiceUnavailable: fault.Unavailable,
}

// RefusalOf returns the refusal in an error; nil for none.
func RefusalOf(err error) *Refusal {
	r, _ := errors.AsType[*Refusal](err)
	return r
}

// write answers with the refusal.
func (r *Refusal) write(w http.ResponseWriter) {
	if len(r.Body) > 0 {
		WriteJSON(w, r.Status, r.Body)
		return
	}
	WriteJSON(w, r.Status, ErrorBody{
		Error: r.message(), Code: r.Reason(),
		Retryable: r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable,
	})
}
