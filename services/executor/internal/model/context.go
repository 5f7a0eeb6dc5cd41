package model

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// contextTags takes the marks of context out of texts, so that no text ends or begins one.
var contextTags = strings.NewReplacer("<context", "&lt;context", "</context", "&lt;/context")

// ContextText returns the text of a context message for a message of the user: a row of context is marked, and any other text
// stays as it is.
func ContextText(m agent.Message) string {
	row, source, ok := agent.ContextRowOf(m)
	if !ok {
		return m.Text()
	}
	from := ""
	if source == agent.ContextOfTool {
		from = ` source="tool"`
	}
	return fmt.Sprintf("<context kind=\"%s\"%s>%s</context>", row.Kind, from, contextTags.Replace(row.Text))
}

// ContextAsUser returns a row of context as a hidden message of the user, and any other message as it is.
func ContextAsUser(m agent.Message) agent.Message {
	if _, _, ok := agent.ContextRowOf(m); !ok {
		return m
	}
	return agent.Message{ID: m.ID, Role: agent.RoleUser, Hidden: true, Parts: []agent.Part{agent.Text{Text: ContextText(m)}}}
}
