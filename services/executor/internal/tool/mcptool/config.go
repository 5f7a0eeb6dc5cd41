package mcptool

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/outbound"
)

// Config describes a server. Two that are equal by reflect.DeepEqual describe the same.
type Config struct {
	// Name is the server's in errors and logs.
	Name string

	// Command is the program and its arguments, for a server that is a child process. It is
	// an absolute path, or a name that is looked up in PATH, and has to be allowed.
	Command []string
	// Env is the environment of the child, besides PATH and HOME. ${NAME} in values is
	// looked up.
	Env map[string]string
	// Dir is where the child runs; empty is where the executor does.
	Dir string

	// URL is that of a server of streamable HTTP, which has to be on an allowed host.
	URL string
	// Headers go with every request. ${NAME} in values is looked up.
	Headers map[string]string

	// Include names the tools that are taken, and empty takes all. Exclude names those
	// that are not. The names are the server's own.
	Include, Exclude []string
	// Prefix stands before the names by which agents know the tools.
	Prefix string

	// Approve names the tools whose calls wait for the yes of a human; * is all of them.
	Approve []string
	// Safe names the tools that may run again after a crash: see agent.RetrySafe; * is
	// all of them.
	Safe []string
	// ReadOnly names the tools that change nothing: see agent.Tool; * is all of them.
	ReadOnly []string
	// TrustHints makes tools ReadOnly, too, of which the server says so (readOnlyHint), and
	// safe those that it calls idempotent. A server may say anything of its tools.
	TrustHints bool

	// Timeout bounds a call; 0 leaves it to the executor.
	Timeout time.Duration
	// ConnectTimeout bounds a start with the listing of the tools; 0 means 30 seconds. A
	// session whose server takes longer than this to read a message, or to answer a ping
	// that follows calls without an answer, is ended.
	ConnectTimeout time.Duration
}

// Allowed says what servers may be.
type Allowed struct {
	// Commands are names of programs, as in npx, and absolute paths. A name allows the
	// program of that name that PATH leads to, and no path.
	Commands []string
	// Hosts are those of HTTP servers.
	Hosts outbound.Policy
}

// Check gives Invalid (MCP_INVALID): a line of the detail for each mistake, which begins
// with the field, as in "command: …".
func (c Config) Check(allowed Allowed) error {
	var mistakes []string
	mistake := func(field, format string, args ...any) {
		mistakes = append(mistakes, field+": "+fmt.Sprintf(format, args...))
	}
	if c.Name == "" {
		mistake("name", "there is none")
	}
	switch {
	case len(c.Command) > 0 && c.URL != "":
		mistake("url", "a server has a command or a url, not both")
	case len(c.Command) > 0:
		c.checkCommand(allowed, mistake)
	case c.URL != "":
		c.checkURL(allowed, mistake)
	default:
		mistake("command", "a server needs a command, or a url")
	}
	if len(c.Prefix) > 0 && strings.ContainsFunc(c.Prefix, notOfNames) {
		mistake("prefix", "%q must have characters of A-Z a-z 0-9 _ - only", c.Prefix)
	}
	if c.Timeout < 0 || c.ConnectTimeout < 0 {
		mistake("timeout", "it must not be below 0")
	}
	if len(mistakes) > 0 {
		return fault.New(fault.Invalid, "MCP_INVALID", "%s", strings.Join(mistakes, "\n"))
	}
	return nil
}

func (c Config) checkCommand(allowed Allowed, mistake func(field, format string, args ...any)) {
	program := c.Command[0]
	switch {
	case strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program):
		mistake("command", "%q must be an absolute path, or a name without slashes", program)
	case !slices.Contains(allowed.Commands, program):
		mistake("command", "%q is not on the list of allowed commands", program)
	}
	if len(c.Headers) > 0 {
		mistake("headers", "a command has none")
	}
	for name := range maps.Keys(c.Env) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			mistake("env", "%q is no name of a variable", name)
		}
	}
}

func (c Config) checkURL(allowed Allowed, mistake func(field, format string, args ...any)) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "":
		mistake("url", "%q is no URL", c.URL)
	case u.User != nil:
		mistake("url", "it must not hold credentials; use a header")
	default:
		if err := allowed.Hosts.Allows(u); err != nil {
			mistake("url", "%v", err)
		}
	}
	if len(c.Env) > 0 || c.Dir != "" {
		mistake("env", "a url has none")
	}
}

// expand puts what is looked up in the place of ${NAME}.
func expand(values map[string]string, lookup func(string) (string, bool)) (map[string]string, error) {
	expanded := make(map[string]string, len(values))
	for name, text := range values {
		var out strings.Builder
		for {
			before, rest, found := strings.Cut(text, "${")
			out.WriteString(before)
			if !found {
				break
			}
			variable, behind, closed := strings.Cut(rest, "}")
			value, ok := "", false
			if lookup != nil && closed {
				value, ok = lookup(variable)
			}
			if !ok {
				return nil, fmt.Errorf("the value of %s needs the environment variable %s, which is not set", name, variable)
			}
			out.WriteString(value)
			text = behind
		}
		expanded[name] = out.String()
	}
	return expanded, nil
}

func notOfNames(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
}
