package harness

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"
)

// StartCompressingProxy starts the Node proxy of the folder, which compresses what it may, in front of the
// address, and returns its URL. It ends with the test.
func StartCompressingProxy(t testing.TB, folder, target string) (url string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	address := FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{
		Name: "compressing proxy", Address: address, t: t, path: node,
		args:  []string{filepath.Join(folder, "compressing.mjs"), port, "http://" + target},
		env:   baseEnv(),
		ready: ok("http://" + address + "/readyz"),
	}
	t.Cleanup(p.cleanup)
	p.Start()
	return "http://" + address
}
