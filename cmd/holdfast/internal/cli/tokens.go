package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// maxTTL is the longest time that fits the API, in seconds. Gateways have their own limit.
const maxTTL = 10 * 365 * 24 * time.Hour

// Tokens returns the commands on tokens for browsers.
func Tokens(g *Gateway) *cobra.Command {
	var r agentv1.CreateTokenRequest
	var ttl time.Duration
	create := &cobra.Command{
		Use: "create --subject USER", Short: "Mint a short-lived token that reaches the sessions of one user", Args: NoArguments,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if r.Subject == "" {
				return fault.New(fault.Invalid, "SUBJECT_MISSING", "say whom the token is for: --subject USER")
			}
			if ttl < time.Second || ttl > maxTTL {
				return fault.New(fault.Invalid, "TTL_INVALID", "--ttl must be 1s or more")
			}
			r.TtlSeconds = int32(ttl / time.Second)
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				created, err := h.CreateToken(c.Context(), &r)
				switch {
				case err != nil:
					return err
				case g.JSON:
					return g.printMessage(created)
				}
				return g.printf("%s\n", created.GetToken())
			})
		},
	}
	create.Flags().StringVar(&r.Subject, "subject", "", "the user of the token")
	create.Flags().StringSliceVar(&r.Scopes, "scopes", nil,
		"what the token may do, at most what the key may; read, chat and approve without")
	create.Flags().DurationVar(&ttl, "ttl", 15*time.Minute, "how long the token is valid")
	g.AddFlags(create)
	return Group("tokens", "Mint tokens for browsers", create)
}
