package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// maxID bounds ids in bytes.
const maxID = 256

// CheckID refuses an invalid id: Invalid (ID_INVALID). name names it in the detail.
func CheckID(name, id string) error {
	if id == "" || len(id) > maxID {
		return fault.New(fault.Invalid, "ID_INVALID", "%s must be 1 to %d bytes, and has %d", name, maxID, len(id))
	}
	if !utf8.ValidString(id) {
		return fault.New(fault.Invalid, "ID_INVALID", "%s is not UTF-8", name)
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return fault.New(fault.Invalid, "ID_INVALID", "%s has a control character", name)
		}
	}
	return nil
}

// Limits bounds request bodies.
type Limits struct {
	MaxBytes int64
	Timeout  time.Duration    // for the whole body to arrive
	Now      func() time.Time // never nil
	Advice   string           // for the sender of a larger body
	Memory   *Memory          // of the bodies of all requests
}

// ReadJSON decodes the body into target, whatever its content type is. TooLarge (BODY_TOO_LARGE),
// Invalid (BODY_INVALID), Exhausted (BODY_MEMORY_FULL), or a fault of target's UnmarshalJSON.
func ReadJSON(w http.ResponseWriter, r *http.Request, l Limits, target any) error {
	reservation := l.Memory.Reserve(tenantOf(r))
	defer reservation.Release()
	text, err := read(w, r, l, reservation)
	if err != nil {
		return err
	}
	return DecodeJSON(text, target)
}

// tenantOf returns the tenant of the caller.
func tenantOf(r *http.Request) string {
	caller, _ := auth.From(r.Context())
	return caller.Tenant
}

// DecodeJSON decodes a body from another transport. Invalid (BODY_INVALID), or a fault of target's
// UnmarshalJSON.
func DecodeJSON(text []byte, target any) error {
	if err := json.Unmarshal(text, target); err != nil {
		return InvalidJSON(err)
	}
	return nil
}

// ReadOptionalJSON is ReadJSON for an optional body.
func ReadOptionalJSON(w http.ResponseWriter, r *http.Request, l Limits, target any) error {
	reservation := l.Memory.Reserve(tenantOf(r))
	defer reservation.Release()
	text, err := read(w, r, l, reservation)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return err
	}
	return DecodeJSON(text, target)
}

func read(w http.ResponseWriter, r *http.Request, l Limits, reservation *Reservation) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(l.Now().Add(l.Timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	text, err := io.ReadAll(&countedReader{from: http.MaxBytesReader(w, r.Body, l.MaxBytes), reservation: reservation})
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, fault.New(fault.TooLarge, "BODY_TOO_LARGE", "a request may have at most %d bytes here; %s", l.MaxBytes, l.Advice).
			WithSizes(max(r.ContentLength, 0), l.MaxBytes)
	}
	if errors.Is(err, fault.Exhausted) {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "BODY_INVALID", "the body is incomplete")
	}
	// The deadline would otherwise end the connection during a long answer.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return text, nil
}

// InvalidJSON converts an error of encoding/json: Invalid (BODY_INVALID), which says where the body is
// invalid, without Go types. Faults stay as they are.
func InvalidJSON(err error) error {
	if _, isFault := fault.From(err); isFault {
		return err
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fault.New(
			fault.Invalid,
			"BODY_INVALID",
			"the body has a %s at %q, byte %d, where another type is expected",
			wrong.Value,
			wrong.Field,
			wrong.Offset,
		)
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fault.New(fault.Invalid, "BODY_INVALID", "the body is not JSON, at byte %d", wrong.Offset)
	}
	return fault.New(fault.Invalid, "BODY_INVALID", "the body is not the expected JSON")
}
