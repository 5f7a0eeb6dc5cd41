package model

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits bound model calls, over all executors. 0 is no limit.
type Limits struct {
	RequestsPerMinute int64 // in any 60 seconds
	TokensPerMinute   int64 // in any 60 seconds, of requests and replies
	Concurrency       int64 // calls in progress
}

// MaxLimit is the largest number of a limit.
const MaxLimit = 1<<31 - 1

// ProviderLimits bound the calls of a provider. A call needs room within both: the limits of the
// provider, and those of its model.
type ProviderLimits struct {
	// Limits are of all models of the provider together.
	Limits
	// Models has the limits of single models, by name.
	Models map[string]Limits
}

// Governor has limits and the name by which executors share them.
type Governor struct {
	Name string
	Limits
}

// CanBeLimited reports whether the model of a provider may have limits: its full name has at most 256
// bytes of UTF-8, without control characters.
func CanBeLimited(provider, name string) bool {
	full := provider + "/" + name
	return len(full) <= 256 && utf8.ValidString(full) && !strings.ContainsFunc(full, unicode.IsControl)
}

// Governors returns the governors of a model of the provider: of the provider, and of the model. It
// returns none for a model without limits.
func (l ProviderLimits) Governors(provider, name string) (governors []Governor) {
	if l.Limits != (Limits{}) {
		governors = append(governors, Governor{provider, l.Limits})
	}
	if own := l.Models[name]; own != (Limits{}) {
		governors = append(governors, Governor{provider + "/" + name, own})
	}
	return governors
}
