package compose_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

var configurations = map[string]any{
	"state":    state.ProcessConfig{},
	"stream":   stream.ProcessConfig{},
	"executor": executor.ProcessConfig{},
	"gateway":  gateway.ProcessConfig{},
}

type composeFile struct {
	Services map[string]struct {
		Environment map[string]string `yaml:"environment"`
		Command     []string          `yaml:"command"`
		Volumes     []string          `yaml:"volumes"`
		Healthcheck struct {
			Test []string `yaml:"test"`
		} `yaml:"healthcheck"`
		Build struct {
			Args map[string]string `yaml:"args"`
		} `yaml:"build"`
		Networks []string `yaml:"networks"`
		Memory   string   `yaml:"mem_limit"`
		Pids     int      `yaml:"pids_limit"`
		ReadOnly bool     `yaml:"read_only"`
	} `yaml:"services"`
	Networks map[string]struct {
		Internal bool `yaml:"internal"`
	} `yaml:"networks"`
}

func load(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file composeFile
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEveryServiceHasAContainerOfItsOwn(t *testing.T) {
	t.Parallel()
	file := load(t)
	for name := range configurations {
		if got := file.Services[name].Build.Args["SERVICE"]; got != name {
			t.Errorf("the container %s builds the service %q", name, got)
		}
	}
}

func TestEveryVariableIsDeclaredByItsService(t *testing.T) {
	t.Parallel()
	// The agents file names them; no configuration does.
	keys := []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
	for name, target := range configurations {
		var declared []string
		for _, v := range config.Variables(target) {
			declared = append(declared, v.Name)
		}
		for variable := range load(t).Services[name].Environment {
			if !slices.Contains(declared, variable) && !(name == "executor" && slices.Contains(keys, variable)) {
				t.Errorf("the container %s sets %s, which the service does not read; it reads %v", name, variable, declared)
			}
		}
	}
}

func TestEveryContainerLoadsItsConfiguration(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]any{
		"state": &state.ProcessConfig{}, "stream": &stream.ProcessConfig{},
		"executor": &executor.ProcessConfig{}, "gateway": &gateway.ProcessConfig{},
	} {
		var environ []string
		for variable, value := range load(t).Services[name].Environment {
			if strings.Contains(value, "${") {
				value = "set-in-the-env-file"
			}
			environ = append(environ, variable+"="+value)
		}
		if err := config.Load(target, environ); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEveryServiceHasTheTokenOfItsRoleAndAcceptsThoseOfOthers(t *testing.T) {
	t.Parallel()
	required := func(name string) string { return "${" + name + ":?set it in .env, see README.md}" }
	for name, want := range map[string]map[string]string{
		"state":    {"HOLDFAST_INTERNAL_TOKENS": "/tokens/tokens", "HOLDFAST_GRANT_SECRET": required("HOLDFAST_GRANT_SECRET"), "HOLDFAST_INTERNAL_TOKEN": ""},
		"stream":   {"HOLDFAST_INTERNAL_TOKENS": "/tokens/tokens", "HOLDFAST_GRANT_SECRET": required("HOLDFAST_GRANT_SECRET"), "HOLDFAST_INTERNAL_TOKEN": ""},
		"executor": {"HOLDFAST_INTERNAL_TOKENS": "/tokens/tokens", "HOLDFAST_GRANT_SECRET": "", "HOLDFAST_INTERNAL_TOKEN": required("HOLDFAST_EXECUTOR_TOKEN")},
		"gateway":  {"HOLDFAST_INTERNAL_TOKENS": "", "HOLDFAST_GRANT_SECRET": "", "HOLDFAST_INTERNAL_TOKEN": required("HOLDFAST_GATEWAY_TOKEN")},
	} {
		service := load(t).Services[name]
		for variable, value := range want {
			if got := service.Environment[variable]; got != value {
				t.Errorf("the container %s has %s=%q, want %q", name, variable, got, value)
			}
		}
		if mounts := slices.Contains(service.Volumes, "./tokens:/tokens:ro"); mounts != (want["HOLDFAST_INTERNAL_TOKENS"] != "") {
			t.Errorf("the container %s mounts the file of tokens: %v", name, mounts)
		}
	}
}

func TestOnlyStateReachesTheDatabaseAndOnlyStreamReachesNATS(t *testing.T) {
	t.Parallel()
	file := load(t)
	of := map[string][]string{}
	for name, service := range file.Services {
		if len(service.Networks) == 0 {
			t.Errorf("the container %s is in the network that all share", name)
		}
		for _, network := range service.Networks {
			of[network] = append(of[network], name)
		}
	}
	for network, want := range map[string][]string{
		"database": {"postgres", "state"}, "log": {"nats-1", "nats-2", "nats-3", "stream"}, "services": {"executor", "gateway", "state", "stream"},
		"models": {"executor"}, "public": {"gateway"},
	} {
		slices.Sort(of[network])
		if !slices.Equal(of[network], want) {
			t.Errorf("got %v in the network %s, want %v", of[network], network, want)
		}
		if got, internal := file.Networks[network].Internal, network != "models" && network != "public"; got != internal {
			t.Errorf("the network %s is internal: %v, want %v", network, got, internal)
		}
	}
}

func TestEveryContainerIsBoundedAndReadOnly(t *testing.T) {
	t.Parallel()
	for name, service := range load(t).Services {
		if service.Memory == "" || service.Pids <= 0 || !service.ReadOnly {
			t.Errorf("the container %s has the limits %q of memory and %d of processes, read-only: %v", name, service.Memory, service.Pids, service.ReadOnly)
		}
	}
}

func TestSecretsStayOutOfTheImages(t *testing.T) {
	t.Parallel()
	ignored, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{".env", ".env.production", "api-keys.yaml", "tokens", "ca.pem", "server.key"} {
		isIgnored := func(pattern string) bool {
			anywhere, ok := strings.CutPrefix(pattern, "**/")
			matches, err := path.Match(anywhere, secret)
			return ok && matches && err == nil
		}
		if !slices.ContainsFunc(strings.Fields(string(ignored)), isIgnored) {
			t.Errorf("a build would copy %s into its first stage", secret)
		}
	}
}
