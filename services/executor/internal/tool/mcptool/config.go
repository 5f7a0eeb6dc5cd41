package mcptool

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
)

// Config describes a server. Two configs equal by reflect.DeepEqual describe the same server.
type Config struct {
	// Name identifies the server in errors and logs.
	Name string

	// Command is the program and its arguments, for a server as a child process. The program is an absolute path
	// or a name in PATH, and must be allowed.
	Command []string
	// Env is the child's environment beside PATH and HOME. ${NAME} in values is resolved.
	Env map[string]string
	// Dir is the child's working directory; empty means the executor's.
	Dir string

	// URL is the address of a server with streamable HTTP, on an allowed host.
	URL string
	// Headers are sent with every request. ${NAME} in values is resolved.
	Headers map[string]string

	// Include lists the tools to use; empty uses all. Exclude lists tools not to use. The names are the server's
	// own.
	Include, Exclude []string
	// Prefix precedes the names of the tools for agents.
	Prefix string

	// Approve lists the tools whose calls need a human's approval; * means all.
	Approve []string
	// Safe lists the tools that may run again after a crash: see agent.RetrySafe; * means all.
	Safe []string
	// ReadOnly lists the tools without effects: see agent.Tool; * means all.
	ReadOnly []string
	// TrustHints accepts the server's own hints: readOnlyHint makes a tool ReadOnly, and idempotentHint makes it
	// safe. A server may claim anything about its tools.
	TrustHints bool
	// Context sends the trusted context of each call, with the tenant and the user, as the metadata holdfast.run/context:
	// see package trusted. A foreign server should not learn them.
	Context bool

	// Timeout limits a call; 0 leaves it to the executor.
	Timeout time.Duration
	// ConnectTimeout limits a start including the listing of the tools; 0 means 30 seconds. A session ends if
	// its server takes longer than this to read a message, or to answer a ping after unanswered calls.
	ConnectTimeout time.Duration
}

// Allowed restricts servers.
type Allowed struct {
	// Commands are program names, as in npx, and absolute paths. A name permits the program found in PATH, and
	// no path.
	Commands []string
	// CommandsVariable is the environment variable with Commands, for errors; it may be empty.
	CommandsVariable string
	// Hosts restricts HTTP servers.
	Hosts outbound.Policy
}

// Check returns Invalid (MCP_INVALID): the detail has one line per mistake, beginning with the field, as in
// "command: …".
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
		where := ""
		if allowed.CommandsVariable != "" {
			where = ": add it to " + allowed.CommandsVariable
		}
		mistake("command", "%q is not on the list of allowed commands%s", program, where)
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

// expand resolves ${NAME} in values.
func expand(values map[string]string, lookup func(string) (string, error)) (map[string]string, error) {
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
			if !closed {
				return nil, fmt.Errorf("the value of %s has a ${ without a }", name)
			}
			value, err := "", errors.New("is not available")
			if lookup != nil {
				value, err = lookup(variable)
			}
			if err != nil {
				return nil, fmt.Errorf("the value of %s needs the environment variable %s, which %w", name, variable, err)
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
