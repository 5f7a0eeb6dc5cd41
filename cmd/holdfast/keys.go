package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway"
)

// keyEntry is an entry of the gateway's keys file.
type keyEntry struct {
	Name   string `yaml:"name"`
	Tenant string `yaml:"tenant"`
	SHA256 string `yaml:"sha256"`
}

// newKey makes a key for a tenant and appends its hash to the keys file.
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
	// Everybody may read hashes of random keys, and the gateway, which may run as
	// another user, has to.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // see above
	if err != nil {
		return fmt.Errorf("open the keys file: %w", err)
	}
	_, err = f.Write(entry)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to the keys file: %w", err)
	}
	return nil
}

// parse refuses arguments that no flag takes.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fault.New(fault.Invalid, "FLAG_INVALID", "%v", err)
	}
	if flags.NArg() > 0 {
		return fault.New(fault.Invalid, "ARGUMENT_UNKNOWN", "%s takes no argument %q", flags.Name(), flags.Arg(0))
	}
	return nil
}
