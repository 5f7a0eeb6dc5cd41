package scheduler

import (
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Config says how work is handed out. All fields but OrphanedAfter, AgentGoneAfter and Fresh must be above 0.
type Config struct {
	Poll  time.Duration `env:"HOLDFAST_STATE_CLAIM_POLL" envDefault:"200ms" doc:"how often a claim stream looks for work without a signal; jittered by half"`
	Fresh time.Duration `env:"HOLDFAST_STATE_CLAIM_FRESH" envDefault:"10s" doc:"a claim not listed in a heartbeat is requeued only if it is older than this"`
	// OrphanedAfter applies to runs of an agent without a registered executor.
	OrphanedAfter time.Duration `env:"HOLDFAST_STATE_ORPHANED_AFTER" envDefault:"10s" doc:"how long a run that only has to end waits for an executor of its agent; after that any executor ends it"`
	// AgentGoneAfter applies to the other runs of such an agent. See absence for what counts.
	AgentGoneAfter time.Duration `env:"HOLDFAST_STATE_AGENT_GONE_AFTER" envDefault:"0s" doc:"how long a run waits for an executor of its agent while executors of other agents are connected; after that it fails with framework_agent_gone. 0, the default, waits for ever"`
	// StopPoll finds the stops of other replicas. Stops written by this replica reach an
	// executor at once.
	StopPoll time.Duration `env:"HOLDFAST_STATE_STOP_POLL" envDefault:"100ms" doc:"how often to look for stop requests for the runs of connected executors"`
	// TenantWeights are 1 for tenants that are not listed.
	TenantWeights map[string]int64 `env:"HOLDFAST_STATE_TENANT_WEIGHTS" doc:"how many runs a tenant may begin in its turn while several tenants wait, such as acme:4,globex:2; 1 for others"`

	TailMessages int `env:"HOLDFAST_STATE_TAIL_MESSAGES" envDefault:"200" doc:"most messages of a claim"`
	TailBytes    int `env:"HOLDFAST_STATE_TAIL_BYTES" envDefault:"1048576" doc:"most bytes of messages of a claim; the last message is always included"`
}

// tail is the part of the conversation in a claim.
func (c Config) tail() session.Tail {
	return session.Tail{MaxMessages: c.TailMessages, MaxBytes: c.TailBytes}
}
