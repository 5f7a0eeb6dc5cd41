//go:build !unix

package holdfast

import "os"

// tryLock does nothing: the databases detect a second process.
func tryLock(*os.File) error { return nil }
