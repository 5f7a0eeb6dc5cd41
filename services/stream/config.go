package stream

import (
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// Values of Config.Bus.
const (
	BusMemory   = "memory"   // in the memory of the process; lost with it
	BusEmbedded = "embedded" // a NATS server in the process with files in DataDir
	BusNATS     = "nats"     // NATS servers at NATSURL
)

// Config configures the log. Start from Defaults or from config.Load.
type Config struct {
	Bus       string `env:"HOLDFAST_STREAM_BUS" envDefault:"embedded" doc:"where the live log is: memory, embedded (a NATS server in the process) or nats"`
	DataDir   string `env:"HOLDFAST_STREAM_DATA_DIR" envDefault:"holdfast-data/stream" doc:"directory of the embedded server; one process at a time may use it"`
	NATSURL   string `env:"HOLDFAST_STREAM_NATS_URL" envDefault:"nats://127.0.0.1:4222" doc:"NATS servers of one cluster, with commas between them"`
	NATSCreds string `env:"HOLDFAST_STREAM_NATS_CREDS" doc:"file with NATS credentials; empty for none"`

	Partitions     int           `env:"HOLDFAST_STREAM_PARTITIONS" envDefault:"16" doc:"JetStream streams that the sessions are spread over, 1 to 64; must not change while steps are in flight"`
	Replicas       int           `env:"HOLDFAST_STREAM_REPLICAS" envDefault:"1" doc:"copies of each partition in a NATS cluster, 1 to 5"`
	TTL            time.Duration `env:"HOLDFAST_STREAM_TTL" envDefault:"1h" doc:"how long a record is kept; longer than any step takes, because the state service has every committed step"`
	PartitionBytes int64         `env:"HOLDFAST_STREAM_PARTITION_BYTES" envDefault:"536870912" doc:"size of a partition, above which its oldest records go"`
	ChunkBytes     int           `env:"HOLDFAST_STREAM_CHUNK_BYTES" envDefault:"524288" doc:"the largest chunk, in bytes as stored"`
	Check          time.Duration `env:"HOLDFAST_STREAM_CHECK" envDefault:"5s" doc:"time within which a live record that was lost on the way is noticed, and its readers read again"`
	Sync           time.Duration `env:"HOLDFAST_STREAM_SYNC" envDefault:"5s" doc:"how often the embedded server has the disk keep what it was given, at least 100ms; 0s: before each acknowledgement, so that a power cut loses nothing"`
	BootTimeout    time.Duration `env:"HOLDFAST_STREAM_BOOT_TIMEOUT" envDefault:"30s" doc:"how long the start waits for the live log"`

	Grants grant.Config
}

// ProcessConfig configures a process with this service alone.
type ProcessConfig struct {
	Config
	Listen    string       `env:"HOLDFAST_STREAM_LISTEN" envDefault:"127.0.0.1:7412" doc:"address to serve gRPC on"`
	Internal  rpc.Security `envPrefix:"HOLDFAST_INTERNAL_"`
	Telemetry telemetry.Config
	Grace     time.Duration `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time that open calls are given at shutdown"`
}

// Defaults returns the configuration of an empty environment.
func Defaults() Config {
	var c Config
	if err := config.Load(&c, nil); err != nil {
		panic(err) // a mistake in the tags above
	}
	return c
}

// Limits of the configuration.
const (
	maxPartitions = 64
	maxReplicas   = 5
	minTTL        = time.Second
	minSync       = 100 * time.Millisecond // a timer of the server that fires while it creates its store is a data race
	minPartition  = 1 << 20
	minChunk      = 1 << 10
	maxChunk      = 4 << 20 // the embedded server accepts messages of twice this size
)

// check returns Invalid (CONFIG_INVALID) and names the variable.
func (c Config) check() error {
	if err := c.checkLocation(); err != nil {
		return err
	}
	switch {
	case c.TTL < minTTL:
		return configInvalid("HOLDFAST_STREAM_TTL", "%v is below %v", c.TTL, minTTL)
	case c.PartitionBytes < minPartition:
		return configInvalid("HOLDFAST_STREAM_PARTITION_BYTES", "%d is below %d", c.PartitionBytes, minPartition)
	case c.ChunkBytes < minChunk || c.ChunkBytes > maxChunk:
		return configInvalid("HOLDFAST_STREAM_CHUNK_BYTES", "%d is not between %d and %d", c.ChunkBytes, minChunk, maxChunk)
	case c.Check <= 0:
		return configInvalid("HOLDFAST_STREAM_CHECK", "%v is not above 0", c.Check)
	case c.BootTimeout <= 0:
		return configInvalid("HOLDFAST_STREAM_BOOT_TIMEOUT", "%v is not above 0", c.BootTimeout)
	}
	return nil
}

// checkLocation checks the location of the log.
func (c Config) checkLocation() error {
	switch {
	case c.Bus != BusMemory && c.Bus != BusEmbedded && c.Bus != BusNATS:
		return configInvalid("HOLDFAST_STREAM_BUS", "%q is not memory, embedded or nats", c.Bus)
	case c.Partitions < 1 || c.Partitions > maxPartitions:
		return configInvalid("HOLDFAST_STREAM_PARTITIONS", "%d is not between 1 and %d", c.Partitions, maxPartitions)
	case c.Replicas < 1 || c.Replicas > maxReplicas:
		return configInvalid("HOLDFAST_STREAM_REPLICAS", "%d is not between 1 and %d", c.Replicas, maxReplicas)
	case c.Bus != BusNATS && c.Replicas != 1:
		return configInvalid("HOLDFAST_STREAM_REPLICAS",
			"the %s log has one copy, not %d: set it to 1, or HOLDFAST_STREAM_BUS to nats and HOLDFAST_STREAM_NATS_URL to a cluster",
			c.Bus, c.Replicas)
	case c.Bus == BusNATS && c.NATSURL == "":
		return configInvalid("HOLDFAST_STREAM_NATS_URL", "it is empty")
	case c.Bus == BusEmbedded && c.DataDir == "":
		return configInvalid("HOLDFAST_STREAM_DATA_DIR", "the embedded server needs a directory")
	case c.Bus == BusEmbedded && c.Sync != 0 && c.Sync < minSync:
		return configInvalid("HOLDFAST_STREAM_SYNC",
			"%v is neither 0s, which is before each acknowledgement, nor %v or more", c.Sync, minSync)
	}
	return nil
}

func configInvalid(variable, format string, args ...any) error {
	return fault.New(fault.Invalid, "CONFIG_INVALID", variable+": "+format, args...)
}
