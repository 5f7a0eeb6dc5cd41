package store

import (
	"io/fs"
	"path"
)

// Schema says which migrations a database has.
type Schema struct {
	Server  string      // the database program with its version; empty if there is no database yet
	Applied int         // the newest applied migration; 0 for none
	Known   int         // the newest migration that this release knows
	Missing []Migration // those that are to be applied, in their order
}

// Migration is a step of the schema. Each is applied in a transaction of its own.
type Migration struct {
	Name string // such as 0001_sessions.sql
	SQL  string
}

// WithMissing adds the files of migrations/ that the database has not.
func (s Schema) WithMissing(files fs.FS) (Schema, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return Schema{}, err
	}
	s.Known = len(names)
	for _, name := range names[min(s.Applied, s.Known):] {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return Schema{}, err
		}
		s.Missing = append(s.Missing, Migration{Name: path.Base(name), SQL: string(text)})
	}
	return s, nil
}
