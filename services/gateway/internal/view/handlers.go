package view

import (
	"time"

	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// Handlers serves the routes. It may be used by many goroutines.
type Handlers struct {
	Sessions *conversation.Reader
	Follower *follow.Follower
	Files    *files.Files
	Now      func() time.Time // never nil
	// Snapshots bounds the snapshots in progress. Each may hold tens of megabytes.
	Snapshots *httpapi.Pool
}
