package session

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Facet is one property by which sessions are listed. A store keeps the facets
// of each session in an index of their own, beside the time of its creation: so
// a session's row, which each step rewrites, is in no index but its key, and any
// combination of properties is found by walking one facet in order and looking
// the others up.
type Facet string

// AllSessions is the facet that every session has.
const AllSessions Facet = "all"

// OfUser names the sessions of a user.
func OfUser(id string) Facet { return facet("user", id) }

// OfOrganization names the sessions of an organization.
func OfOrganization(id string) Facet { return facet("organization", id) }

// OfAgent names the sessions of an agent.
func OfAgent(agentType string) Facet { return facet("agent", agentType) }

// OfStatus names the sessions that have the status now.
func OfStatus(s Status) Facet { return facet("status", string(s)) }

// OfTag names the sessions with a tag.
func OfTag(tag string) Facet { return facet("tag", tag) }

// OfParent names the sub-sessions of a session; with an empty id, the roots.
func OfParent(id string) Facet { return facet("parent", id) }

// OfMetadata names the sessions with a pair. A key has no control characters,
// so the pair is read in one way only.
func OfMetadata(key, value string) Facet { return facet("metadata", key+"\x01"+value) }

// Rank orders facets by how few sessions their kind names, where nobody has
// counted: the lower the fewer.
func (f Facet) Rank() int {
	kinds := []string{"user", "parent", "metadata", "tag", "organization", "agent", "status"}
	kind := strings.FieldsFunc(string(f), func(r rune) bool { return r == ':' || r == '#' })[0]
	if i := slices.Index(kinds, kind); i >= 0 {
		return i
	}
	return len(kinds) // all sessions
}

// longestFacet is the longest value that stands in a facet as it is. A longer
// one stands for itself by its digest, since an index takes no long keys.
const longestFacet = 256

func facet(kind, value string) Facet {
	if len(value) > longestFacet {
		digest := sha256.Sum256([]byte(value))
		return Facet(kind + "#" + hex.EncodeToString(digest[:]))
	}
	return Facet(kind + ":" + value)
}

// Facets returns the facets of a session, sorted, each once.
func (s *Session) Facets() []Facet {
	facets := []Facet{AllSessions, OfAgent(s.AgentType), OfStatus(s.Status), OfParent(s.ParentID)}
	if s.UserID != "" {
		facets = append(facets, OfUser(s.UserID))
	}
	if s.OrganizationID != "" {
		facets = append(facets, OfOrganization(s.OrganizationID))
	}
	for _, tag := range s.Tags {
		facets = append(facets, OfTag(tag))
	}
	for key, value := range s.Metadata {
		facets = append(facets, OfMetadata(key, value))
	}
	slices.Sort(facets)
	return slices.Compact(facets)
}

// Refacet returns the facets that the session loses and gains by a change.
// Either may be nil: a session that is new, and one that goes.
func Refacet(before, after *Session) (lost, gained []Facet) {
	if before != nil && after != nil && before.Status == after.Status && slices.Equal(before.Tags, after.Tags) &&
		maps.Equal(before.Metadata, after.Metadata) && before.UserID == after.UserID && before.OrganizationID == after.OrganizationID {
		return nil, nil // nearly every write
	}
	var old, now []Facet
	if before != nil {
		old = before.Facets()
	}
	if after != nil {
		now = after.Facets()
	}
	missing := func(from, in []Facet) (list []Facet) {
		for _, f := range from {
			if _, found := slices.BinarySearch(in, f); !found {
				list = append(list, f)
			}
		}
		return list
	}
	return missing(old, now), missing(now, old)
}
