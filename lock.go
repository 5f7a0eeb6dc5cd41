package holdfast

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// lockFolder creates the data folder and locks it against other runtimes, of any process. Conflict (DATA_IN_USE).
func lockFolder(name string) (unlock func() error, err error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(name, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data folder: %w", err)
	}
	if err := tryLock(lock); err != nil {
		_ = lock.Close()
		return nil, fault.New(fault.Conflict, "DATA_IN_USE",
			"another Holdfast uses %s: stop it, or choose another folder with Options.Data", name)
	}
	return lock.Close, nil
}
