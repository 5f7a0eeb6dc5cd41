package gateway

import (
	"github.com/holdfast-run/holdfast/services/gateway/internal/entry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/entry/webhooks"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// The types of Peers.BeforeEntry and Peers.AfterEntry.
type (
	// Entry is a request that is about to be done.
	Entry = entry.Entry
	// EntryKind is what a request wants of a session.
	EntryKind = entry.Kind
	// EntryRun is what an entry asks of a new run.
	EntryRun = entry.Run
	// EntryMessage is a message of an entry, and EntryFile a file of it.
	EntryMessage = entry.Message
	// EntryFile is a file of an EntryMessage.
	EntryFile = entry.File
	// EntryAnswer is the answer to a call in an entry.
	EntryAnswer = entry.Answer
	// EntryDecision is the answer to an approval in an EntryAnswer.
	EntryDecision = entry.Decision
	// EntryStop is a stop in an entry.
	EntryStop = entry.StopRequest
	// EntrySession is the session of an entry, as Entry.Session reads it.
	EntrySession = entry.Session
	// Entered is a request that was done.
	Entered = entry.Entered
	// Refusal is the error with which a program refuses a request.
	Refusal = httpapi.Refusal
)

// The kinds of entries.
const (
	KindStart      = entry.KindStart
	KindEdit       = entry.KindEdit
	KindRegenerate = entry.KindRegenerate
	KindResume     = entry.KindResume
	KindRetry      = entry.KindRetry
	KindBranch     = entry.KindBranch
	KindAnswer     = entry.KindAnswer
	KindStop       = entry.KindStop
	KindRewind     = entry.KindRewind
)

// newGuard returns the guard of the program's hooks and of the webhooks; nil if there are none. Invalid (HOOKS_INVALID).
func (s *Service) newGuard() (*entry.Guard, error) {
	g := &entry.Guard{After: s.peers.AfterEntry, Timeout: s.config.HookTimeout, Audit: s.callers.Audit, Log: s.peers.Log}
	if s.peers.BeforeEntry != nil {
		g.Before = append(g.Before, entry.Hook{Ask: s.peers.BeforeEntry, Timeout: s.config.HookTimeout})
	}
	if s.config.Hooks != "" {
		hook, err := webhooks.Read(s.config.Hooks, webhooks.Peers{Now: s.peers.Now, NewID: s.peers.NewID, Log: s.peers.Log})
		if err != nil {
			return nil, err
		}
		g.Before = append(g.Before, hook.Guarded())
	}
	if len(g.Before) == 0 && g.After == nil {
		return nil, nil
	}
	return g, nil
}
