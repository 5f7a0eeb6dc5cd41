package harness

import (
	"context"
	"net"
	"testing"
)

// StartProgram starts a program of the test's own and waits until somebody listens on
// the address. It gets the variables and nothing else of the environment, and ends with
// the test.
func StartProgram(t testing.TB, name, path, address string, env ...string) *Process {
	t.Helper()
	p := &Process{
		Name: name, Address: address, t: t, path: path, env: append(baseEnv(), env...),
		ready: func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	}
	t.Cleanup(p.cleanup)
	p.Start()
	return p
}
