package httpapi

import (
	"net/http"
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// SessionID returns the query parameter sessionId. Invalid (ID_INVALID).
func SessionID(r *http.Request) (string, error) {
	id := r.URL.Query().Get("sessionId")
	return id, CheckID("sessionId", id)
}

// Number returns a query parameter between least and most. Invalid (PARAMETER_INVALID).
func Number(r *http.Request, name string, whenAbsent, least, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return whenAbsent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fault.New(fault.Invalid, "PARAMETER_INVALID", "%s is %.30q: it has to be a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// Bool returns a query parameter that is true or false. Invalid (PARAMETER_INVALID).
func Bool(r *http.Request, name string, whenAbsent bool) (bool, error) {
	switch text := r.URL.Query().Get(name); text {
	case "":
		return whenAbsent, nil
	case "true", "false":
		return text == "true", nil
	default:
		return false, fault.New(fault.Invalid, "PARAMETER_INVALID", "%s is %.30q: it has to be true or false", name, text)
	}
}
