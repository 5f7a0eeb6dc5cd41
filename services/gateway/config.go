package gateway

import (
	"log/slog"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Config configures a gateway. Its defaults are those of pkg/config.
type Config struct {
	StateAddress     string        `env:"HOLDFAST_GATEWAY_STATE_ADDRESS" envDefault:"127.0.0.1:7411" doc:"address of the state service"`
	StreamAddress    string        `env:"HOLDFAST_GATEWAY_STREAM_ADDRESS" envDefault:"127.0.0.1:7412" doc:"address of the stream service"`
	Executors        []string      `env:"HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES" doc:"addresses of executors whose agents have methods for clients of /agents, separated by commas; empty for none"`
	MethodTimeout    time.Duration `env:"HOLDFAST_GATEWAY_METHOD_TIMEOUT" envDefault:"5m" doc:"limit of one call of a method"`
	APIKeys          string        `env:"HOLDFAST_GATEWAY_API_KEYS" doc:"YAML file with the API keys: a list of {name, tenant, sha256, expires}; systemMessages: true lets a key send system messages; changes take effect within seconds"`
	InsecureNoAuth   bool          `env:"HOLDFAST_GATEWAY_INSECURE_NO_AUTH" envDefault:"false" doc:"true serves without API keys, on loopback only"`
	CORSOrigins      []string      `env:"HOLDFAST_GATEWAY_CORS_ORIGINS" doc:"origins whose pages may call, separated by commas, such as https://app.example.com"`
	DefaultAgent     string        `env:"HOLDFAST_GATEWAY_DEFAULT_AGENT" doc:"agent of new sessions that name none; empty for the only announced agent"`
	AISDK            int           `env:"HOLDFAST_GATEWAY_AI_SDK" envDefault:"0" doc:"major version of the npm package ai of clients that do not tell theirs (parameter aiSdk); 0 sends them only parts known to all versions from 5 on"`
	MessageMetadata  bool          `env:"HOLDFAST_GATEWAY_MESSAGE_METADATA" envDefault:"true" doc:"true adds the run, the agent and the usage to streamed messages as metadata; apps with a metadata schema of their own may want false"`
	ChatHistory      bool          `env:"HOLDFAST_GATEWAY_CHAT_HISTORY" envDefault:"true" doc:"true stores the messages that a client sends before its first message to a new session, so that they are context for the agent; clients may invent them"`
	MaxBodyBytes     int64         `env:"HOLDFAST_GATEWAY_MAX_BODY_BYTES" envDefault:"8388608" doc:"largest request body in bytes"`
	MaxUploadBytes   int64         `env:"HOLDFAST_GATEWAY_MAX_UPLOAD_BYTES" envDefault:"268435456" doc:"largest request body of /chat with the files in it, in bytes"`
	MaxFileBytes     int64         `env:"HOLDFAST_GATEWAY_MAX_FILE_BYTES" envDefault:"20971520" doc:"largest file in bytes; the state service has a limit as well"`
	MaxFiles         int           `env:"HOLDFAST_GATEWAY_MAX_FILES" envDefault:"100" doc:"most files in one request"`
	FileMemory       int64         `env:"HOLDFAST_GATEWAY_FILE_MEMORY" envDefault:"268435456" doc:"most bytes of files that requests hold in memory at once; each holds one file"`
	PublicURL        string        `env:"HOLDFAST_GATEWAY_PUBLIC_URL" doc:"address of the gateway for browsers, such as https://agents.example.com, in the URLs of files; empty for the address of each request"`
	MaxStreams       int           `env:"HOLDFAST_GATEWAY_MAX_STREAMS" envDefault:"10000" doc:"how many streams may be open at once"`
	MaxSnapshots     int           `env:"HOLDFAST_GATEWAY_MAX_SNAPSHOTS" envDefault:"64" doc:"how many snapshots may be made at once"`
	MaxSocketChats   int           `env:"HOLDFAST_GATEWAY_MAX_SOCKET_CHATS" envDefault:"16" doc:"how many requests may be in flight on one WebSocket of /chat/ws or /agents"`
	Heartbeat        time.Duration `env:"HOLDFAST_GATEWAY_HEARTBEAT" envDefault:"15s" doc:"how often a quiet stream sends a comment, so that proxies keep it open"`
	SessionPoll      time.Duration `env:"HOLDFAST_GATEWAY_SESSION_POLL" envDefault:"30s" doc:"how often the session of an open WebSocket of /agents is read without a hint that it has changed"`
	StatePatience    time.Duration `env:"HOLDFAST_GATEWAY_STATE_PATIENCE" envDefault:"10s" doc:"how long an outage of the state service may last before a request fails, over all calls of the request"`
	HeartbeatPadding int           `env:"HOLDFAST_GATEWAY_HEARTBEAT_PADDING" envDefault:"2048" doc:"bytes of padding after such a comment if the request came through a proxy, because proxies may buffer; 0 for none"`
	ReaderChunks     int           `env:"HOLDFAST_GATEWAY_READER_CHUNKS" envDefault:"512" doc:"how many appends of a session a live reader may lag behind before it reads from the state service"`
	ReaderBytes      int           `env:"HOLDFAST_GATEWAY_READER_BYTES" envDefault:"4194304" doc:"the same in bytes; shared by the readers of a session"`
	ReplayWindow     time.Duration `env:"HOLDFAST_GATEWAY_REPLAY_WINDOW" envDefault:"10m" doc:"how long after its end the newest run can be streamed again"`
	ReadTimeout      time.Duration `env:"HOLDFAST_GATEWAY_READ_TIMEOUT" envDefault:"30s" doc:"how long a request body may take to arrive"`
	WriteTimeout     time.Duration `env:"HOLDFAST_GATEWAY_WRITE_TIMEOUT" envDefault:"30s" doc:"how long a client may take to read one write"`
}

// ProcessConfig configures a gateway process.
type ProcessConfig struct {
	Config
	Listen    string           `env:"HOLDFAST_GATEWAY_LISTEN" envDefault:"127.0.0.1:8080" doc:"address to serve on"`
	Grace     time.Duration    `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time for requests to end at shutdown"`
	Internal  rpc.Security     `envPrefix:"HOLDFAST_INTERNAL_"`
	Telemetry telemetry.Config // its variables have no prefix
}

// Peers are the dependencies of a gateway on its process.
type Peers struct {
	Network  rpc.Network      // nil is rpc.TCP
	Security rpc.Security     // for calls to the other services
	Log      *slog.Logger     // nil is slog.Default
	Now      func() time.Time // nil is time.Now
	NewID    func() string    // nil makes random ids
}

// CheckListen refuses to serve other machines without API keys: Invalid (INSECURE_LISTEN).
func CheckListen(address string, c Config) error {
	if c.APIKeys != "" || auth.Loopback(address) {
		return nil
	}
	return fault.New(fault.Invalid, "INSECURE_LISTEN",
		"other machines can reach %q, and no API keys are configured: set HOLDFAST_GATEWAY_API_KEYS to a file of keys, or listen on 127.0.0.1", address)
}

// maxPadding is larger than the default buffer of any proxy.
const maxPadding = 1 << 20

func (c Config) check() error {
	switch {
	case c.APIKeys == "" && !c.InsecureNoAuth:
		return invalid("no API keys are configured: set HOLDFAST_GATEWAY_API_KEYS to a file of keys or, to serve this machine alone without keys, HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true")
	case c.APIKeys != "" && c.InsecureNoAuth:
		return invalid("HOLDFAST_GATEWAY_API_KEYS and HOLDFAST_GATEWAY_INSECURE_NO_AUTH contradict each other: set only one")
	case c.AISDK != 0 && c.AISDK < 5:
		return invalid("HOLDFAST_GATEWAY_AI_SDK is %d: it must be 5, 6, 7 or higher, or 0 for any", c.AISDK)
	case c.MaxSnapshots <= 0 || c.MaxSocketChats <= 0:
		return invalid("HOLDFAST_GATEWAY_MAX_SNAPSHOTS and _MAX_SOCKET_CHATS must be above 0")
	case c.MaxBodyBytes <= 0 || c.MaxStreams <= 0:
		return invalid("HOLDFAST_GATEWAY_MAX_BODY_BYTES and _MAX_STREAMS must be above 0")
	case c.MaxUploadBytes <= 0 || c.MaxFileBytes <= 0 || c.MaxFiles <= 0:
		return invalid("HOLDFAST_GATEWAY_MAX_UPLOAD_BYTES, _MAX_FILE_BYTES and _MAX_FILES must be above 0")
	case c.FileMemory < files.MemoryOf(c.MaxFileBytes):
		return invalid("HOLDFAST_GATEWAY_FILE_MEMORY is %d: a file of HOLDFAST_GATEWAY_MAX_FILE_BYTES takes %d", c.FileMemory, files.MemoryOf(c.MaxFileBytes))
	case c.ReaderChunks <= 0 || c.ReaderBytes <= 0:
		return invalid("HOLDFAST_GATEWAY_READER_CHUNKS and _READER_BYTES must be above 0")
	case c.HeartbeatPadding < 0 || c.HeartbeatPadding > maxPadding:
		return invalid("HOLDFAST_GATEWAY_HEARTBEAT_PADDING is %d: it must be 0 to %d bytes", c.HeartbeatPadding, maxPadding)
	case c.Heartbeat <= 0 || c.ReadTimeout <= 0 || c.WriteTimeout <= 0 || c.SessionPoll <= 0 || c.MethodTimeout <= 0:
		return invalid("HOLDFAST_GATEWAY_HEARTBEAT, _READ_TIMEOUT, _WRITE_TIMEOUT, _SESSION_POLL and _METHOD_TIMEOUT must be above 0")
	default:
		return nil
	}
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "CONFIG_INVALID", format, args...)
}
