package executor

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/outbound"
)

// variables is a pattern of FileEnv.
var variables = regexp.MustCompile(`^[A-Za-z0-9_*]+$`)

// check gives Invalid (CONFIG_INVALID, HOSTS_INVALID) for lists that cannot be meant.
func (c AgentsConfig) check() error {
	for _, pattern := range c.FileEnv {
		if !variables.MatchString(pattern) {
			return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_FILE_ENV has %q; write names of environment variables, with * for any part", pattern)
		}
	}
	if err := c.models().Check(); err != nil {
		return err
	}
	return c.policy().Check()
}

// models says where a baseURL may lead, beside this machine and the provider's own host.
func (c AgentsConfig) models() outbound.Policy { return outbound.Policy{Hosts: c.ModelHosts} }

// nameable reports whether files may name a variable. Those of Holdfast itself never are.
func (c AgentsConfig) nameable(name string) bool {
	if strings.HasPrefix(strings.ToUpper(name), "HOLDFAST_") {
		return false
	}
	return slices.ContainsFunc(c.FileEnv, func(pattern string) bool {
		matched, _ := path.Match(pattern, name) // check has refused bad patterns
		return matched
	})
}

// named finds the variables that files may name.
func (l *loader) named(name string) (string, bool) {
	if !l.config.nameable(name) {
		return "", false
	}
	return l.lookupEnv(name)
}

// open makes the model of a provider in a file. Without a name in the file, the provider's
// own variable has the key, which goes to the provider alone: a server at a base URL gets
// the key that is named, or none.
func (l *loader) open(s agents.Settings) (model.Model, error) {
	c := ModelConfig{Provider: s.Provider, API: s.API, BaseURL: s.BaseURL, Script: s.Script, IdleTimeout: s.IdleTimeout}
	custom, ok := customs[s.Provider]
	switch {
	case !ok:
		return OpenModel(c)
	case s.APIKeyEnv != "" && !l.config.nameable(s.APIKeyEnv):
		return nil, fmt.Errorf("apiKeyEnv: files may not name the variable %q; those that they may are in HOLDFAST_EXECUTOR_FILE_ENV", s.APIKeyEnv)
	case s.APIKeyEnv != "":
		c.APIKey = first(l.lookupEnv, []string{s.APIKeyEnv})
	case s.BaseURL == "":
		c.APIKey = first(l.lookupEnv, custom.keys)
	}
	if c.APIKey == "" && (s.APIKeyEnv != "" || s.BaseURL == "") {
		return nil, fmt.Errorf("the environment variable %s is not set; it must hold the API key", cmp.Or(s.APIKeyEnv, custom.keys[0]))
	}
	m, err := OpenModel(c)
	if err != nil {
		return nil, err
	}
	return m, l.config.reachable(s.Provider, s.BaseURL)
}

// homes are where the providers are themselves.
var homes = map[string]string{"openai": openai.DefaultBaseURL, "anthropic": anthropic.DefaultBaseURL, "gemini": gemini.DefaultBaseURL}

// reachable says why a file may not give a base URL. It may where the provider is itself, on
// this machine, or where the process allows models to be.
func (c AgentsConfig) reachable(provider, baseURL string) error {
	u, err := url.Parse(baseURL)
	if err != nil || baseURL == "" {
		return err
	}
	home, err := url.Parse(homes[provider])
	if err != nil {
		return err
	}
	address, _ := netip.ParseAddr(u.Hostname()) // a name is the zero address, which is no loopback
	if u.Scheme == home.Scheme && u.Host == home.Host || address.Unmap().IsLoopback() || strings.EqualFold(u.Hostname(), "localhost") {
		return nil
	}
	if err := c.models().Allows(u); err != nil {
		return fmt.Errorf("baseURL: %w; those that models may be on are in HOLDFAST_EXECUTOR_MODEL_HOSTS", err)
	}
	return nil
}
