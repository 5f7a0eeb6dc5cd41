package fault

import (
	"strconv"
	"strings"
)

// Kind says what the caller of a failed operation should do. It is an error, so errors.Is(err, fault.NotFound)
// works.
type Kind uint8

// The kinds. Their numbers are not stable; their names are.
const (
	// Internal: do nothing; the failure is ours and logged.
	Internal Kind = iota
	// Invalid: change the request.
	Invalid
	// Unauthenticated: send valid credentials.
	Unauthenticated
	// Denied: send other credentials; these lack the permission.
	Denied
	// NotFound: stop asking.
	NotFound
	// Conflict: look at the state; the same call will fail again.
	Conflict
	// Stale: stop, or reload and decide again; another writer was faster.
	Stale
	// TooLarge: send less.
	TooLarge
	// Exhausted: wait, then retry.
	Exhausted
	// Unavailable: retry with backoff.
	Unavailable
)

var names = [...]string{
	Internal:        "internal",
	Invalid:         "invalid",
	Unauthenticated: "unauthenticated",
	Denied:          "denied",
	NotFound:        "not found",
	Conflict:        "conflict",
	Stale:           "stale",
	TooLarge:        "too large",
	Exhausted:       "exhausted",
	Unavailable:     "unavailable",
}

// Kinds returns every kind in the order of declaration.
func Kinds() []Kind {
	kinds := make([]Kind, len(names))
	for i := range kinds {
		kinds[i] = Kind(i)
	}
	return kinds
}

// String returns the kind's name in lower case ("not found").
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Error returns the kind's name, as String does.
func (k Kind) Error() string { return k.String() }

func (k Kind) reason() string {
	return strings.ToUpper(strings.ReplaceAll(k.String(), " ", "_"))
}
