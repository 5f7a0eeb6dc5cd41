package server

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxActorBytes bounds the name of an actor: a prefix and an id.
const maxActorBytes = maxIDBytes + 16

// checkActor gives Invalid (ID_INVALID).
func checkActor(actor string) error {
	if len(actor) > maxActorBytes || !utf8.ValidString(actor) || strings.ContainsFunc(actor, unicode.IsControl) {
		return invalid("ID_INVALID", "actor has %d bytes; give at most %d of UTF-8 without control characters", len(actor), maxActorBytes)
	}
	return nil
}

// checkCaller gives Invalid (ID_INVALID).
func checkCaller(c *statev1.Caller) error {
	return cmp.Or(checkActor(c.GetActor()), checkOptionalID("caller.owner", c.GetOwner()))
}

func callerIn(c *statev1.Caller) session.Caller {
	return session.Caller{Actor: c.GetActor(), Owner: c.GetOwner()}
}

// callerRequest is a request on behalf of a caller.
type callerRequest interface{ GetCaller() *statev1.Caller }

// targetOf returns the target of a command on a session of the caller.
func targetOf(r callerRequest, key session.Key, need session.Need) session.Target {
	return session.Target{Key: key, Need: need, Owner: r.GetCaller().GetOwner()}
}

// readerOf returns the reader of the caller's sessions.
func readerOf(r callerRequest, all store.Reader) store.Reader {
	return all.OwnedBy(r.GetCaller().GetOwner())
}
