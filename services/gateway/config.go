package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Config configures a gateway. Its defaults are those of pkg/config.
type Config struct {
	StateAddress     string        `env:"HOLDFAST_GATEWAY_STATE_ADDRESS" envDefault:"127.0.0.1:7411" doc:"address of the state service"`
	StreamAddress    string        `env:"HOLDFAST_GATEWAY_STREAM_ADDRESS" envDefault:"127.0.0.1:7412" doc:"address of the stream service"`
	Executors        []string      `env:"HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES" doc:"addresses of executors whose agents have methods for clients of /agents, or that check stored agents, separated by commas; empty for none"`
	ErasureTime      time.Duration `env:"HOLDFAST_GATEWAY_ERASURE_TIME" envDefault:"20s" doc:"how long one request to erase a user or a tenant works before it answers that more is left"`
	Hooks            string        `env:"HOLDFAST_GATEWAY_HOOKS" doc:"YAML file with webhooks that are asked about requests before anything of them is done: beforeEntry with url, secrets, timeout, onFailure and kinds; empty for none. It is read at the start"`
	HookTimeout      time.Duration `env:"HOLDFAST_GATEWAY_HOOK_TIMEOUT" envDefault:"10s" doc:"limit of one call of a hook of the program around the gateway"`
	MethodTimeout    time.Duration `env:"HOLDFAST_GATEWAY_METHOD_TIMEOUT" envDefault:"5m" doc:"limit of one call of a method"`
	APIKeys          string        `env:"HOLDFAST_GATEWAY_API_KEYS" doc:"YAML file with the API keys: a list of {name, tenant, sha256, scopes, subject, expires}; scopes are read, chat, approve, operate and admin (the first three if missing), and subject is the only user whose sessions the key reaches; changes take effect within seconds"`
	InsecureNoAuth   bool          `env:"HOLDFAST_GATEWAY_INSECURE_NO_AUTH" envDefault:"false" doc:"true serves without API keys, on loopback only"`
	CORSOrigins      []string      `env:"HOLDFAST_GATEWAY_CORS_ORIGINS" doc:"origins whose pages may call, separated by commas, such as https://app.example.com"`
	DefaultAgent     string        `env:"HOLDFAST_GATEWAY_DEFAULT_AGENT" doc:"agent of new sessions that name none; empty for the only announced agent"`
	AISDK            int           `env:"HOLDFAST_GATEWAY_AI_SDK" envDefault:"0" doc:"major version of the npm package ai of clients that do not tell theirs (parameter aiSdk); 0 sends them only parts known to all versions from 5 on"`
	MessageMetadata  bool          `env:"HOLDFAST_GATEWAY_MESSAGE_METADATA" envDefault:"true" doc:"true adds the run, the agent and the usage to streamed messages as metadata; apps with a metadata schema of their own may want false"`
	ChatMissing      string        `env:"HOLDFAST_GATEWAY_CHAT_MISSING" envDefault:"rewind" doc:"what POST /chat does if the client's conversation lacks newer messages of users: rewind removes them, refuse answers 409 RUN_STALE, keep only counts them in a header; clients that name their run are never guessed at"`
	ChatHistory      bool          `env:"HOLDFAST_GATEWAY_CHAT_HISTORY" envDefault:"true" doc:"true stores the messages that a client sends before its first message to a new session, so that they are context for the agent; clients may invent them"`
	MaxBodyBytes     int64         `env:"HOLDFAST_GATEWAY_MAX_BODY_BYTES" envDefault:"8388608" doc:"largest request body in bytes"`
	BodyMemory       int64         `env:"HOLDFAST_GATEWAY_BODY_MEMORY" envDefault:"67108864" doc:"most bytes of request bodies above 64 KiB that are in memory at once, without files; further ones are refused for a moment"`
	MaxParts         int           `env:"HOLDFAST_GATEWAY_MAX_PARTS" envDefault:"10000" doc:"most parts of the messages that are decoded of a request of /chat, such as its answers to calls"`
	MaxUploadBytes   int64         `env:"HOLDFAST_GATEWAY_MAX_UPLOAD_BYTES" envDefault:"268435456" doc:"largest request body of /chat with the files in it, in bytes"`
	MaxFileBytes     int64         `env:"HOLDFAST_GATEWAY_MAX_FILE_BYTES" envDefault:"20971520" doc:"largest file in bytes; the state service has a limit as well"`
	MaxFiles         int           `env:"HOLDFAST_GATEWAY_MAX_FILES" envDefault:"100" doc:"most files in one request"`
	FileMemory       int64         `env:"HOLDFAST_GATEWAY_FILE_MEMORY" envDefault:"268435456" doc:"most bytes of files that requests hold in memory at once; each holds one file"`
	MaxFileReads     int           `env:"HOLDFAST_GATEWAY_MAX_FILE_READS" envDefault:"2000" doc:"how many files may be sent to clients at once; each takes up to about 500 KiB of memory"`
	PublicURL        string        `env:"HOLDFAST_GATEWAY_PUBLIC_URL" doc:"address of the gateway for browsers, such as https://agents.example.com, in the URLs of files; empty for the address of each request"`
	TokenSecrets     []string      `env:"HOLDFAST_GATEWAY_TOKEN_SECRET" secret:"true" doc:"secrets of at least 32 random bytes for the tokens of POST /tokens, separated by commas: the first signs, and all verify; empty mints no tokens"`
	TokenMaxTTL      time.Duration `env:"HOLDFAST_GATEWAY_TOKEN_MAX_TTL" envDefault:"24h" doc:"how long such a token may be valid"`
	AuthFailures     int           `env:"HOLDFAST_GATEWAY_AUTH_FAILURES" envDefault:"20" doc:"how many wrong credentials an address may send within the window before more of them are answered with 429; good ones always pass"`
	AuthWindow       time.Duration `env:"HOLDFAST_GATEWAY_AUTH_WINDOW" envDefault:"1m" doc:"the window for wrong credentials"`
	Prices           string        `env:"HOLDFAST_GATEWAY_PRICES" doc:"YAML file with the prices of models, from which usage gets its costs: currency, and models with {input, cachedInput, output} per million tokens by provider/model; empty for none. It is read at the start"`
	MaxStreams       int           `env:"HOLDFAST_GATEWAY_MAX_STREAMS" envDefault:"10000" doc:"how many streams may be open at once"`
	SparePercent     int           `env:"HOLDFAST_GATEWAY_SPARE_PERCENT" envDefault:"10" doc:"streams beyond HOLDFAST_GATEWAY_MAX_STREAMS, in percent of these and rounded up. They are for tenants with few open streams, so a tenant that opens all streams does not lock out the others. The same holds for HOLDFAST_GATEWAY_BODY_MEMORY, _FILE_MEMORY and _MAX_SNAPSHOTS, and for the reads of one file and HOLDFAST_GATEWAY_MAX_FILE_READS. 0 for none"`
	MaxTenantStreams int           `env:"HOLDFAST_GATEWAY_MAX_TENANT_STREAMS" envDefault:"0" doc:"how many of them one tenant may have; 0 for any number. Each gateway counts its own"`
	MaxUserStreams   int           `env:"HOLDFAST_GATEWAY_MAX_USER_STREAMS" envDefault:"0" doc:"how many of them one user of a tenant may have; 0 for any number"`
	MaxSnapshots     int           `env:"HOLDFAST_GATEWAY_MAX_SNAPSHOTS" envDefault:"64" doc:"how many snapshots may be made at once"`
	MaxSocketChats   int           `env:"HOLDFAST_GATEWAY_MAX_SOCKET_CHATS" envDefault:"16" doc:"how many requests may be in flight on one WebSocket of /chat/ws or /agents"`
	Heartbeat        time.Duration `env:"HOLDFAST_GATEWAY_HEARTBEAT" envDefault:"15s" doc:"how often a quiet stream sends a comment, so that proxies keep it open"`
	SessionPoll      time.Duration `env:"HOLDFAST_GATEWAY_SESSION_POLL" envDefault:"30s" doc:"how often the session of an open WebSocket of /agents is read without a hint that it has changed"`
	StatePatience    time.Duration `env:"HOLDFAST_GATEWAY_STATE_PATIENCE" envDefault:"10s" doc:"how long an outage of the state service may last before a request fails, over all calls of the request"`
	HeartbeatPadding int           `env:"HOLDFAST_GATEWAY_HEARTBEAT_PADDING" envDefault:"2048" doc:"bytes of padding after such a comment if the request came through a proxy, because proxies may buffer; 0 for none"`
	ReaderChunks     int           `env:"HOLDFAST_GATEWAY_READER_CHUNKS" envDefault:"512" doc:"how many appends of a session a live reader may lag behind before it reads from the state service"`
	ReaderBytes      int           `env:"HOLDFAST_GATEWAY_READER_BYTES" envDefault:"4194304" doc:"the same in bytes; shared by the readers of a session"`
	ReplayWindow     time.Duration `env:"HOLDFAST_GATEWAY_REPLAY_WINDOW" envDefault:"10m" doc:"how long after its end the newest run can be streamed again"`
	MaxConnections   int           `env:"HOLDFAST_GATEWAY_MAX_CONNECTIONS" envDefault:"20000" doc:"how many connections may be open at once; a new one then replaces the one that has waited longest for a request"`
	MaxHTTP2Streams  int           `env:"HOLDFAST_GATEWAY_MAX_HTTP2_STREAMS" envDefault:"250" doc:"how many requests may be in flight on one HTTP/2 connection"`
	MaxHeaderBytes   int           `env:"HOLDFAST_GATEWAY_MAX_HEADER_BYTES" envDefault:"65536" doc:"largest header of a request in bytes, with its URL"`
	HeaderTimeout    time.Duration `env:"HOLDFAST_GATEWAY_HEADER_TIMEOUT" envDefault:"10s" doc:"how long the header of a request may take to arrive"`
	IdleTimeout      time.Duration `env:"HOLDFAST_GATEWAY_IDLE_TIMEOUT" envDefault:"2m" doc:"how long a connection may stay open between two requests"`
	ReadTimeout      time.Duration `env:"HOLDFAST_GATEWAY_READ_TIMEOUT" envDefault:"30s" doc:"how long a request body may take to arrive"`
	WriteTimeout     time.Duration `env:"HOLDFAST_GATEWAY_WRITE_TIMEOUT" envDefault:"30s" doc:"how long a client may take to read one write"`

	JWT auth.JWTConfig `envPrefix:"HOLDFAST_GATEWAY_JWT_"`
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
	Meter    metric.Meter     // nil measures nothing
	Now      func() time.Time // nil is time.Now
	NewID    func() string    // nil makes random ids
	Audit    auth.Auditor     // nil records nothing
	// BeforeEntry is asked about each request that starts, continues, answers, stops or rewinds a run, over any transport, after
	// the rights of its caller were checked and before anything of it is done. It may change the entry, or return a *Refusal. An
	// error of another type, a panic, and a return after HOLDFAST_GATEWAY_HOOK_TIMEOUT fail the request: INTERNAL, and nothing is
	// started. A client that repeats a request asks again. Nil asks nobody.
	BeforeEntry func(context.Context, *Entry) error
	// AfterEntry is called when such a request was done. The answer to the client waits for it, at most
	// HOLDFAST_GATEWAY_HOOK_TIMEOUT. It is not called again after a crash. Nil is called for none.
	AfterEntry func(context.Context, Entered)
	// Routes are routes of the program, by method and path: "GET /tenants/{id}/report", with the wildcards of http.ServeMux. New
	// refuses one that could take a request of the gateway's own routes: Invalid (ROUTE_INVALID).
	Routes map[string]Route
	// Authenticate is asked first who makes a request, for a program with users of its own. A nil caller leaves the answer to
	// the credentials of the configuration. An error refuses the request; a fault keeps its kind, and any other error is
	// INTERNAL. The gateway then refuses requests of pages of other origins that change something, unless
	// HOLDFAST_GATEWAY_CORS_ORIGINS lists them, because browsers send cookies along. Nil asks nobody.
	Authenticate func(*http.Request) (*Caller, error)
}

