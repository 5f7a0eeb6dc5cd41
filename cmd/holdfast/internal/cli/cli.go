// Package cli has the commands of holdfast that look into a running system through its gateway. It knows the public
// API only.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The variables of the commands on a gateway.
const (
	URLVariable = "HOLDFAST_URL"
	KeyVariable = "HOLDFAST_API_KEY"
)

// defaultURL is where a gateway listens unless it is configured otherwise.
const defaultURL = "http://127.0.0.1:8080"

// Terminal is what commands read and write.
type Terminal struct {
	In       io.Reader
	Out, Err io.Writer
	Environ  []string
	Colors   bool // Out shows colours
	Asks     bool // a person answers questions at In
	JSON     bool // the flag --json
}

// Lookup returns the value of an environment variable.
func (t *Terminal) Lookup(name string) (string, bool) {
	for _, line := range t.Environ {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// AddJSON gives a command the flag --json.
func (t *Terminal) AddJSON(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Flags().BoolVar(&t.JSON, "json", false, "print JSON")
	}
}

// Group returns a command that only has subcommands. Without one it prints its help. Invalid (COMMAND_UNKNOWN).
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	group.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		similar := ""
		if names := c.SuggestionsFor(args[0]); len(names) > 0 {
			similar = fmt.Sprintf("did you mean %q? ", names[0])
		}
		return fault.New(fault.Invalid, "COMMAND_UNKNOWN",
			"there is no command %q; %s%q lists the commands", c.CommandPath()+" "+args[0], similar, c.CommandPath()+" --help")
	}
	group.SuggestionsMinimumDistance = 2
	group.AddCommand(commands...)
	return group
}

// NoArguments refuses arguments. Invalid (ARGUMENT_UNKNOWN).
func NoArguments(c *cobra.Command, args []string) error { return Arguments(0, 0)(c, args) }

// Arguments demands a number of arguments. Invalid (ARGUMENT_MISSING, ARGUMENT_UNKNOWN).
func Arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fault.New(fault.Invalid, "ARGUMENT_MISSING", "usage: %s", c.UseLine())
		case len(args) > most:
			return fault.New(fault.Invalid, "ARGUMENT_UNKNOWN",
				"%s takes no argument %q; usage: %s", c.CommandPath(), args[most], c.UseLine())
		}
		return nil
	}
}

// Gateway is the gateway that the flags of a command name.
type Gateway struct {
	*Terminal
	url, key   string
	onlyAnswer bool // Out is for the answer of an agent alone
}

// NewGateway returns the gateway of the environment. Flags may name another one.
func NewGateway(t *Terminal) *Gateway { return &Gateway{Terminal: t} }

// AddFlags gives commands the flags that name the gateway, and --json.
func (g *Gateway) AddFlags(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Flags().StringVar(&g.url, "url", "", "the gateway (default $"+URLVariable+" or "+defaultURL+")")
		c.Flags().StringVar(&g.key, "key", "", "an API key or a token (default $"+KeyVariable+")")
	}
	g.AddJSON(commands...)
}

// URL returns the address of the gateway. Invalid (URL_INVALID).
func (g *Gateway) URL() (string, error) {
	address := g.url
	if address == "" {
		address, _ = g.Lookup(URLVariable)
	}
	if address == "" {
		address = defaultURL
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return "", fault.New(fault.Invalid, "URL_INVALID", "the address of the gateway must be like %s", defaultURL)
	}
	return strings.TrimSuffix(address, "/"), nil
}

// Key returns the credential, or "".
func (g *Gateway) Key() string {
	if g.key != "" {
		return g.key
	}
	key, _ := g.Lookup(KeyVariable)
	return key
}

// How long commands retry during an outage of the gateway.
const (
	shortPatience = 2 * time.Second  // of a command that reads or writes something
	longPatience  = 30 * time.Second // of a command that follows a run
)

// with calls f with a client of the gateway.
func (g *Gateway) with(ctx context.Context, patience time.Duration, f func(*client.Client) error) error {
	address, err := g.URL()
	if err != nil {
		return err
	}
	// Connections of this command alone end with it.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	err = f(client.New(client.Config{URL: address, Key: g.Key(), Patience: patience, HTTP: &http.Client{Transport: transport}}))
	return explain(ctx, err, address)
}

// explain adds what the caller can do about an error of the gateway.
func explain(ctx context.Context, err error, address string) error {
	f, ok := fault.From(err)
	switch {
	case !ok || ctx.Err() != nil:
		return err
	case f.Kind == fault.Unavailable && f.Reason == "UNAVAILABLE":
		return fault.New(f.Kind, "GATEWAY_UNREACHABLE",
			"no gateway answers at %s: start one, or name another with --url or %s", address, URLVariable)
	case f.Reason == "UNIMPLEMENTED":
		return fault.New(fault.Unavailable, "GATEWAY_UNKNOWN",
			"%s answers, but not as a gateway of this version: name another address with --url or %s", address, URLVariable)
	case f.Kind == fault.Unauthenticated:
		return fault.New(f.Kind, f.Reason, "%s; give an API key with --key or %s", f.Detail, KeyVariable)
	}
	return err
}

// ErrFailed ends a command that has already printed what failed.
var ErrFailed = errors.New("failed")
