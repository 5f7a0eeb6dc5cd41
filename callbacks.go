package holdfast

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// callbackKeyFile is the file in the folder of Options.Data with the secret that signs the URLs for results by callback.
const callbackKeyFile = "callback.key"

// configureCallbacks lets tools answer later without configuration: it makes a secret, and takes the address on which the
// gateway listens for the public one. It makes no secret for runtimes that share their database and their log: they need the
// same one.
func (r *Runtime) configureCallbacks() error {
	c := &r.settings
	if r.listener != nil && !isUnspecified(r.listener.Addr()) {
		c.Executor.PublicURL = cmp.Or(c.Executor.PublicURL, r.URL())
	}
	if c.State.CallbackKeys != "" || c.State.Grants.Secret != "" {
		return nil
	}
	switch {
	case c.State.Store == "memory":
		c.State.CallbackKeys = newSecret()
	case c.needsFolder():
		secret, err := readOrMakeSecret(filepath.Join(c.data, callbackKeyFile))
		if err != nil {
			return fmt.Errorf("the secret of callbacks: %w", err)
		}
		c.State.CallbackKeys = secret
	}
	return nil
}

// isUnspecified reports whether the address is that of all interfaces, which is no address of a URL.
func isUnspecified(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsUnspecified()
}

// newSecret returns 52 random letters and digits.
func newSecret() string { return rand.Text() + rand.Text() }

// readOrMakeSecret reads the file of a secret. It makes a missing one, in one piece. Nobody else uses the folder meanwhile.
func readOrMakeSecret(path string) (string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the folder is the operator's
	if !errors.Is(err, fs.ErrNotExist) {
		return string(text), err
	}
	secret, draft := newSecret(), path+".new"
	if err := os.WriteFile(draft, []byte(secret), 0o600); err != nil {
		return "", err
	}
	return secret, os.Rename(draft, path)
}
