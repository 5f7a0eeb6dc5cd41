package executor

import (
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// Config configures an executor. config.Load sets the defaults.
type Config struct {
	StateAddress  string `env:"HOLDFAST_EXECUTOR_STATE_ADDRESS" envDefault:"127.0.0.1:7411" doc:"address of the state service"`
	StreamAddress string `env:"HOLDFAST_EXECUTOR_STREAM_ADDRESS" envDefault:"127.0.0.1:7412" doc:"address of the stream service"`
	Slots         int    `env:"HOLDFAST_EXECUTOR_SLOTS" envDefault:"256" doc:"runs at once"`
	SparePercent  int    `env:"HOLDFAST_EXECUTOR_SPARE_PERCENT" envDefault:"10" doc:"slots beyond HOLDFAST_EXECUTOR_SLOTS, in percent of these and rounded up. They are for tenants without a run in progress, so a tenant that fills all slots does not delay the others. 0 for none"`

	HeartbeatInterval time.Duration `env:"HOLDFAST_EXECUTOR_HEARTBEAT_INTERVAL" envDefault:"500ms" doc:"time between two signs of life; at most half of HOLDFAST_STATE_BROKEN_AFTER"`
	HeldInterval      time.Duration `env:"HOLDFAST_EXECUTOR_HELD_INTERVAL" envDefault:"15s" doc:"time between two heartbeats that list the runs held"`
	CallTimeout       time.Duration `env:"HOLDFAST_EXECUTOR_CALL_TIMEOUT" envDefault:"10s" doc:"limit of one attempt at a call to the state or stream service"`
	DrainGrace        time.Duration `env:"HOLDFAST_EXECUTOR_DRAIN_GRACE" envDefault:"5s" doc:"time for the steps in flight at shutdown; at least 4s below HOLDFAST_SHUTDOWN_GRACE"`

	ModelTimeout  time.Duration `env:"HOLDFAST_EXECUTOR_MODEL_TIMEOUT" envDefault:"10m" doc:"limit of one model call, whatever arrives; a call that reaches it is not repeated, the agent's next model is asked"`
	ToolTimeout   time.Duration `env:"HOLDFAST_EXECUTOR_TOOL_TIMEOUT" envDefault:"60s" doc:"limit of a call of a tool that names none"`
	ParallelCalls int           `env:"HOLDFAST_EXECUTOR_PARALLEL_CALLS" envDefault:"8" doc:"calls of one step at once"`
	MaxCalls      int           `env:"HOLDFAST_EXECUTOR_MAX_CALLS" envDefault:"128" doc:"most tool calls of one reply that are made, up to 1024; the model reads of the others that they were not. A step may leave HOLDFAST_STATE_MAX_CALLS of them open"`
	HookTimeout   time.Duration `env:"HOLDFAST_EXECUTOR_HOOK_TIMEOUT" envDefault:"10s" doc:"limit of one call of a hook, and of the other functions of an agent that have no limit of their own"`
	GuardTimeout  time.Duration `env:"HOLDFAST_EXECUTOR_GUARD_TIMEOUT" envDefault:"1m" doc:"limit of one question to an agent's guard"`

	AbsentDelay        time.Duration `env:"HOLDFAST_EXECUTOR_ABSENT_DELAY" envDefault:"5s" doc:"how long a run is left to others whose agent this executor does not have any more"`
	RemotePatience     time.Duration `env:"HOLDFAST_EXECUTOR_REMOTE_PATIENCE" envDefault:"1m" doc:"how long a remote agent may be unreachable before its run fails"`
	RemoteStopPatience time.Duration `env:"HOLDFAST_EXECUTOR_REMOTE_STOP_PATIENCE" envDefault:"10m" doc:"how long a stop is sent again to a remote agent that does not confirm it"`

	MethodCalls int `env:"HOLDFAST_EXECUTOR_METHOD_CALLS" envDefault:"256" doc:"calls of methods by clients at once"`

	PublicURL string `env:"HOLDFAST_GATEWAY_PUBLIC_URL" doc:"address of the gateway for other systems, such as https://agents.example.com, in the URLs to which they post the results of calls; empty: no tool can answer later. One process without it uses the address on which it listens"`

	MaxDepth  int `env:"HOLDFAST_EXECUTOR_MAX_DEPTH" envDefault:"8" doc:"the largest depth of a sub-agent in its tree, whose root has depth 0"`
	MaxLosses int `env:"HOLDFAST_EXECUTOR_MAX_LOSSES" envDefault:"5" doc:"how often in a row executors may be lost with a run before the run fails"`

	MaxCallFileBytes int64 `env:"HOLDFAST_EXECUTOR_MAX_CALL_FILE_BYTES" envDefault:"67108864" doc:"most bytes of stored files in one model call; of older messages, the oldest files are left out"`
	FileMemory       int64 `env:"HOLDFAST_EXECUTOR_FILE_MEMORY" envDefault:"268435456" doc:"most bytes of stored files in all model calls at once; further calls wait. A model call needs several times the bytes of its files"`
	FileCacheBytes   int64 `env:"HOLDFAST_EXECUTOR_FILE_CACHE_BYTES" envDefault:"67108864" doc:"most bytes of stored files that are kept between model calls, as base64"`

	TraceContent  []string `env:"HOLDFAST_EXECUTOR_TRACE_CONTENT" doc:"contents in spans: prompts, replies, tools, with commas between; each is cut at 32 KiB. Empty, as by default, exports no contents"`
	TraceMetadata []string `env:"HOLDFAST_EXECUTOR_TRACE_METADATA" doc:"keys of a session's metadata in the spans of its runs, with commas between, as agent.metadata.KEY"`

	MaxResultBytes      int           `env:"HOLDFAST_EXECUTOR_MAX_RESULT_BYTES" envDefault:"1048576" doc:"limit of one tool result"`
	MaxStateBytes       int           `env:"HOLDFAST_EXECUTOR_MAX_STATE_BYTES" envDefault:"1887436" doc:"limit of what one call or hook writes to the custom state"`
	MaxDeltaBytes       int           `env:"HOLDFAST_EXECUTOR_MAX_DELTA_BYTES" envDefault:"262144" doc:"limit of one delta in the stream; larger ones are split"`
	MaxQueuedBytes      int           `env:"HOLDFAST_EXECUTOR_MAX_QUEUED_BYTES" envDefault:"1048576" doc:"chunks of one run that wait for the stream, in bytes; a model that is faster waits"`
	Deliveries          int           `env:"HOLDFAST_EXECUTOR_DELIVERIES" envDefault:"64" doc:"deliveries to webhooks at once; 0 leaves them to other executors"`
	WebhookTimeout      time.Duration `env:"HOLDFAST_EXECUTOR_WEBHOOK_TIMEOUT" envDefault:"15s" doc:"limit of one request to a webhook; at most 55s"`
	WebhookHosts        []string      `env:"HOLDFAST_EXECUTOR_WEBHOOK_HOSTS" doc:"the only hosts that webhooks may be on, separated by commas: names, *.suffix or addresses, each with :port or for all ports; when empty, all hosts with public addresses, over https"`
	WebhookPrivateHosts []string      `env:"HOLDFAST_EXECUTOR_WEBHOOK_PRIVATE_HOSTS" doc:"hosts of webhooks that may have private addresses, and http"`

	StreamPatience time.Duration `env:"HOLDFAST_EXECUTOR_STREAM_PATIENCE" envDefault:"10s" doc:"how long a run waits for the stream service before it goes on without telling readers"`
}

// check returns Invalid (CONFIG_INVALID) for a limit of 0 or below.
func (c Config) check() error {
	for _, kind := range c.TraceContent {
		if !slices.Contains([]string{worker.ContentPrompts, worker.ContentReplies, worker.ContentTools}, kind) {
			return fault.New(fault.Invalid, "CONFIG_INVALID",
				"HOLDFAST_EXECUTOR_TRACE_CONTENT has %q; it may contain prompts, replies and tools", kind)
		}
	}
	positive := []struct {
		name  string
		value int64
	}{
		{"SLOTS", int64(c.Slots)},
		{"METHOD_CALLS", int64(c.MethodCalls)},
		{"HEARTBEAT_INTERVAL", int64(c.HeartbeatInterval)},
		{"HELD_INTERVAL", int64(c.HeldInterval)},
		{"CALL_TIMEOUT", int64(c.CallTimeout)},
		{"DRAIN_GRACE", int64(c.DrainGrace)},
		{"MODEL_TIMEOUT", int64(c.ModelTimeout)},
		{"TOOL_TIMEOUT", int64(c.ToolTimeout)},
		{"PARALLEL_CALLS", int64(c.ParallelCalls)},
		{"MAX_CALLS", int64(c.MaxCalls)},
		{"HOOK_TIMEOUT", int64(c.HookTimeout)},
		{"GUARD_TIMEOUT", int64(c.GuardTimeout)},
		{"ABSENT_DELAY", int64(c.AbsentDelay)},
		{"REMOTE_PATIENCE", int64(c.RemotePatience)},
		{"REMOTE_STOP_PATIENCE", int64(c.RemoteStopPatience)},
		{"MAX_DEPTH", int64(c.MaxDepth)},
		{"MAX_LOSSES", int64(c.MaxLosses)},
		{"MAX_CALL_FILE_BYTES", c.MaxCallFileBytes},
		{"FILE_MEMORY", c.FileMemory},
		{"FILE_CACHE_BYTES", c.FileCacheBytes},
		{"MAX_RESULT_BYTES", int64(c.MaxResultBytes)},
		{"MAX_STATE_BYTES", int64(c.MaxStateBytes)},
		{"MAX_DELTA_BYTES", int64(c.MaxDeltaBytes)},
		{"MAX_QUEUED_BYTES", int64(c.MaxQueuedBytes)},
		{"STREAM_PATIENCE", int64(c.StreamPatience)},
		{"WEBHOOK_TIMEOUT", int64(c.WebhookTimeout)},
	}
	for _, p := range positive {
		if p.value <= 0 {
			return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_%s must be above 0", p.name)
		}
	}
	if c.Deliveries < 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_DELIVERIES must not be below 0")
	}
	if c.SparePercent < 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_SPARE_PERCENT must not be below 0")
	}
	if c.MaxCalls > loop.MostCalls {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_MAX_CALLS must be at most %d", loop.MostCalls)
	}
	return c.webhookHosts().Check()
}
