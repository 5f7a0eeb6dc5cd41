//go:build !unix

package jetstream

// lock does nothing where the system has no advisory locks.
func lock(string) (release func(), err error) { return func() {}, nil }
