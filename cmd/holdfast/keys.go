package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway"
)

// maxTenantBytes is the common limit of ids.
const maxTenantBytes = 256

// keyEntry is an entry of the gateway's keys file.
type keyEntry struct {
	Name    string     `json:"name" yaml:"name"`
	Tenant  string     `json:"tenant" yaml:"tenant"`
	SHA256  string     `json:"sha256" yaml:"sha256"`
	Subject string     `json:"subject,omitempty" yaml:"subject,omitempty"`
	Scopes  []string   `json:"scopes" yaml:"scopes,omitempty,flow"`
	Expires *time.Time `json:"expires,omitempty" yaml:"expires,omitempty"`
}

// newKeys returns the commands on API keys.
func newKeys(t *cli.Terminal) *cobra.Command {
	return cli.Group("keys", "Manage the API keys in a gateway's file",
		newKeyCommand(t), listKeysCommand(t), revokeKeyCommand(t), rotateKeyCommand(t))
}

// keyFlags are the flags of all commands on keys.
type keyFlags struct{ tenant, name, file string }

func (f *keyFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.tenant, "tenant", "", "the tenant that the key speaks for")
	c.Flags().StringVar(&f.name, "name", "default", "what the key is for")
	c.Flags().StringVar(&f.file, "file", "", "the keys file of the gateway")
}

// checkTenant gives Invalid (TENANT_MISSING, TENANT_INVALID).
func (f keyFlags) checkTenant() error {
	tenant := f.tenant
	if tenant == "" {
		return fault.New(fault.Invalid, "TENANT_MISSING", "say whom the key is for: --tenant NAME")
	}
	if len(tenant) > maxTenantBytes || !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, unicode.IsControl) {
		return fault.New(fault.Invalid, "TENANT_INVALID", "a tenant is 1 to %d bytes of UTF-8 without control characters", maxTenantBytes)
	}
	return nil
}

func newKeyCommand(t *cli.Terminal) *cobra.Command {
	var f keyFlags
	var entry keyEntry
	var validity time.Duration
	c := &cobra.Command{
		Use: "new --tenant NAME", Short: "Make an API key", Args: cli.NoArguments,
		Long: `Make an API key. The key is printed once; its hash goes to the file, or is printed as well. Gateways take
over changes of the file within seconds. The scope operate is for servers: it writes state and acts
for all users. A key with a subject and without operate reaches only that user's sessions.`,
		RunE: func(*cobra.Command, []string) error { return newKey(f, entry, validity, t.Out) },
	}
	f.add(c)
	c.Flags().DurationVar(&validity, "expires", 0, "how long the key is valid, such as 720h; 0 for ever")
	c.Flags().StringSliceVar(&entry.Scopes, "scopes", gateway.DefaultScopes(),
		"what the key may do: a list of read, chat, approve, operate and admin")
	c.Flags().StringVar(&entry.Subject, "subject", "",
		"the user of the key, for a key that reaches only the sessions of that user; empty for all users")
	return c
}

// newKey creates a key with the properties of the entry, and appends its hash to the keys file. Invalid (SCOPE_UNKNOWN).
func newKey(f keyFlags, entry keyEntry, validity time.Duration, stdout io.Writer) error {
	if err := f.checkTenant(); err != nil {
		return err
	}
	key, hash := gateway.NewAPIKey()
	entry.Name = f.name
	entry.Tenant = f.tenant
	entry.SHA256 = hash
	if err := gateway.CheckScopes(entry.Scopes); err != nil {
		return err
	}
	if validity > 0 {
		entry.Expires = expiry(validity)
	}
	text, err := yaml.Marshal([]keyEntry{entry})
	if err != nil {
		return fmt.Errorf("write the key's entry: %w", err)
	}
	if f.file == "" {
		_, err = fmt.Fprintf(stdout, "key (shown once): %s\n\nfor the keys file:\n%s", key, text)
		return err
	}
	if err := appendFile(f.file, text); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", key)
	return err
}

// expiry returns the time after the validity, in seconds.
func expiry(validity time.Duration) *time.Time {
	at := time.Now().Add(validity).UTC().Truncate(time.Second)
	return &at
}

