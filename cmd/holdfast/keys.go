package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
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
	Name   string `yaml:"name"`
	Tenant string `yaml:"tenant"`
	SHA256 string `yaml:"sha256"`
}

// newKey creates a key for a tenant and appends its hash to the keys file.
func newKey(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("keys new", flag.ContinueOnError)
	flags.SetOutput(stdout)
	tenant := flags.String("tenant", "", "the tenant that the key speaks for")
	name := flags.String("name", "default", "what the key is for")
	file := flags.String("file", "", "the keys file to append its hash to")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *tenant == "" {
		return fault.New(fault.Invalid, "TENANT_MISSING", "say whom the key is for: --tenant NAME")
	}
	if len(*tenant) > maxTenantBytes || !utf8.ValidString(*tenant) || strings.ContainsFunc(*tenant, unicode.IsControl) {
		return fault.New(fault.Invalid, "TENANT_INVALID", "a tenant is 1 to %d bytes of UTF-8 without control characters", maxTenantBytes)
	}
	key, hash := gateway.NewAPIKey()
	entry, err := yaml.Marshal([]keyEntry{{Name: *name, Tenant: *tenant, SHA256: hash}})
	if err != nil {
		return fmt.Errorf("write the key's entry: %w", err)
	}
	if *file == "" {
		_, err = fmt.Fprintf(stdout, "key (shown once): %s\n\nfor the keys file:\n%s", key, entry)
		return err
	}
	if err := appendFile(*file, entry); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", key)
	return err
}

func appendFile(name string, entry []byte) error {
	// Hashes of random keys are public. The gateway may run under another account and has to read them.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644) //nolint:gosec // see above
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
