package registry

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// variablePattern matches the patterns of AgentsConfig.FileEnv.
var variablePattern = regexp.MustCompile(`^[A-Za-z0-9_*]+$`)

// check returns Invalid (CONFIG_INVALID, HOSTS_INVALID) for malformed lists.
func (c AgentsConfig) check() error {
	for _, pattern := range c.FileEnv {
		if !variablePattern.MatchString(pattern) {
			return fault.New(fault.Invalid, "CONFIG_INVALID",
				"HOLDFAST_EXECUTOR_FILE_ENV has %q; write names of environment variables, with * for any part", pattern)
		}
	}
	if err := errors.Join(c.modelHosts().Check(), c.endpointHosts().Check()); err != nil {
		return err
	}
	return c.toolHosts().Check()
}

// modelHosts allows hosts of a baseURL, beside this machine and the provider's own host.
func (c AgentsConfig) modelHosts() outbound.Policy { return outbound.Policy{Hosts: c.ModelHosts} }

// mayName reports whether files may name the variable. They may not name variables of Holdfast.
func (c AgentsConfig) mayName(variable string) bool {
	if strings.HasPrefix(strings.ToUpper(variable), "HOLDFAST_") {
		return false
	}
	return slices.ContainsFunc(c.FileEnv, func(pattern string) bool {
		matched, _ := path.Match(pattern, variable) // check has refused malformed patterns
		return matched
	})
}

// lookupNamed finds a variable for a file, if files may name it. Its error continues the variable's name.
func (l *loader) lookupNamed(variable string) (string, error) {
	switch value, ok := l.lookupEnv(variable); {
	case strings.HasPrefix(strings.ToUpper(variable), "HOLDFAST_"):
		return "", errors.New("belongs to Holdfast and is never given to agents")
	case !l.config.mayName(variable):
		passed := ""
		if variable == "PATH" || variable == "HOME" {
			passed = "; the process of an MCP server has it anyway"
		}
		texts := "agents files"
		if l.envVariable != "" {
			texts = "stored agents"
		}
		return "", fmt.Errorf("is not one that %s may name: set %s to %q to allow it%s", texts,
			cmp.Or(l.envVariable, "HOLDFAST_EXECUTOR_FILE_ENV"), strings.Join(append(slices.Clone(l.config.FileEnv), variable), ","), passed)
	case !ok:
		return "", errors.New("is not set")
	default:
		return value, nil
	}
}

// openModel makes the model of a provider in a file. If the file names no key, the key comes
// from the provider's own variable and goes to the provider alone: a server at a base URL gets
// the key that the file names, or none.
func (l *loader) openModel(s agents.Settings) (model.Model, error) {
	c := ModelConfig{
		Provider: s.Provider, API: s.API, BaseURL: s.BaseURL, Script: s.Script, IdleTimeout: s.IdleTimeout,
		Profile: s.Profile, ModelProfiles: s.ModelProfiles,
	}
	remote, ok := remoteProvider(s.Provider)
	switch {
	case !ok:
		return OpenModel(c)
	case s.APIKeyEnv != "" && !l.config.mayName(s.APIKeyEnv):
		return nil, fmt.Errorf(
			"apiKeyEnv: files may not name the variable %q; HOLDFAST_EXECUTOR_FILE_ENV lists the variables that they may name", s.APIKeyEnv)
	case s.APIKeyEnv != "":
		c.APIKey = firstSet(l.lookupEnv, []string{s.APIKeyEnv})
	case s.BaseURL == "":
		c.APIKey = firstSet(l.lookupEnv, remote.keyVariables)
	}
	if c.APIKey == "" && (s.APIKeyEnv != "" || s.BaseURL == "") {
		return nil, fmt.Errorf("the environment variable %s is not set; it must hold the API key", cmp.Or(s.APIKeyEnv, remote.keyVariables[0]))
	}
	m, err := OpenModel(c)
	if err != nil {
		return nil, err
	}
	return m, l.config.checkHost("baseURL", s.BaseURL, remote.baseURL)
}

// openRemote checks the address of another Holdfast in a file, and returns its API key.
func (l *loader) openRemote(address, keyVariable string) (key string, err error) {
	switch {
	case keyVariable == "":
	case !l.config.mayName(keyVariable):
		return "", fmt.Errorf(
			"apiKeyEnv: files may not name the variable %q; HOLDFAST_EXECUTOR_FILE_ENV lists the variables that they may name", keyVariable)
	default:
		if key = firstSet(l.lookupEnv, []string{keyVariable}); key == "" {
			return "", fmt.Errorf("the environment variable %s is not set; it must hold the API key", keyVariable)
		}
	}
	return key, l.config.checkHost("url", address, "")
}

// checkHost returns an error unless the address in a field of a file is empty, on the provider's own
// host, on this machine, or on a host of HOLDFAST_EXECUTOR_MODEL_HOSTS.
func (c AgentsConfig) checkHost(field, inFile, providersOwn string) error {
	u, err := url.Parse(inFile)
	if err != nil || inFile == "" {
		return err
	}
	own, err := url.Parse(providersOwn)
	if err != nil {
		return err
	}
	if u.Scheme == own.Scheme && u.Host == own.Host || outbound.IsLoopback(u.Hostname()) {
		return nil
	}
	return c.checkListed(field, inFile)
}

// checkListed returns an error unless the address in a field is on a host of HOLDFAST_EXECUTOR_MODEL_HOSTS.
func (c AgentsConfig) checkListed(field, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	if err := c.modelHosts().Allows(u); err != nil {
		return fmt.Errorf("%s: %w; HOLDFAST_EXECUTOR_MODEL_HOSTS lists the hosts of models and of remote agents", field, err)
	}
	return nil
}
