package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// maxStoreKeys is how many keys one request reads.
const maxStoreKeys = 1000

func showStore(g *Gateway) *cobra.Command {
	r := agentv1.ReadStoreRequest{KeysOnly: true}
	var remove []string
	c := &cobra.Command{
		Use: "store SESSION [KEY…]", Short: "Show the private store of a session, or delete keys of it", Args: Arguments(1, 1+maxStoreKeys),
		Long: `List the keys of the private store of a session with their sizes, or show the values of keys. Tools and methods
write the store; clients and models do not see it. Needs the scope operate.`,
		Example: "  holdfast sessions store chat-1 --prefix orders/\n  holdfast sessions store chat-1 orders/o-1 | jq\n" +
			"  holdfast sessions store chat-1 --delete orders/o-1",
		RunE: func(c *cobra.Command, args []string) error {
			r.SessionId, r.Keys = args[0], args[1:]
			r.KeysOnly = len(r.GetKeys()) == 0
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				if len(remove) > 0 {
					return h.DeleteStoreEntries(c.Context(), r.GetSessionId(), remove...)
				}
				return g.printStore(c.Context(), h, &r)
			})
		},
	}
	c.Flags().StringVar(&r.Prefix, "prefix", "", "only keys with this beginning")
	c.Flags().StringVar(&r.After, "after", "", "begin after this key")
	c.Flags().Int32Var(&r.Limit, "limit", 0, "how many keys to list, at most 200; 0 means 50")
	c.Flags().StringArrayVar(&remove, "delete", nil, "delete a key; may be repeated")
	return c
}

// printStore prints the values of the named keys, or a page of keys with their sizes.
func (g *Gateway) printStore(ctx context.Context, h *client.Client, r *agentv1.ReadStoreRequest) error {
	page, err := h.ReadStore(ctx, r)
	switch {
	case err != nil:
		return err
	case g.JSON:
		return g.printMessage(page)
	}
	for _, e := range page.GetEntries() {
		if r.GetKeysOnly() {
			err = g.printf("%10d  %s\n", e.GetBytes(), Clean(e.GetKey()))
		} else {
			err = g.printf("%s\n", Clean(e.GetValue()))
		}
		if err != nil {
			return err
		}
	}
	if page.GetHasMore() && r.GetKeysOnly() {
		entries := page.GetEntries()
		return g.printf("more follow: --after %q\n", Clean(entries[len(entries)-1].GetKey()))
	}
	return nil
}
