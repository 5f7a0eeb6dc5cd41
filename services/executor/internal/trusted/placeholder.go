package trusted

import (
	"strings"
	"time"
)

// metadataPrefix begins the placeholders of the session's metadata. The rest is a key.
const metadataPrefix = "session.metadata."

// RunPlaceholders are the names that a template may have in {{ }}, for messages about mistakes. Placeholders are those of a
// template of a tool's call.
const (
	RunPlaceholders = "{{user.id}}, {{tenant}}, {{session.id}}, {{session.parentId}}, {{session.metadata.KEY}}, {{run.id}}, {{agent}}"
	Placeholders    = RunPlaceholders + ", {{call.id}}, {{call.idempotencyKey}}, {{callback.url}}, {{callback.expires}}"
)

// Placeholder returns the value that a placeholder stands for: empty if the context does not have it. It returns nil for an
// unknown name.
func Placeholder(name string) func(c Context) string {
	switch name {
	case "call.id":
		return func(c Context) string { return c.call().ID }
	case "call.idempotencyKey":
		return func(c Context) string { return c.call().IdempotencyKey }
	case "callback.url":
		return func(c Context) string { return c.callback().URL }
	case "callback.expires":
		return func(c Context) string {
			if c.callback().URL == "" {
				return ""
			}
			return c.callback().Expires.Format(time.RFC3339)
		}
	}
	return RunPlaceholder(name)
}

// RunPlaceholder is Placeholder without the names of a tool's call.
func RunPlaceholder(name string) func(c Context) string {
	switch name {
	case "user.id":
		return func(c Context) string {
			if c.User == nil {
				return ""
			}
			return c.User.ID
		}
	case "tenant":
		return func(c Context) string { return c.Tenant }
	case "session.id":
		return func(c Context) string { return c.Session.ID }
	case "session.parentId":
		return func(c Context) string {
			if c.Session.ParentID == nil {
				return ""
			}
			return *c.Session.ParentID
		}
	case "run.id":
		return func(c Context) string {
			if c.Run == nil {
				return ""
			}
			return c.Run.ID
		}
	case "agent":
		return func(c Context) string { return c.Agent }
	}
	if key, ok := strings.CutPrefix(name, metadataPrefix); ok && key != "" {
		return func(c Context) string { return c.Session.Metadata[key] }
	}
	return nil
}

// callback returns where the result of the call may be posted, or the zero value.
func (c Context) callback() Callback {
	if back := c.call().Callback; back != nil {
		return *back
	}
	return Callback{}
}

// call returns the call of a tool, or an empty one.
func (c Context) call() Call {
	if c.Call == nil {
		return Call{}
	}
	return *c.Call
}
