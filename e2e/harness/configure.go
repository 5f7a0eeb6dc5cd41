package harness

import "testing"

// ConfigureGateway restarts the gateway with additional variables: NAME=value.
func (s *System) ConfigureGateway(env ...string) {
	s.t.Helper()
	s.Gateway.env = append(s.Gateway.env, env...)
	s.Gateway.Restart()
	s.waitAgents(s.t)
}

// StartStream starts a single stream service with an embedded log in the folder and waits until it is ready. It
// ends with the test.
func StartStream(t testing.TB, dir string, env ...string) *Process {
	t.Helper()
	o := Options{LogLevel: "warn"}
	p := o.service(t, "stream", "", append([]string{"HOLDFAST_STREAM_BUS=embedded", "HOLDFAST_STREAM_DATA_DIR=" + dir}, env...)...)
	t.Cleanup(p.cleanup)
	p.Start()
	return p
}

// PID returns the id of the running process.
func (p *Process) PID() int { return p.life.cmd.Process.Pid }
