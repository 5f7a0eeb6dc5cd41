package page_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// pathLimit bounds the path of a newcomer. It is no measure of speed.
const pathLimit = 5 * time.Minute

// codeBlock is a block of a page: its language, whether it is a server, and its text.
var codeBlock = regexp.MustCompile("(?s)```(\\w+)( server)?\n(.*?)```")

// fileName is the first line of a block that is a file.
var fileName = regexp.MustCompile(`^(?://|#) (\S+\.\w+)\n`)

// newcomer types what docs/first-tool.md says, in an empty folder.
type newcomer struct {
	dir string
	env []string
}

// sections returns the sections of the page by their headings. The page's ports become free ones, the same in all sections.
func sections(t *testing.T, gateway string) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/first-tool.md")
	if err != nil {
		t.Fatal(err)
	}
	port := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	ports := strings.NewReplacer("8080", port(gateway), "3000", port(harness.FreeAddress(t)), "8000", port(harness.FreeAddress(t)))
	found := map[string]string{}
	for _, part := range strings.Split(string(page), "\n## ")[1:] {
		heading, text, _ := strings.Cut(part, "\n")
		found[heading] = ports.Replace(text)
	}
	return found
}

// follow writes the files of a section, and runs its commands in their order.
func (n *newcomer) follow(ctx context.Context, t *testing.T, section string) {
	t.Helper()
	blocks := codeBlock.FindAllStringSubmatch(section, -1)
	if len(blocks) == 0 {
		t.Fatalf("the section has no blocks: %s", section)
	}
	for _, block := range blocks {
		language, isServer, text := block[1], block[2] != "", block[3]
		name := fileName.FindStringSubmatch(text)
		switch {
		case language == "sh" && isServer:
			n.serve(t, text)
		case language == "sh":
			c := exec.CommandContext(ctx, "bash", "-euc", text)
			c.Dir, c.Env = n.dir, n.env
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", text, err, out)
			}
		case name != nil:
			if err := os.WriteFile(filepath.Join(n.dir, name[1]), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("a block has no name of a file in its first line:\n%s", text)
		}
	}
}

// serve runs a command, with the processes that it starts, until the test ends.
func (n *newcomer) serve(t *testing.T, command string) {
	t.Helper()
	c := exec.Command("bash", "-euc", command) //nolint:noctx // its whole group is killed below
	c.Dir, c.Env = n.dir, n.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output := &bytes.Buffer{}
	c.Stdout, c.Stderr = output, output
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", command, output)
		}
	})
}

// awaitAgent waits until the gateway serves the agent.
func awaitAgent(ctx context.Context, t *testing.T, gateway string) {
	t.Helper()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gateway+"/agents", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := http.DefaultClient.Do(r); err == nil {
			var body bytes.Buffer
			_, _ = body.ReadFrom(response.Body)
			_ = response.Body.Close()
			if strings.Contains(body.String(), `"clerk"`) {
				return
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			t.Fatal("the gateway does not serve the agent")
		}
	}
}

func TestNewcomersReachTheirFirstTool(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"TypeScript", "Python", "Go"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			commands, caches := t.TempDir(), t.TempDir()
			if err := os.Symlink(harness.Binary(t, "holdfast"), filepath.Join(commands, "holdfast")); err != nil {
				t.Fatal(err)
			}
			n := &newcomer{dir: filepath.Join(t.TempDir(), "shop"), env: append(os.Environ(),
				"HOLDFAST="+root, "PATH="+commands+":/usr/bin:"+os.Getenv("PATH"), "npm_config_cache="+caches, "PIP_NO_CACHE_DIR=1", "PIP_NO_INDEX=1")}
			if err := os.Mkdir(n.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), pathLimit)
			defer cancel()
			gateway := harness.FreeAddress(t)
			page := sections(t, gateway)
			began := time.Now()
			if language != "Go" {
				n.follow(ctx, t, page["The model"])
			}
			n.follow(ctx, t, page[language])
			awaitAgent(ctx, t, gateway)
			ready := time.Since(began)
			steps := []step{{Press: "Approve"}, {Reload: true}}
			r := run(t, "answers", options{Gateway: "http://" + gateway, Texts: []string{"refund o-1"}, Steps: steps}, nil)
			r.Looks[0].checkMessages(t, "You: refund o-1", "Agent calls refund, waits for you", `Input: {"amount":250,"order":"o-1"}`)
			r.last().checkMessages(t, "You: refund o-1", `Agent: Done: "$250 for o-1."`, "Agent calls refund, done")
			t.Logf("%s: the agent was served after %v, and the approved answer was there after %v",
				language, ready.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		})
	}
}
