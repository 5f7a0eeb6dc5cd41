package harness

import (
	"path/filepath"
	"testing"
)

// Dev is `holdfast dev`: all services in one process with a data folder.
type Dev struct {
	Client
	*Process
	Agents string // the file of its agents, which it reads again when it changes
	Data   string // its data folder
}

// StartDev starts `holdfast dev` with the agents and waits until it is ready. It ends with the test. Its data
// folder survives Kill and Start. env overrides its other variables.
func StartDev(t testing.TB, agents string, env ...string) *Dev {
	t.Helper()
	dir := t.TempDir()
	address := FreeAddress(t)
	file := writeFile(t, dir, "agents.yaml", agents)
	p := &Process{
		Name:    "holdfast dev",
		Address: address,
		t:       t,
		path:    Binary(t, "holdfast"),
		args: []string{"dev", "--listen", address, "--data", filepath.Join(dir, "data"),
			"--agents", file},
		env:   append(append(baseEnv(), "HOLDFAST_LOG_LEVEL=debug", "HOLDFAST_EXECUTOR_NOTES_DIR="+dir), env...),
		ready: ok("http://" + address + "/readyz"),
	}
	t.Cleanup(p.cleanup)
	p.Start()
	d := &Dev{Client: Client{URL: "http://" + address}, Process: p, Agents: file, Data: filepath.Join(dir, "data")}
	d.waitAgents(t)
	return d
}
