package follow

import (
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

// claims decides which records of a log belong to the step in flight.
//
// Stored records may be older than the last read of the state service, and may belong to work that the database has lost.
// Only those of the step in flight and of the claim that the state service knows are valid. A boundary among them is no
// news: the steps are read again. A live record of a later claim is valid: the log has refused earlier ones since.
type claims struct {
	epoch   int64 // of the claim that the state service knows, or of a later live record; noEpoch if unknown
	steps   int32 // the last stored step at the last read
	unknown int64 // the epoch of the last stored record with another claim since the last resolution; 0 for none
	foreign int64 // the state service does not know this epoch
	lost    int64 // the state service does not know what the claim of this epoch has committed
	// boundary is the last one for which the steps were read again.
	boundary int64
}

// noEpoch is below that of a session without a claim.
const noEpoch = -1

var unknownClaims = claims{epoch: noEpoch}

// know takes what the state service knows of the session.
func (t *track) know(s *statev1.Session) { t.claims.know(s.GetEpoch(), s.GetStepCount()) }

// know takes the session's epoch and its last step. A claim that was unknown may just have begun.
func (c *claims) know(epoch int64, steps int32) {
	c.epoch, c.steps = epoch, steps
	if c.foreign == epoch {
		c.foreign = 0
	}
}

// hasUnknown reports, once, whether the stored records end with a claim unknown to the last read.
func (c *claims) hasUnknown() bool {
	epoch := c.unknown
	c.unknown = 0
	if epoch == 0 || epoch == c.foreign {
		return false
	}
	c.foreign = epoch
	return true
}

// accept reports whether a live record is valid.
func (c *claims) accept(r *live.Record) bool {
	if r.Epoch != 0 && (r.Epoch < c.epoch || r.Epoch == c.foreign || r.Epoch == c.lost) {
		return false
	}
	c.epoch = max(c.epoch, r.Epoch)
	return true
}

// check reports whether a stored record is valid. errReadSteps: read the steps first.
func (c *claims) check(r *live.Record, f *Follow) (valid bool, err error) {
	isNew := f.request.NewRun && r.Attempt != nil && r.Attempt.GetRunId() == f.run.GetRunId()
	switch {
	case r.Epoch == 0 || c.epoch == noEpoch:
		return true, nil
	case r.Epoch == c.lost:
		return false, nil
	case r.Epoch > c.epoch && isNew:
		c.epoch = r.Epoch
	case r.Epoch > c.epoch:
		c.unknown = r.Epoch
		return false, nil
	case r.Epoch < c.epoch || position.Of(r.First).Step <= c.steps:
		return false, nil
	}
	switch {
	case r.Boundary == nil:
		c.unknown = 0
		return true, nil
	case c.boundary == r.Last: // the commit is lost, and so is the claim from here on
		c.lost = r.Epoch
		return false, nil
	}
	c.boundary = r.Last
	f.missedRecords = true
	return false, errReadSteps
}
