package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway"
)

// maxTenantBytes is the common limit of ids.
const maxTenantBytes = 256

// keyEntry is an entry of the gateway's keys file.
type keyEntry struct {
	Name           string     `yaml:"name"`
	Tenant         string     `yaml:"tenant"`
	SHA256         string     `yaml:"sha256"`
	SystemMessages bool       `yaml:"systemMessages,omitempty"`
	Expires        *time.Time `yaml:"expires,omitempty"`
}

// keysCommands are the commands on API keys.
var keysCommands = map[string]func(args []string, stdout io.Writer) error{
	"new": newKey, "list": listKeys, "revoke": revokeKey, "rotate": rotateKey,
}

// keyFlags are the flags of all commands on keys.
type keyFlags struct {
	*flag.FlagSet
	tenant, name, file *string
}

func newKeyFlags(command string, stdout io.Writer) keyFlags {
	flags := flag.NewFlagSet("keys "+command, flag.ContinueOnError)
	flags.SetOutput(stdout)
	return keyFlags{
		flags, flags.String("tenant", "", "the tenant that the key speaks for"), flags.String("name", "default", "what the key is for"),
		flags.String("file", "", "the keys file of the gateway"),
	}
}

// checkTenant gives Invalid (TENANT_MISSING, TENANT_INVALID).
func (f keyFlags) checkTenant() error {
	tenant := *f.tenant
	if tenant == "" {
		return fault.New(fault.Invalid, "TENANT_MISSING", "say whom the key is for: --tenant NAME")
	}
	if len(tenant) > maxTenantBytes || !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, unicode.IsControl) {
		return fault.New(fault.Invalid, "TENANT_INVALID", "a tenant is 1 to %d bytes of UTF-8 without control characters", maxTenantBytes)
	}
	return nil
}

// newKey creates a key for a tenant and appends its hash to the keys file.
func newKey(args []string, stdout io.Writer) error {
	flags := newKeyFlags("new", stdout)
	validity := flags.Duration("expires", 0, "how long the key is valid, such as 720h; 0 for ever")
	if err := parse(flags.FlagSet, args); err != nil {
		return err
	}
	if err := flags.checkTenant(); err != nil {
		return err
	}
	key, hash := gateway.NewAPIKey()
	entry := keyEntry{Name: *flags.name, Tenant: *flags.tenant, SHA256: hash}
	if *validity > 0 {
		entry.Expires = expiry(*validity)
	}
	text, err := yaml.Marshal([]keyEntry{entry})
	if err != nil {
		return fmt.Errorf("write the key's entry: %w", err)
	}
	if *flags.file == "" {
		_, err = fmt.Fprintf(stdout, "key (shown once): %s\n\nfor the keys file:\n%s", key, text)
		return err
	}
	if err := appendFile(*flags.file, text); err != nil {
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

// listKeys prints the keys of a file, without secrets.
func listKeys(args []string, stdout io.Writer) error {
	flags := newKeyFlags("list", stdout)
	if err := parse(flags.FlagSet, args); err != nil {
		return err
	}
	entries, err := readKeys(*flags.file)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tTENANT\tSHA256\tEXPIRES") // Flush returns the error
	for _, e := range entries {
		expires := "never"
		if e.Expires != nil {
			expires = e.Expires.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.12s\t%s\n", e.Name, e.Tenant, e.SHA256, expires)
	}
	return table.Flush()
}

// revokeKey removes the keys of a name and a tenant from a file. Gateways refuse them within seconds.
func revokeKey(args []string, stdout io.Writer) error {
	flags := newKeyFlags("revoke", stdout)
	return changeKeys(flags, args, func(entries []keyEntry, isNamed func(keyEntry) bool) ([]keyEntry, string) {
		return slices.DeleteFunc(entries, isNamed), ""
	})
}

// rotateKey adds a key with the properties of the named ones, which expire after the grace. It prints the new key.
func rotateKey(args []string, stdout io.Writer) error {
	flags := newKeyFlags("rotate", stdout)
	grace := flags.Duration("grace", day, "how long the former key stays valid")
	return changeKeys(flags, args, func(entries []keyEntry, isNamed func(keyEntry) bool) ([]keyEntry, string) {
		key, hash := gateway.NewAPIKey()
		next := entries[slices.IndexFunc(entries, isNamed)]
		next.SHA256, next.Expires = hash, nil
		for i, e := range entries {
			if at := expiry(*grace); isNamed(e) && (e.Expires == nil || e.Expires.After(*at)) {
				entries[i].Expires = at
			}
		}
		return append(entries, next), key
	})
}

const day = 24 * time.Hour

// changeKeys changes the keys of a file. isNamed selects those of the flags; there is at least one. Invalid
// (KEY_NOT_FOUND, LAST_KEY).
func changeKeys(flags keyFlags, args []string, change func(entries []keyEntry, isNamed func(keyEntry) bool) (changed []keyEntry, key string)) error {
	if err := parse(flags.FlagSet, args); err != nil {
		return err
	}
	if err := flags.checkTenant(); err != nil {
		return err
	}
	entries, err := readKeys(*flags.file)
	if err != nil {
		return err
	}
	isNamed := func(e keyEntry) bool { return e.Name == *flags.name && e.Tenant == *flags.tenant }
	if !slices.ContainsFunc(entries, isNamed) {
		return fault.New(fault.NotFound, "KEY_NOT_FOUND", "%s has no key %q of tenant %q; \"holdfast keys list\" shows its keys", *flags.file, *flags.name, *flags.tenant)
	}
	changed, key := change(entries, isNamed)
	if len(changed) == 0 {
		return fault.New(fault.Conflict, "LAST_KEY", "%s would have no key, and gateways refuse such a file: make another key first", *flags.file)
	}
	text, err := yaml.Marshal(changed)
	if err != nil {
		return fmt.Errorf("write the keys file: %w", err)
	}
	// Written in place: a container may see the file alone, and would not see another one with its name.
	if err := os.WriteFile(*flags.file, text, keysFileMode); err != nil {
		return fmt.Errorf("write the keys file: %w", err)
	}
	if key != "" {
		_, err = fmt.Fprintln(flags.Output(), key)
	}
	return err
}

// keysFileMode lets others read: hashes of random keys are public, and the gateway may run under another account.
const keysFileMode = 0o644

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

// parse parses flags and refuses other arguments.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err // the flags have been printed
	} else if err != nil {
		return fault.New(fault.Invalid, "FLAG_INVALID", "%v", err)
	}
	if flags.NArg() > 0 {
		return fault.New(fault.Invalid, "ARGUMENT_UNKNOWN", "%s takes no argument %q", flags.Name(), flags.Arg(0))
	}
	return nil
}
