package auth

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The actions of events.
const (
	CredentialRefused = "credential.refused" // an unknown, expired or missing credential
	ScopeMissing      = "scope.missing"      // a known caller without a scope or the user that a request needs
	ActionDenied      = "action.denied"      // what a rule of the session denies a known caller, such as approving its own request
	EntryRefused      = "entry.refused"      // what a hook of the program refuses a known caller
	AuditExported     = "audit.exported"     // the audit log was read whole
	KeyAdded          = "key.added"          // to the file of API keys
	KeyRemoved        = "key.removed"        // from the file of API keys
	TokenMinted       = "token.minted"       // for a browser
)

// KeysFile is the entry of Event.Detail for the digest of the file of API keys after its change. Gateways that see the
// same change report it under the same id, so it has one entry.
const KeysFile = "file"

// Event is an event for the audit log. Unknown fields are empty.
type Event struct {
	Action  string
	Tenant  string
	Actor   string            // of Identity.Actor
	Target  string            // the name of a key, the user of a token, the path of a request, or the request to the state service
	Address string            // of the client
	Detail  map[string]string // a few short values; never a credential
}

// Auditor records events. Record must neither block nor fail: it is called during requests.
type Auditor interface {
	Record(ctx context.Context, e Event)
}

func record(ctx context.Context, a Auditor, e Event) {
	if a != nil {
		a.Record(ctx, e)
	}
}

// refused returns the event of a refused request by a known caller.
func (i Identity) refused(target string, refusal error) Event {
	e := Event{
		Action: ScopeMissing,
		Tenant: i.Tenant,
		Actor:  i.Actor(),
		Target: target,
		Detail: map[string]string{"reason": fault.ReasonOf(refusal)},
	}
	if f, is := fault.From(refusal); is && f.Meta["scope"] != "" {
		e.Detail["scope"] = f.Meta["scope"]
	}
	return e
}
