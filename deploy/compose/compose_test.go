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
	} `yaml:"services"`
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

func TestEveryServiceBeyondLoopbackWantsTheSharedToken(t *testing.T) {
	t.Parallel()
	for name := range configurations {
		if load(t).Services[name].Environment["HOLDFAST_INTERNAL_TOKEN"] == "" {
			t.Errorf("the container %s has no token", name)
		}
	}
}

func TestSecretsStayOutOfTheImages(t *testing.T) {
	t.Parallel()
	ignored, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{".env", ".env.production", "api-keys.yaml", "ca.pem", "server.key"} {
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
