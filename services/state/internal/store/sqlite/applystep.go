package sqlite

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

func (w *writer) journal(c *session.Change) {
	if c.Plan != nil {
		write(w, insertPlan, w.scope(), c.Plan)
	}
	if c.Result != nil {
		write(w, insertResult, w.scope(), &table.Result{Position: c.ResultAt, Result: *c.Result})
	}
	if c.ClearJournal {
		w.exec(`DELETE FROM plans WHERE tenant = ? AND session_id = ?`)
		w.exec(`DELETE FROM results WHERE tenant = ? AND session_id = ?`)
	}
}

func (w *writer) calls(c *session.Change) {
	family := [2]string{w.key.Tenant, w.root}
	for _, id := range c.DropCalls {
		w.exec(`DELETE FROM calls WHERE tenant = ? AND session_id = ? AND root_id = ? AND call_id = ?`, w.root, id)
	}
	for i := range c.NewCalls {
		write(w, insertCall, family, &c.NewCalls[i])
	}
	for i := range c.Calls {
		write(w, updateCall, family, &c.Calls[i])
	}
}