// hasCredentials reports whether callers need a credential.
func (c Config) hasCredentials() bool { return c.APIKeys != "" || c.JWT.Issuer != "" }

// CheckListen refuses to serve other machines without credentials: Invalid (INSECURE_LISTEN). option is what configures
// the address, such as HOLDFAST_GATEWAY_LISTEN.
func CheckListen(option, address string, c Config) error {
	if c.hasCredentials() || auth.Loopback(address) {
		return nil
	}
	return fault.New(fault.Invalid, "INSECURE_LISTEN",
		"%s is %q, which other machines can reach, and no credentials are configured: "+
			"set HOLDFAST_GATEWAY_API_KEYS to a file of keys or HOLDFAST_GATEWAY_JWT_ISSUER, "+
			"or set %[1]s to a port of 127.0.0.1", option, address)
}

// maxPadding is larger than the default buffer of any proxy.
const maxPadding = 1 << 20

// minHeaderBytes is enough for the headers of a browser.
const minHeaderBytes = 4 << 10

// check checks the configuration. authenticated: the program authenticates callers.
func (c Config) check(authenticated bool) error {
	switch {
	case !c.hasCredentials() && !c.InsecureNoAuth && !authenticated:
		return invalid("no credentials are configured: set HOLDFAST_GATEWAY_API_KEYS to a file of keys, or HOLDFAST_GATEWAY_JWT_ISSUER, " +
			"or, to serve this machine alone without keys, HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true")
	case authenticated && c.InsecureNoAuth:
		return invalid("HOLDFAST_GATEWAY_INSECURE_NO_AUTH is true, and the program authenticates callers: leave out one of both")
	case c.hasCredentials() && c.InsecureNoAuth:
		return invalid("HOLDFAST_GATEWAY_API_KEYS or _JWT_ISSUER and HOLDFAST_GATEWAY_INSECURE_NO_AUTH contradict each other: set only one")
	case c.AISDK != 0 && c.AISDK < 5:
		return invalid("HOLDFAST_GATEWAY_AI_SDK is %d: it must be 5, 6, 7 or higher, or 0 for any", c.AISDK)
	case !chat.KnowsMissingPolicy(c.ChatMissing):
		return invalid("HOLDFAST_GATEWAY_CHAT_MISSING is %q: it must be rewind, refuse or keep", c.ChatMissing)
	case c.MaxSnapshots <= 0 || c.MaxSocketChats <= 0:
		return invalid("HOLDFAST_GATEWAY_MAX_SNAPSHOTS and _MAX_SOCKET_CHATS must be above 0")
	case c.MaxBodyBytes <= 0 || c.MaxStreams <= 0 || c.MaxParts <= 0:
		return invalid("HOLDFAST_GATEWAY_MAX_BODY_BYTES, _MAX_STREAMS and _MAX_PARTS must be above 0")
	case c.MaxTenantStreams < 0 || c.MaxUserStreams < 0 || c.SparePercent < 0:
		return invalid("HOLDFAST_GATEWAY_MAX_TENANT_STREAMS, _MAX_USER_STREAMS and _SPARE_PERCENT must not be below 0")
	case c.MaxUploadBytes <= 0 || c.MaxFileBytes <= 0 || c.MaxFiles <= 0 || c.MaxFileReads <= 0:
		return invalid("HOLDFAST_GATEWAY_MAX_UPLOAD_BYTES, _MAX_FILE_BYTES, _MAX_FILES and _MAX_FILE_READS must be above 0")
	case c.BodyMemory < c.MaxBodyBytes:
		return invalid("HOLDFAST_GATEWAY_BODY_MEMORY is %d: it must be HOLDFAST_GATEWAY_MAX_BODY_BYTES or more", c.BodyMemory)
	case c.FileMemory < files.MemoryOf(c.MaxFileBytes):
		return invalid("HOLDFAST_GATEWAY_FILE_MEMORY is %d: a file of HOLDFAST_GATEWAY_MAX_FILE_BYTES takes %d",
			c.FileMemory, files.MemoryOf(c.MaxFileBytes))
	case c.MaxConnections <= 0 || c.MaxHTTP2Streams <= 0 || c.MaxHeaderBytes < minHeaderBytes:
		return invalid("HOLDFAST_GATEWAY_MAX_CONNECTIONS and _MAX_HTTP2_STREAMS must be above 0, and _MAX_HEADER_BYTES must be %d or more",
			minHeaderBytes)
	case c.HeaderTimeout <= 0 || c.IdleTimeout <= 0:
		return invalid("HOLDFAST_GATEWAY_HEADER_TIMEOUT and _IDLE_TIMEOUT must be above 0")
	case c.ReaderChunks <= 0 || c.ReaderBytes <= 0:
		return invalid("HOLDFAST_GATEWAY_READER_CHUNKS and _READER_BYTES must be above 0")
	case c.HeartbeatPadding < 0 || c.HeartbeatPadding > maxPadding:
		return invalid("HOLDFAST_GATEWAY_HEARTBEAT_PADDING is %d: it must be 0 to %d bytes", c.HeartbeatPadding, maxPadding)
	case c.HookTimeout <= 0:
		return invalid("HOLDFAST_GATEWAY_HOOK_TIMEOUT must be above 0")
	case c.Heartbeat <= 0 || c.ReadTimeout <= 0 || c.WriteTimeout <= 0 || c.SessionPoll <= 0 || c.MethodTimeout <= 0 || c.ErasureTime <= 0:
		return invalid("HOLDFAST_GATEWAY_HEARTBEAT, _READ_TIMEOUT, _WRITE_TIMEOUT, _SESSION_POLL, _METHOD_TIMEOUT and _ERASURE_TIME " +
			"must be above 0")
	default:
		return nil
	}
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "CONFIG_INVALID", format, args...)
}
