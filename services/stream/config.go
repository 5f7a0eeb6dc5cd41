package stream

import (
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
	Bus       string `env:"HOLDFAST_STREAM_BUS" envDefault:"embedded" doc:"where the chunk log is: memory, embedded (a NATS server in the process) or nats"`
	DataDir   string `env:"HOLDFAST_STREAM_DATA_DIR" envDefault:"holdfast-data/stream" doc:"directory of the embedded server; one process at a time may use it"`
	NATSURL   string `env:"HOLDFAST_STREAM_NATS_URL" envDefault:"nats://127.0.0.1:4222" doc:"NATS servers, with commas between them"`
	NATSCreds string `env:"HOLDFAST_STREAM_NATS_CREDS" doc:"file with NATS credentials; empty for none"`
	Namespace string `env:"HOLDFAST_STREAM_NAMESPACE" envDefault:"holdfast" doc:"first word of the NATS subjects and streams: lower-case letters, digits and dashes; installations that share a NATS differ in it"`

	Partitions     int           `env:"HOLDFAST_STREAM_PARTITIONS" envDefault:"16" doc:"JetStream streams that the sessions are spread over, 1 to 64; must not change while there is data"`
	Replicas       int           `env:"HOLDFAST_STREAM_REPLICAS" envDefault:"1" doc:"copies of each partition in a NATS cluster, 1 to 5"`
	TTL            time.Duration `env:"HOLDFAST_STREAM_TTL" envDefault:"24h" doc:"how long a chunk can be read again"`
	PartitionBytes int64         `env:"HOLDFAST_STREAM_PARTITION_BYTES" envDefault:"536870912" doc:"size of a partition, above which its oldest chunks go"`
	ChunkBytes     int           `env:"HOLDFAST_STREAM_CHUNK_BYTES" envDefault:"524288" doc:"the largest chunk, in bytes as stored"`
	Check          time.Duration `env:"HOLDFAST_STREAM_CHECK" envDefault:"5s" doc:"time within which a live chunk that was lost on the way is noticed and sent again"`
	BootTimeout    time.Duration `env:"HOLDFAST_STREAM_BOOT_TIMEOUT" envDefault:"30s" doc:"how long the start waits for the chunk log"`

	ReaderChunks int `env:"HOLDFAST_STREAM_READER_CHUNKS" envDefault:"512" doc:"chunks that a live reader may lag behind before it is cut"`
	ReaderBytes  int `env:"HOLDFAST_STREAM_READER_BYTES" envDefault:"4194304" doc:"the same in bytes; shared by the readers of a session"`
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
	minTTL        = time.Second
	minPartition  = 1 << 20
	minChunk      = 1 << 10
	maxChunk      = 4 << 20 // the embedded server takes messages of twice that
)

// check answers Invalid (CONFIG_INVALID), naming the variable.
func (c Config) check() error {
	switch {
	case c.Bus != BusMemory && c.Bus != BusEmbedded && c.Bus != BusNATS:
		return wrong("HOLDFAST_STREAM_BUS", "%q is none of memory, embedded and nats", c.Bus)
	case c.Bus == BusEmbedded && c.DataDir == "":
		return wrong("HOLDFAST_STREAM_DATA_DIR", "the embedded server needs a directory")
	case c.Bus == BusNATS && c.NATSURL == "":
		return wrong("HOLDFAST_STREAM_NATS_URL", "it is empty")
	case !namespace(c.Namespace):
		return wrong("HOLDFAST_STREAM_NAMESPACE", "%q is not made of lower-case letters, digits and dashes", c.Namespace)
	case c.Partitions < 1 || c.Partitions > maxPartitions:
		return wrong("HOLDFAST_STREAM_PARTITIONS", "%d is not between 1 and %d", c.Partitions, maxPartitions)
	case c.Replicas < 1 || c.Replicas > maxReplicas:
		return wrong("HOLDFAST_STREAM_REPLICAS", "%d is not between 1 and %d", c.Replicas, maxReplicas)
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
	case c.ReaderChunks < 1:
		return wrong("HOLDFAST_STREAM_READER_CHUNKS", "%d is below 1", c.ReaderChunks)
	case c.ReaderBytes < 1:
		return wrong("HOLDFAST_STREAM_READER_BYTES", "%d is below 1", c.ReaderBytes)
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
