package table

// Description is a table without its structs.
type Description struct {
	Name    string
	Columns map[string]Kind
}

// Descriptions returns every described table.
func Descriptions() []Description {
	return []Description{
		describe(
			&Sessions,
		), describe(&States), describe(&Runs), describe(&WaitingInputs), describe(&Messages), describe(&Plans), describe(&Results),
		describe(
			&Checkpoints,
		), describe(&UsageEntries), describe(&Calls), describe(&SubSessions), describe(&Memories), describe(&Files), describe(&StoreEntries),
		describe(&Audit), describe(&LogErasures),
		describe(&StoredAgents), describe(&Subscriptions), describe(&Deliveries),
	}
}

// OfSession returns the names of all tables with rows of a session, except its facets.
func OfSession() []string {
	return []string{
		Sessions.Name, States.Name, Runs.Name, Messages.Name, Plans.Name, Results.Name, Checkpoints.Name, UsageEntries.Name, Calls.Name,
		SubSessions.Name, WaitingInputs.Name, StoreEntries.Name,
	}
}

// Counted returns the names of the tables whose rows are counted before a session is deleted.
func Counted() []string {
	return []string{Messages.Name, Runs.Name, Checkpoints.Name, States.Name, Calls.Name, UsageEntries.Name, "file_links", StoreEntries.Name}
}

func describe[R any](t *Table[R]) Description {
	d := Description{t.Name, map[string]Kind{}}
	for _, name := range t.Scope {
		d.Columns[name] = Text
	}
	for _, c := range t.All() {
		d.Columns[c.Name] = c.Kind
	}
	return d
}
