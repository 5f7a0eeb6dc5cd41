package harness

import (
	"context"
	"net"
	"testing"
)

// NewProgram returns a program for the caller to start, with only the given environment. It is ready when its address
// accepts connections. It ends with the test.
func NewProgram(t testing.TB, name, address string, command []string, env ...string) *Process {
	t.Helper()
	p := &Process{
		Name: name, Address: address, t: t, path: command[0], args: command[1:], env: append(baseEnv(), env...),
		ready: func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	}
	t.Cleanup(p.cleanup)
	return p
}

// StartProgram starts a program without arguments and waits until it is ready: see NewProgram.
func StartProgram(t testing.TB, name, path, address string, env ...string) *Process {
	t.Helper()
	p := NewProgram(t, name, address, []string{path}, env...)
	p.Start()
	return p
}
