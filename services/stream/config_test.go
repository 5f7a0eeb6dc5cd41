package stream_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream"
)

// open opens a service with a possibly invalid configuration and returns the refused variable.
func open(t *testing.T, c stream.Config) (variable, detail string) {
	t.Helper()
	service, err := stream.New(t.Context(), c, stream.Peers{Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		if err := service.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		return "", ""
	}
	f, ok := fault.From(err)
	if !ok || f.Kind != fault.Invalid || f.Reason != "CONFIG_INVALID" {
		return err.Error(), ""
	}
	variable, detail, _ = strings.Cut(f.Detail, ": ")
	return variable, detail
}

func TestAWrongConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variable string
		spoil    func(*stream.Config)
		says     string // a part of the detail
	}{
		"an unknown log":        {"HOLDFAST_STREAM_BUS", func(c *stream.Config) { c.Bus = "kafka" }, "kafka"},
		"no directory":          {"HOLDFAST_STREAM_DATA_DIR", func(c *stream.Config) { c.DataDir = "" }, "directory"},
		"no server":             {"HOLDFAST_STREAM_NATS_URL", func(c *stream.Config) { c.Bus, c.NATSURL = stream.BusNATS, "" }, "empty"},
		"too many partitions":   {"HOLDFAST_STREAM_PARTITIONS", func(c *stream.Config) { c.Partitions = 65 }, "65"},
		"no partition":          {"HOLDFAST_STREAM_PARTITIONS", func(c *stream.Config) { c.Partitions = 0 }, "0"},
		"no copy":               {"HOLDFAST_STREAM_REPLICAS", func(c *stream.Config) { c.Replicas = 0 }, "0"},
		"too many copies":       {"HOLDFAST_STREAM_REPLICAS", func(c *stream.Config) { c.Bus, c.Replicas = stream.BusNATS, 6 }, "6"},
		"copies in one process": {"HOLDFAST_STREAM_REPLICAS", func(c *stream.Config) { c.Replicas = 3 }, "set it to 1, or HOLDFAST_STREAM_BUS to nats"},
		"copies in memory":      {"HOLDFAST_STREAM_REPLICAS", func(c *stream.Config) { c.Bus, c.Replicas = stream.BusMemory, 2 }, "set it to 1"},
		"a short life":          {"HOLDFAST_STREAM_TTL", func(c *stream.Config) { c.TTL = time.Second - 1 }, "1s"},
		"a small partition":     {"HOLDFAST_STREAM_PARTITION_BYTES", func(c *stream.Config) { c.PartitionBytes = 1<<20 - 1 }, "1048576"},
		"a small chunk":         {"HOLDFAST_STREAM_CHUNK_BYTES", func(c *stream.Config) { c.ChunkBytes = 1<<10 - 1 }, "1024"},
		"a large chunk":         {"HOLDFAST_STREAM_CHUNK_BYTES", func(c *stream.Config) { c.ChunkBytes = 4<<20 + 1 }, "4194304"},
		"no check":              {"HOLDFAST_STREAM_CHECK", func(c *stream.Config) { c.Check = 0 }, "0"},
		"a short sync":          {"HOLDFAST_STREAM_SYNC", func(c *stream.Config) { c.Sync = 100*time.Millisecond - 1 }, "before each acknowledgement"},
		"a negative sync":       {"HOLDFAST_STREAM_SYNC", func(c *stream.Config) { c.Sync = -time.Second }, "before each acknowledgement"},
		"no patience":           {"HOLDFAST_STREAM_BOOT_TIMEOUT", func(c *stream.Config) { c.BootTimeout = -1 }, "above 0"},
	} {
		config := stream.Defaults()
		config.DataDir = t.TempDir()
		c.spoil(&config)
		if variable, detail := open(t, config); variable != c.variable || !strings.Contains(detail, c.says) {
			t.Errorf("%s: got %q: %q, want %s with %q", name, variable, detail, c.variable, c.says)
		}
	}
}

func TestALimitMayBeReached(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]func(*stream.Config){
		"partitions":                func(c *stream.Config) { c.Partitions = 64 },
		"one partition":             func(c *stream.Config) { c.Partitions = 1 },
		"life":                      func(c *stream.Config) { c.TTL = time.Second },
		"a small partition":         func(c *stream.Config) { c.PartitionBytes = 1 << 20 },
		"a small chunk":             func(c *stream.Config) { c.ChunkBytes = 1 << 10 },
		"a large chunk":             func(c *stream.Config) { c.ChunkBytes = 4 << 20 },
		"the quickest sync":         func(c *stream.Config) { c.Bus, c.Sync = stream.BusEmbedded, 100*time.Millisecond },
		"a sync before each answer": func(c *stream.Config) { c.Bus, c.Sync = stream.BusEmbedded, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := onMemory()
			config.DataDir = t.TempDir()
			reach(&config)
			if variable, detail := open(t, config); variable != "" {
				t.Errorf("refused: %s: %s", variable, detail)
			}
		})
	}
}
