package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
)

// StoredAgents is announced, in place of agents, by executors that serve stored agents, and is the agent type of the runs of
// all stored agents: Run.StoredAgent has the name. So only executors that know stored agents claim these runs. No agent can
// have this name, because ids have no control characters.
const StoredAgents = "\x01stored"

// StoredAgent is an agent that a tenant has stored. Its name points to a definition, which is stored by its hash.
type StoredAgent struct {
	Agent        // Agent.Definition is the hash of Text
	Text  string // the definition as canonical JSON
	By    string // the actor who has stored it last
	At    Millis // when
}

// StoredOutcome is what storing an agent has changed.
type StoredOutcome string

// The outcomes.
const (
	StoredCreated   StoredOutcome = "created"
	StoredChanged   StoredOutcome = "changed"
	StoredUnchanged StoredOutcome = "unchanged"
)

// useAgent notes whether the agent of a new run is stored. Nil is an agent of which nothing is known.
func (r *Run) useAgent(a *Agent) {
	if a != nil && a.Definition != "" {
		r.AgentType, r.StoredAgent, r.Definition = StoredAgents, a.Type, a.Definition
	}
}

// CanonicalDefinition returns the form of a definition in which equal ones are equal texts: JSON without spaces, with the
// members of objects sorted, and numbers as they were written. It also returns the hash of that text, SHA-256 in hexadecimal.
func CanonicalDefinition(definition []byte) (text, hash string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(definition))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return "", "", err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return "", "", errors.New("there is more text after the object")
	}
	if object == nil {
		return "", "", errors.New("it is not an object")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		return "", "", err
	}
	canonical := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	digest := sha256.Sum256(canonical)
	return string(canonical), hex.EncodeToString(digest[:]), nil
}
