package group

import (
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Config bounds the queue and the batches.
type Config struct {
	Queue        int           `env:"HOLDFAST_STATE_QUEUE" envDefault:"10000" doc:"most commands waiting for a transaction; more are refused with QUEUE_FULL"`
	QueueBytes   int           `env:"HOLDFAST_STATE_QUEUE_BYTES" envDefault:"268435456" doc:"most bytes of waiting commands; a larger command is accepted when no other waits"`
	Batch        int           `env:"HOLDFAST_STATE_BATCH" envDefault:"256" doc:"most commands of one transaction"`
	BatchBytes   int           `env:"HOLDFAST_STATE_BATCH_BYTES" envDefault:"16777216" doc:"most bytes of the commands of one transaction; a larger command is written alone"`
	Lanes        int           `env:"HOLDFAST_STATE_LANES" envDefault:"2" doc:"most transactions in flight at once"`
	BatchTimeout time.Duration `env:"HOLDFAST_STATE_BATCH_WITHIN" envDefault:"30s" doc:"longest time of one transaction, with the retries of its commands"`
}

// Check requires bounds above 0. Invalid (CONFIG_INVALID) names the variable.
func (c Config) Check() error {
	for _, bound := range []struct {
		variable string
		value    int64
	}{
		{"QUEUE", int64(c.Queue)},
		{"QUEUE_BYTES", int64(c.QueueBytes)},
		{"BATCH", int64(c.Batch)},
		{"BATCH_BYTES", int64(c.BatchBytes)},
		{"LANES", int64(c.Lanes)},
		{"BATCH_WITHIN", int64(c.BatchTimeout)},
	} {
		if bound.value <= 0 {
			return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_STATE_%s must be above 0", bound.variable)
		}
	}
	return nil
}
