package store

// Schema says which migrations a database has.
type Schema struct {
	Server  string // the database program with its version; empty if there is no database yet
	Applied int    // the newest applied migration; 0 for none
	Known   int    // the newest migration that this release knows
}
