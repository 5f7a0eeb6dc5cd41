package jetstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// noteName is the file in the embedded server's directory that tells one start
// what became of the process before.
const noteName = "holdfast.boot"

// note is what is written in it. It says whether the machine went down since the
// directory was used, which takes what the system had not yet written to the
// disk; the end of a process does not, however it ends.
//
//	the directory was   on this boot   on another boot
//	closed              nothing lost   nothing lost: Close syncs
//	not closed          nothing lost   the end may be lost, unless each record was
//	                                   synced before it was acknowledged
//
// A directory that was used on another machine, whose process was killed, looks
// like one whose machine went down.
type note struct {
	Boot   string `json:"boot"`   // of the machine; "": it does not say, and nothing is noted
	Open   bool   `json:"open"`   // a process uses the directory, or ended without closing it
	Strict bool   `json:"strict"` // that process syncs before each acknowledgement
	Lost   bool   `json:"lost"`   // the end may be lost, and the log was not begun anew since
}

// beginNote reads what the directory says, and notes that this process uses it.
// Nothing may be written to the log before.
func beginNote(directory, boot string, strict bool) (note, error) {
	if boot == "" {
		return note{}, nil
	}
	former, err := readNote(directory)
	if err != nil {
		return note{}, err
	}
	if former.Open {
		// What a killed process left to the system is from here on this one's.
		if err := syncAll(directory); err != nil {
			return note{}, err
		}
	}
	lost := former.Lost || former.Open && !former.Strict && former.Boot != boot
	n := note{Boot: boot, Open: true, Strict: strict, Lost: lost}
	return n, n.write(directory)
}

// readNote reads the note; the zero note when there is none, which is so before
// anything was acknowledged. One that cannot be read, by a disk that is damaged,
// says that the end may be lost.
func readNote(directory string) (note, error) {
	text, err := os.ReadFile(filepath.Join(directory, noteName))
	if errors.Is(err, fs.ErrNotExist) {
		return note{}, nil
	}
	if err != nil {
		return note{}, err
	}
	var n note
	if json.Unmarshal(text, &n) != nil {
		n = note{Lost: true}
	}
	return n, nil
}

// end notes that the directory is closed, after it has had the disk keep what is
// in it: the server closes its files without.
func (n note) end(directory string) error {
	if n.Boot == "" {
		return nil
	}
	if err := syncAll(directory); err != nil {
		return err
	}
	n.Open = false
	return n.write(directory)
}

// write replaces the note. When it returns, the disk keeps it.
func (n note) write(directory string) error {
	if n.Boot == "" {
		return nil
	}
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	name := filepath.Join(directory, noteName)
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	if err := syncFile(name + ".new"); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	return syncFile(directory)
}

// syncAll has the disk keep all files and folders below the directory.
func syncAll(directory string) error {
	return filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || entry.Type().IsRegular()) {
			err = syncFile(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// syncFile has the disk keep a file, or which names a folder holds.
func syncFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	return nil
}
