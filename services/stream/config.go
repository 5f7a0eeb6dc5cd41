package stream

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// The logs that Config.Bus names.
const (
	BusMemory   = "memory"   // in the process's memory; ends with it
	BusEmbedded = "embedded" // a NATS server in the process, files in DataDir
	BusNATS     = "nats"     // NATS servers at NATSURL
)

// Config says how the log is kept. Start from Defaults or from config.Load.
type Config struct {
	Bus       string `env:"HOLDFAST_STREAM_BUS" envDefault:"embedded" doc:"where the live log is: memory, embedded (a NATS server in the process) or nats"`
	DataDir   string `env:"HOLDFAST_STREAM_DATA_DIR" envDefault:"holdfast-data/stream" doc:"directory of the embedded server; one process at a time may use it"`
	NATSURL   string `env:"HOLDFAST_STREAM_NATS_URL" envDefault:"nats://127.0.0.1:4222" doc:"NATS servers, with commas between those of one system and semicolons between independent systems, over which the sessions are spread; systems and their order must not change while steps are in flight"`
	NATSCreds string `env:"HOLDFAST_STREAM_NATS_CREDS" doc:"file with NATS credentials; empty for none"`
	Namespace string `env:"HOLDFAST_STREAM_NAMESPACE" envDefault:"holdfast" doc:"first word of the NATS subjects and streams: lower-case letters, digits and dashes; installations that share a NATS differ in it"`

	Partitions     int           `env:"HOLDFAST_STREAM_PARTITIONS" envDefault:"16" doc:"JetStream streams that the sessions are spread over, 1 to 64; must not change while steps are in flight"`
	Replicas       int           `env:"HOLDFAST_STREAM_REPLICAS" envDefault:"1" doc:"copies of each partition in a NATS cluster, 1 to 5"`
	TTL            time.Duration `env:"HOLDFAST_STREAM_TTL" envDefault:"1h" doc:"how long a record is kept; longer than any step takes, because the state service has every committed step"`
	PartitionBytes int64         `env:"HOLDFAST_STREAM_PARTITION_BYTES" envDefault:"536870912" doc:"size of a partition, above which its oldest records go"`
	ChunkBytes     int           `env:"HOLDFAST_STREAM_CHUNK_BYTES" envDefault:"524288" doc:"the largest chunk, in bytes as stored"`
	Check          time.Duration `env:"HOLDFAST_STREAM_CHECK" envDefault:"5s" doc:"time within which a live record that was lost on the way is noticed, and its readers read again"`
	Sync           time.Duration `env:"HOLDFAST_STREAM_SYNC" envDefault:"5s" doc:"how often the embedded server has the disk keep what it was given, at least 10ms; 0s: before each acknowledgement, so that a power cut loses nothing"`
	BootTimeout    time.Duration `env:"HOLDFAST_STREAM_BOOT_TIMEOUT" envDefault:"30s" doc:"how long the start waits for the live log"`
}

// ProcessConfig is what a process that runs this service alone is told.
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

// Bounds of the configuration.
const (
	maxPartitions = 64
	maxReplicas   = 5
	maxSystems    = 64
	minTTL        = time.Second
	minSync       = 10 * time.Millisecond
	minPartition  = 1 << 20
	minChunk      = 1 << 10
	maxChunk      = 4 << 20 // the embedded server takes messages of twice that
)

// systems returns the URLs of the independent NATS systems.
func (c Config) systems() []string {
	systems := strings.Split(c.NATSURL, ";")
	for i := range systems {
		systems[i] = strings.TrimSpace(systems[i])
	}
	return systems
}

// check answers Invalid (CONFIG_INVALID), naming the variable.
func (c Config) check() error {
	if err := c.checkLog(); err != nil {
		return err
	}
	switch {
	case c.TTL < minTTL:
		return wrong("HOLDFAST_STREAM_TTL", "%v is below %v", c.TTL, minTTL)
	case c.PartitionBytes < minPartition:
		return wrong("HOLDFAST_STREAM_PARTITION_BYTES", "%d is below %d", c.PartitionBytes, minPartition)
	case c.ChunkBytes < minChunk || c.ChunkBytes > maxChunk:
		return wrong("HOLDFAST_STREAM_CHUNK_BYTES", "%d is not between %d and %d", c.ChunkBytes, minChunk, maxChunk)
	case c.Check <= 0:
		return wrong("HOLDFAST_STREAM_CHECK", "%v is not above 0", c.Check)
	case c.BootTimeout <= 0:
		return wrong("HOLDFAST_STREAM_BOOT_TIMEOUT", "%v is not above 0", c.BootTimeout)
	}
	return nil
}

// checkLog checks what says where the log is.
func (c Config) checkLog() error {
	switch {
	case c.Bus != BusMemory && c.Bus != BusEmbedded && c.Bus != BusNATS:
		return wrong("HOLDFAST_STREAM_BUS", "%q is none of memory, embedded and nats", c.Bus)
	case !namespace(c.Namespace):
		return wrong("HOLDFAST_STREAM_NAMESPACE", "%q is not made of lower-case letters, digits and dashes", c.Namespace)
	case c.Partitions < 1 || c.Partitions > maxPartitions:
		return wrong("HOLDFAST_STREAM_PARTITIONS", "%d is not between 1 and %d", c.Partitions, maxPartitions)
	case c.Replicas < 1 || c.Replicas > maxReplicas:
		return wrong("HOLDFAST_STREAM_REPLICAS", "%d is not between 1 and %d", c.Replicas, maxReplicas)
	case c.Bus != BusNATS && c.Replicas != 1:
		return wrong("HOLDFAST_STREAM_REPLICAS", "the %s log has one copy, not %d: set it to 1, or HOLDFAST_STREAM_BUS to nats and HOLDFAST_STREAM_NATS_URL to a cluster", c.Bus, c.Replicas)
	case c.Bus == BusNATS:
		return c.checkSystems()
	case c.Bus == BusEmbedded && c.DataDir == "":
		return wrong("HOLDFAST_STREAM_DATA_DIR", "the embedded server needs a directory")
	case c.Bus == BusEmbedded && c.Sync != 0 && c.Sync < minSync:
		return wrong("HOLDFAST_STREAM_SYNC", "%v is neither 0s, which is before each acknowledgement, nor %v or more", c.Sync, minSync)
	}
	return nil
}

// checkSystems checks the URLs of the NATS systems.
func (c Config) checkSystems() error {
	systems := c.systems()
	if len(systems) > maxSystems {
		return wrong("HOLDFAST_STREAM_NATS_URL", "it names %d systems, with semicolons between them; at most %d", len(systems), maxSystems)
	}
	for i, url := range systems {
		if url == "" {
			return wrong("HOLDFAST_STREAM_NATS_URL", "system %d of %d is empty; semicolons stand between systems, commas between the servers of one", i+1, len(systems))
		}
		if j := slices.Index(systems, url); j < i {
			return wrong("HOLDFAST_STREAM_NATS_URL", "systems %d and %d are the same; semicolons stand between independent systems", j+1, i+1)
		}
	}
	return nil
}

func namespace(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return name != ""
}

func wrong(variable, format string, args ...any) error {
	return fault.New(fault.Invalid, "CONFIG_INVALID", variable+": "+format, args...)
}