func listKeysCommand(t *cli.Terminal) *cobra.Command {
	var file string
	g := cli.NewGateway(t)
	c := &cobra.Command{
		Use: "list", Short: "Show the keys of a file, or those of the tenant at the gateway with their last use", Args: cli.NoArguments,
		Long: `Show API keys without their secrets: those of a file, or without --file those of the tenant at the gateway. The
gateway also says when it has admitted each key last. Asking the gateway needs the scope admin.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return g.ListKeys(c.Context())
			}
			return listKeys(t, file)
		},
	}
	g.AddFlags(c)
	c.Flags().StringVar(&file, "file", "", "the keys file of the gateway")
	return c
}

// listKeys prints the keys of a file, without secrets.
func listKeys(t *cli.Terminal, file string) error {
	entries, err := readKeys(file)
	if err != nil {
		return err
	}
	for i := range entries {
		if len(entries[i].Scopes) == 0 {
			entries[i].Scopes = gateway.DefaultScopes()
		}
	}
	if t.JSON {
		return t.PrintJSON(entries)
	}
	rows := make([][]string, len(entries))
	for i, e := range entries {
		expires := "never"
		if e.Expires != nil {
			expires = e.Expires.Format(time.RFC3339)
		}
		rows[i] = []string{e.Name, e.Tenant, e.Subject, strings.Join(e.Scopes, ","), fmt.Sprintf("%.12s", e.SHA256), expires}
	}
	return t.Table([]string{"NAME", "TENANT", "SUBJECT", "SCOPES", "SHA256", "EXPIRES"}, rows)
}

func revokeKeyCommand(t *cli.Terminal) *cobra.Command {
	var f keyFlags
	c := &cobra.Command{
		Use: "revoke --tenant NAME --file FILE", Short: "Remove the keys of a name; gateways refuse them within seconds",
		Args: cli.NoArguments,
		Long: "Remove the keys of a name and a tenant from a file. Gateways refuse them within seconds. The file loses its comments.",
		RunE: func(*cobra.Command, []string) error {
			return changeKeys(f, t.Out, func(entries []keyEntry, isNamed func(keyEntry) bool) ([]keyEntry, string) {
				return slices.DeleteFunc(entries, isNamed), ""
			})
		},
	}
	f.add(c)
	return c
}

func rotateKeyCommand(t *cli.Terminal) *cobra.Command {
	var f keyFlags
	var grace time.Duration
	c := &cobra.Command{
		Use: "rotate --tenant NAME --file FILE", Short: "Make the successor of a key, and let the key expire", Args: cli.NoArguments,
		Long: "Add a key with the properties of the named ones, which expire after the grace, and print it. The file loses its comments.",
		RunE: func(*cobra.Command, []string) error {
			return changeKeys(f, t.Out, func(entries []keyEntry, isNamed func(keyEntry) bool) ([]keyEntry, string) {
				return rotated(entries, isNamed, grace)
			})
		},
	}
	f.add(c)
	c.Flags().DurationVar(&grace, "grace", day, "how long the former key stays valid")
	return c
}

// rotated adds a key with the properties of the named ones, which expire after the grace.
func rotated(entries []keyEntry, isNamed func(keyEntry) bool, grace time.Duration) (changed []keyEntry, key string) {
	key, hash := gateway.NewAPIKey()
	next := entries[slices.IndexFunc(entries, isNamed)]
	next.SHA256 = hash
	next.Expires = nil
	for i, e := range entries {
		if at := expiry(grace); isNamed(e) && (e.Expires == nil || e.Expires.After(*at)) {
			entries[i].Expires = at
		}
	}
	return append(entries, next), key
}

const day = 24 * time.Hour

// changeKeys changes the keys of a file. isNamed selects those of the flags; there is at least one. Invalid
// (KEY_NOT_FOUND, LAST_KEY).
func changeKeys(
	f keyFlags, stdout io.Writer, change func(entries []keyEntry, isNamed func(keyEntry) bool) (changed []keyEntry, key string),
) error {
	if err := f.checkTenant(); err != nil {
		return err
	}
	entries, err := readKeys(f.file)
	if err != nil {
		return err
	}
	isNamed := func(e keyEntry) bool { return e.Name == f.name && e.Tenant == f.tenant }
	if !slices.ContainsFunc(entries, isNamed) {
		return fault.New(fault.NotFound, "KEY_NOT_FOUND",
			"%s has no key %q of tenant %q; \"holdfast keys list\" shows its keys", f.file, f.name, f.tenant)
	}
	changed, key := change(entries, isNamed)
	if len(changed) == 0 {
		return fault.New(fault.Conflict, "LAST_KEY",
			"%s would have no key, and gateways refuse such a file: make another key first", f.file)
	}
	text, err := yaml.Marshal(changed)
	if err != nil {
		return fmt.Errorf("write the keys file: %w", err)
	}
	// Written in place: a container may see the file alone, and would not see another one with its name.
	if err := os.WriteFile(f.file, text, keysFileMode); err != nil {
		return fmt.Errorf("write the keys file: %w", err)
	}
	if key != "" {
		_, err = fmt.Fprintln(stdout, key)
	}
	return err
}

// keysFileMode is the mode of a new file. Who reads it knows the names, tenants and scopes of all keys. A gateway under another
// account needs the file to be given to it.
const keysFileMode = 0o600

// readKeys reads a keys file. Invalid (FILE_MISSING, KEYS_INVALID).
func readKeys(file string) ([]keyEntry, error) {
	if file == "" {
		return nil, fault.New(fault.Invalid, "FILE_MISSING", "say which keys file: --file FILE")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Invalid, "FILE_MISSING", "%v", err)
	}
	var entries []keyEntry
	if err := yaml.UnmarshalWithOptions(text, &entries, yaml.DisallowUnknownField()); err != nil {
		return nil, fault.New(fault.Invalid, "KEYS_INVALID", "%s: %v", file, err)
	}
	return entries, nil
}

func appendFile(name string, entry []byte) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_RDWR, keysFileMode)
	if err != nil {
		return fmt.Errorf("open the keys file: %w", err)
	}
	if err = endLine(f); err == nil {
		_, err = f.Write(entry)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to the keys file: %w", err)
	}
	return nil
}

// endLine adds a missing newline at the end of a file.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}
