package cli

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/client"
)

// ListKeys prints the API keys of the tenant, as the gateway knows them.
func (g *Gateway) ListKeys(ctx context.Context) error {
	return g.with(ctx, shortPatience, func(h *client.Client) error {
		keys, err := h.Keys(ctx)
		if err != nil {
			return err
		}
		if g.JSON {
			return printMessages(g.Terminal, keys)
		}
		rows := make([][]string, len(keys))
		for i, k := range keys {
			expires, used := "never", "not since the gateway started"
			if at := k.GetExpiresAt(); at > 0 {
				expires = time.UnixMilli(at).UTC().Format(time.RFC3339)
			}
			if at := k.GetLastUsedAt(); at > 0 {
				used = since(at) + " ago"
			}
			rows[i] = []string{Clean(k.GetName()), Clean(k.GetSubject()), strings.Join(k.GetScopes(), ","), expires, used}
		}
		return g.Table([]string{"NAME", "SUBJECT", "SCOPES", "EXPIRES", "LAST USED"}, rows)
	})
}
