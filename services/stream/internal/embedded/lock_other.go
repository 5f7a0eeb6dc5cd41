//go:build !unix

package embedded

// lock does nothing where the system has no advisory locks.
func lock(string) (release func(), err error) { return func() {}, nil }
