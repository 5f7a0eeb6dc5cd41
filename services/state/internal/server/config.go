package server

import (
	"time"

	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/services/state/internal/quota"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Config configures the server.
type Config struct {
	Scheduler scheduler.Config
	// EpochStep returns how far the next claim raises its epoch; nil for 1.
	EpochStep func() int64
	// SuspendedTTL begins with the suspending step. A call with an earlier deadline expires the
	// session earlier. 0 disables expiry.
	SuspendedTTL   time.Duration `env:"HOLDFAST_STATE_SUSPENDED_TTL" envDefault:"720h" doc:"how long a suspended session waits before it expires; 0 for ever"`
	Quotas         *quota.File   // nil for none
	Callbacks      grant.CallbackKeys
	FileGrace      time.Duration `env:"HOLDFAST_STATE_FILE_GRACE" envDefault:"24h" doc:"how long a file is kept before a message refers to it, and twice the time that storing one may take"`
	AuditRetention time.Duration `env:"HOLDFAST_STATE_AUDIT_RETENTION" envDefault:"9600h" doc:"how long entries of the audit log are kept; 0 for ever"`
	Limits         Limits
	Webhooks       Webhooks
}

// Limits bound requests and responses. Sizes are in bytes. A claim is one message of at most 16
// MiB: two StepBytes, the state and TailBytes must fit into it. A run fails if its journal, its
// answered calls and its last message are too large together.
type Limits struct {
	MessageBytes    int `env:"HOLDFAST_STATE_MAX_MESSAGE_BYTES" envDefault:"1048576" doc:"largest user message, and largest plan"`
	Messages        int `env:"HOLDFAST_STATE_MAX_MESSAGES" envDefault:"1000" doc:"most messages of one request that starts a run or appends messages"`
	HistoryMessages int `env:"HOLDFAST_STATE_MAX_HISTORY_MESSAGES" envDefault:"1000" doc:"most messages of the client's conversation that a new session takes in"`
	HistoryBytes    int `env:"HOLDFAST_STATE_MAX_HISTORY_BYTES" envDefault:"4194304" doc:"most bytes of these messages"`
	ResultBytes     int `env:"HOLDFAST_STATE_MAX_RESULT_BYTES" envDefault:"1000000" doc:"largest result of one call, with its error text"`
	StepBytes       int `env:"HOLDFAST_STATE_MAX_STEP_BYTES" envDefault:"6291456" doc:"largest journal of a step with its state writes and usage, largest message of a step, and most bytes of unread answers of a session"`
	StateBytes      int `env:"HOLDFAST_STATE_MAX_STATE_BYTES" envDefault:"1887436" doc:"largest custom state, as JSON"`
	StagedBytes     int `env:"HOLDFAST_STATE_MAX_STAGED_BYTES" envDefault:"1887436" doc:"largest state writes of one result, step or merge, keys and values together"`
	ErrorBytes      int `env:"HOLDFAST_STATE_MAX_ERROR_BYTES" envDefault:"8192" doc:"longest error text and reason; those of failed runs are truncated, others are refused"`
	Ops             int `env:"HOLDFAST_STATE_MAX_OPS" envDefault:"1000" doc:"most state writes of one result, step or merge"`
	Calls           int `env:"HOLDFAST_STATE_MAX_CALLS" envDefault:"256" doc:"most open calls of a step, and most sub-sessions to wait for or to write"`
	Waiting         int `env:"HOLDFAST_STATE_MAX_WAITING" envDefault:"100" doc:"most waiting runs of a session"`
	Family          int `env:"HOLDFAST_STATE_MAX_FAMILY" envDefault:"1000" doc:"most sessions of a family in one write"`
	Tree            int `env:"HOLDFAST_STATE_MAX_TREE" envDefault:"1000" doc:"most sessions of a tree that have not ended; above HOLDFAST_STATE_MAX_FAMILY, a tree may be too large to be stopped in one write"`
	UsageEntries    int `env:"HOLDFAST_STATE_MAX_USAGE_ENTRIES" envDefault:"1000" doc:"most usage entries of a request"`
	UsageSums       int `env:"HOLDFAST_STATE_MAX_USAGE_SUMS" envDefault:"10000" doc:"most sums of a usage query"`
	MemoryBytes     int `env:"HOLDFAST_STATE_MAX_MEMORY_BYTES" envDefault:"65536" doc:"longest text of a memory, and longest query for memories"`
	StoredAgents    int `env:"HOLDFAST_STATE_MAX_STORED_AGENTS" envDefault:"200" doc:"most agents that a tenant may store"`
	DefinitionBytes int `env:"HOLDFAST_STATE_MAX_DEFINITION_BYTES" envDefault:"262144" doc:"longest definition of a stored agent"`
	FileBytes       int `env:"HOLDFAST_STATE_MAX_FILE_BYTES" envDefault:"20971520" doc:"largest file of a message"`
	Count           int `env:"HOLDFAST_STATE_COUNT_LIMIT" envDefault:"1000" doc:"where counting the sessions of a list stops without exact_total"`
	Tags            int `env:"HOLDFAST_STATE_MAX_TAGS" envDefault:"64" doc:"most tags of a session"`
	TagBytes        int `env:"HOLDFAST_STATE_MAX_TAG_BYTES" envDefault:"256" doc:"longest tag"`
	TitleBytes      int `env:"HOLDFAST_STATE_MAX_TITLE_BYTES" envDefault:"1024" doc:"longest title of a session"`
	Metadata        int `env:"HOLDFAST_STATE_MAX_METADATA" envDefault:"64" doc:"most metadata pairs of a session or a message"`
	MetadataBytes   int `env:"HOLDFAST_STATE_MAX_METADATA_BYTES" envDefault:"4096" doc:"longest metadata value"`
	StoreBytes      int `env:"HOLDFAST_STATE_MAX_STORE_BYTES" envDefault:"268435456" doc:"largest private store of a session, keys and values together"`
	StoreStepBytes  int `env:"HOLDFAST_STATE_MAX_STORE_STEP_BYTES" envDefault:"16777216" doc:"largest writes of one step to the private store of its session"`
	PageBytes       int `env:"HOLDFAST_STATE_MAX_PAGE_BYTES" envDefault:"4194304" doc:"largest page of messages, sessions or memories; a single larger one is still returned"`
}

// minAgentGone leaves time for the looks at the executors.
const minAgentGone = time.Second

func (l Limits) sessionLimits() session.Limits {
	return session.Limits{
		State: l.StateBytes, Journal: l.StepBytes, Waiting: l.Waiting, Tree: l.Tree, Store: l.StoreBytes, StoreStep: l.StoreStepBytes,
	}
}

// Check gives Invalid (CONFIG_INVALID) for an unusable configuration, and names the variable.
func (c Config) Check() error {
	l, sched := c.Limits, c.Scheduler
	for _, bound := range []struct {
		variable string
		value    int64
	}{
		{"CLAIM_POLL", int64(sched.Poll)}, {"STOP_POLL", int64(sched.StopPoll)}, {"MAX_WAITING", int64(l.Waiting)},
		{"MAX_MESSAGE_BYTES", int64(l.MessageBytes)}, {"MAX_MESSAGES", int64(l.Messages)},
		{"MAX_HISTORY_MESSAGES", int64(l.HistoryMessages)}, {"MAX_HISTORY_BYTES", int64(l.HistoryBytes)},
		{"MAX_RESULT_BYTES", int64(l.ResultBytes)}, {"MAX_STEP_BYTES", int64(l.StepBytes)}, {"MAX_STATE_BYTES", int64(l.StateBytes)},
		{"MAX_STAGED_BYTES", int64(l.StagedBytes)}, {"MAX_OPS", int64(l.Ops)},
		{"MAX_ERROR_BYTES", int64(l.ErrorBytes)}, {"MAX_CALLS", int64(l.Calls)}, {"MAX_FAMILY", int64(l.Family)}, {"MAX_TREE", int64(l.Tree)},
		{"MAX_USAGE_ENTRIES", int64(l.UsageEntries)}, {"MAX_USAGE_SUMS", int64(l.UsageSums)}, {"MAX_MEMORY_BYTES", int64(l.MemoryBytes)},
		{"MAX_STORED_AGENTS", int64(l.StoredAgents)}, {"MAX_DEFINITION_BYTES", int64(l.DefinitionBytes)},
		{"MAX_FILE_BYTES", int64(l.FileBytes)}, {"FILE_GRACE", int64(c.FileGrace)},
		{"COUNT_LIMIT", int64(l.Count)}, {"MAX_PAGE_BYTES", int64(l.PageBytes)},
		{"MAX_STORE_BYTES", int64(l.StoreBytes)}, {"MAX_STORE_STEP_BYTES", int64(l.StoreStepBytes)},
		{"WEBHOOK_RETRY_FOR", int64(c.Webhooks.RetryFor)}, {"WEBHOOK_CONCURRENCY", int64(c.Webhooks.AtOnce)},
		{"MAX_WEBHOOKS", int64(c.Webhooks.PerTenant)}, {"MAX_DELIVERIES", int64(c.Webhooks.Undelivered)},
		{"WEBHOOK_MAX_CONTENT_BYTES", int64(c.Webhooks.ContentBytes)}, {"WEBHOOK_KEEP_DEAD", int64(c.Webhooks.KeepDead)},
		{"TAIL_MESSAGES", int64(sched.TailMessages)}, {"TAIL_BYTES", int64(sched.TailBytes)},
	} {
		if bound.value <= 0 {
			return invalid("CONFIG_INVALID", "HOLDFAST_STATE_%s must be above 0", bound.variable)
		}
	}
	for tenant, weight := range sched.TenantWeights {
		if weight <= 0 {
			return invalid("CONFIG_INVALID", "HOLDFAST_STATE_TENANT_WEIGHTS: the weight of %q must be above 0", tenant)
		}
	}
	if c.Webhooks.KeepDelivered < 0 {
		return invalid("CONFIG_INVALID", "HOLDFAST_STATE_WEBHOOK_KEEP_DELIVERED must not be below 0")
	}
	if c.AuditRetention < 0 {
		return invalid("CONFIG_INVALID", "HOLDFAST_STATE_AUDIT_RETENTION must not be below 0")
	}
	if c.SuspendedTTL < 0 || sched.OrphanedAfter < 0 {
		return invalid("CONFIG_INVALID", "HOLDFAST_STATE_SUSPENDED_TTL and HOLDFAST_STATE_ORPHANED_AFTER must not be below 0")
	}
	if after := sched.AgentGoneAfter; after != 0 && after < minAgentGone {
		return invalid("CONFIG_INVALID", "HOLDFAST_STATE_AGENT_GONE_AFTER is %v: it must be 0, or %v or more", after, minAgentGone)
	}
	return nil
}
