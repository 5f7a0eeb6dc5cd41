//go:build !unix

package embedded

// lock does nothing on systems without advisory locks.
func lock(string) (release func(), err error) { return func() {}, nil }
