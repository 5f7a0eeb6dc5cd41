package rpc

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
)

// tokensEvery is the time between two looks at the file of tokens. It bounds how long a removed token still works.
const tokensEvery = time.Second

type digest [sha256.Size]byte

// tokens are the roles of the accepted tokens, by digest. Their look-up takes no secret: who can choose a digest to
// compare with has its token.
type tokens map[digest]Role

// parseTokens reads a file of tokens: a role and the SHA-256 of a token in hex per line, comments after #.
// Invalid (TOKENS_INVALID).
func parseTokens(text string) (tokens, error) {
	t := tokens{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, tokensFault("line %d: write a role and the SHA-256 of a token in hex", number)
		}
		role := Role(fields[0])
		if !slices.Contains(roles, role) {
			return nil, tokensFault("line %d: there is no role %.20q; there are %v", number, role, roles)
		}
		sum, err := hex.DecodeString(fields[1])
		if err != nil || len(sum) != sha256.Size {
			return nil, tokensFault("line %d: a SHA-256 has 64 hex digits, such as the output of \"printf %%s <token> | sha256sum\"", number)
		}
		if _, ok := t[digest(sum)]; ok {
			return nil, tokensFault("line %d: the token has an earlier line; a token has one role", number)
		}
		t[digest(sum)] = role
	}
	if len(t) == 0 {
		return nil, tokensFault("it has no tokens, so every call would be refused")
	}
	return t, nil
}

// watchTokens reads the file of tokens, and follows it. It returns nil without a file. Invalid (TOKENS_INVALID).
func watchTokens(file string, log *slog.Logger) (*watched[tokens], error) {
	if file == "" {
		return nil, nil
	}
	return watch([]string{file}, tokensEvery, log, func() (tokens, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, tokensFault("%v", err)
		}
		return parseTokens(string(text))
	})
}
