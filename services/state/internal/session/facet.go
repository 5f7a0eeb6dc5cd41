package session

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Facet is one property by which sessions are listed. A store keeps the facets in a table
// of their own, ordered by creation time. A session's row is rewritten with each step and
// needs no other index than its key. A store finds any combination of properties by walking
// one facet and looking the others up.
type Facet string

// AllSessions is the facet that every session has.
const AllSessions Facet = "all"

// UserFacet is the facet of a user's sessions.
func UserFacet(id string) Facet { return facet("user", id) }

// OrganizationFacet is the facet of an organization's sessions.
func OrganizationFacet(id string) Facet { return facet("organization", id) }

// AgentFacet is the facet of an agent's sessions.
func AgentFacet(agentType string) Facet { return facet("agent", agentType) }

// StatusFacet is the facet of the sessions with this status.
func StatusFacet(s Status) Facet { return facet("status", string(s)) }

// TagFacet is the facet of the sessions with a tag.
func TagFacet(tag string) Facet { return facet("tag", tag) }

// ParentFacet is the facet of a session's children; of the roots for an empty id.
func ParentFacet(id string) Facet { return facet("parent", id) }

// MetadataFacet is the facet of the sessions with a metadata pair. Keys have no control
// characters, so the separator is unambiguous.
func MetadataFacet(key, value string) Facet { return facet("metadata", key+"\x01"+value) }

// Rank orders facets by the expected number of sessions; the lowest is the most selective.
func (f Facet) Rank() int {
	kinds := []string{"user", "parent", "metadata", "tag", "organization", "agent", "status"}
	kind := strings.FieldsFunc(string(f), func(r rune) bool { return r == ':' || r == '#' })[0]
	if i := slices.Index(kinds, kind); i >= 0 {
		return i
	}
	return len(kinds) // AllSessions
}

// longestFacet is the longest value kept in plain text, in bytes. A longer one is replaced
// by its digest, since index keys are bounded.
const longestFacet = 256

func facet(kind, value string) Facet {
	if len(value) > longestFacet {
		digest := sha256.Sum256([]byte(value))
		return Facet(kind + "#" + hex.EncodeToString(digest[:]))
	}
	return Facet(kind + ":" + value)
}

// Facets returns the facets of a session, sorted and unique.
func (s *Session) Facets() []Facet {
	facets := []Facet{AllSessions, AgentFacet(s.AgentType), StatusFacet(s.Status), ParentFacet(s.ParentID)}
	if s.UserID != "" {
		facets = append(facets, UserFacet(s.UserID))
	}
	if s.OrganizationID != "" {
		facets = append(facets, OrganizationFacet(s.OrganizationID))
	}
	for _, tag := range s.Tags {
		facets = append(facets, TagFacet(tag))
	}
	for key, value := range s.Metadata {
		facets = append(facets, MetadataFacet(key, value))
	}
	slices.Sort(facets)
	return slices.Compact(facets)
}

// DiffFacets returns the facets that a session loses and gains by a change. before is nil for
// a new session, after for a deleted one.
func DiffFacets(before, after *Session) (lost, gained []Facet) {
	if before != nil && after != nil && before.Status == after.Status && slices.Equal(before.Tags, after.Tags) &&
		maps.Equal(before.Metadata, after.Metadata) && before.UserID == after.UserID && before.OrganizationID == after.OrganizationID {
		return nil, nil // the usual write
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
