package agent

import (
	"errors"
	"time"
)

// Later is what a tool with Tool.LaterWithin returns as its error if another system has taken the call over and posts the
// result to Call.Callback. It is no failure: the run suspends, and costs nothing until the result or the deadline comes. The
// changes of the custom state, the events and the usage of the call are kept.
var Later = errors.New("the result comes by callback") //nolint:errname // it is an outcome, as io.EOF is

// Callback is the address for the result of one call. The other system sends
//
//	POST URL
//	Content-Type: application/json
//
//	{"result": JSON}   or   {"error": {"message": TEXT, "publicMessage": TEXT}}
//
// The URL is the right to answer this call, so treat it as a secret. It answers one call, once. If the call is executed
// again after a crash, with the same idempotency key, it gets another URL, and each of them answers the call.
type Callback struct {
	URL     string
	Expires time.Time // exclusive; after it, the model reads that no result came
}
