package harness

import (
	"context"
	"net"
	"testing"
)

// StartProgram starts a program with only the given environment and waits until its address accepts connections.
// It ends with the test.
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
