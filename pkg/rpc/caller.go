package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// callers finds the role of a caller by its token and its certificate.
type callers struct {
	tokens *watched[tokens] // nil without a file of tokens
	shared *digest          // of the one token of all services; nil if tokens are accepted, or none is required
}

func newCallers(s Security, log *slog.Logger) (c callers, err error) {
	if c.tokens, err = watchTokens(s.TokensFile, log); err != nil {
		return c, err
	}
	if c.tokens == nil && s.Token != "" {
		sum := digest(sha256.Sum256([]byte(s.Token)))
		c.shared = &sum
	}
	return c, nil
}

// role returns the role that the token and the certificate of the caller name, or RoleAny if neither names one.
// Unauthenticated (BAD_TOKEN, ROLE_UNKNOWN), Denied (ROLE_REFUSED): they name different roles.
func (c callers) role(ctx context.Context) (Role, error) {
	byToken, err := c.tokenRole(ctx)
	if err != nil {
		return "", err
	}
	byCertificate, err := certificateRole(ctx)
	switch {
	case err != nil:
		return "", err
	case byCertificate == RoleAny, byCertificate == byToken:
		return byToken, nil
	case byToken == RoleAny:
		return byCertificate, nil
	}
	return "", fault.New(fault.Denied, "ROLE_REFUSED", "the token has the role %s, and the certificate the role %s", byToken, byCertificate)
}

// tokenRole compares digests, so its duration reveals nothing about a token or its length.
func (c callers) tokenRole(ctx context.Context) (Role, error) {
	if c.tokens == nil && c.shared == nil {
		return RoleAny, nil
	}
	for _, header := range metadata.ValueFromIncomingContext(ctx, tokenHeader) {
		token, bearer := strings.CutPrefix(header, tokenScheme)
		if !bearer {
			continue
		}
		sum := digest(sha256.Sum256([]byte(token)))
		if c.tokens != nil {
			if role, ok := c.tokens.get()[sum]; ok {
				return role, nil
			}
		} else if subtle.ConstantTimeCompare(sum[:], c.shared[:]) == 1 {
			return RoleAny, nil
		}
	}
	return "", fault.New(fault.Unauthenticated, "BAD_TOKEN", "the service token is missing or wrong")
}

// certificateRole returns the role in the SPIFFE ID of the client's certificate, or RoleAny if it has none of ours.
// Unauthenticated (ROLE_UNKNOWN). The handshake has verified the certificate.
func certificateRole(ctx context.Context) (Role, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return RoleAny, nil
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return RoleAny, nil
	}
	for _, id := range info.State.PeerCertificates[0].URIs {
		if role, ok := spiffeRole(id); ok {
			if !slices.Contains(roles, role) {
				return "", fault.New(fault.Unauthenticated, "ROLE_UNKNOWN", "the certificate names the role %.20q; there are %v", role, roles)
			}
			return role, nil
		}
	}
	return RoleAny, nil
}

// spiffeRole returns the role of a SPIFFE ID: spiffe://<trust domain>/holdfast/<role>.
func spiffeRole(id *url.URL) (Role, bool) {
	name, ok := strings.CutPrefix(id.Path, "/holdfast/")
	return Role(name), ok && id.Scheme == "spiffe"
}
