package harness

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// nginxConf is the configuration of the distribution's package.
const nginxConf = "/etc/nginx/nginx.conf"

// nginxSites is the line of nginxConf that includes the sites.
const nginxSites = "include /etc/nginx/sites-enabled/*;"

// StartNginx starts nginx in front of the address and returns its URL. Its configuration is the distribution's,
// except for file locations and one forwarding server. options are lines of the server's location. It ends with
// the test.
func StartNginx(t testing.TB, target string, options ...string) (url string) {
	t.Helper()
	address := FreeAddress(t)
	server := "server { listen " + address + "; location / { proxy_pass http://" + target + "; " + strings.Join(options, " ") + " } }"
	dir := t.TempDir()
	p := &Process{
		Name:    "nginx",
		Address: address,
		t:       t,
		path:    nginxPath(t),
		// Workers would outlive a master that is killed.
		args: []string{
			"-e",
			"stderr",
			"-c",
			writeFile(t, dir, "nginx.conf", nginxConfig(t, dir, server)),
			"-g",
			"daemon off; master_process off;",
		},
		env:   baseEnv(),
		ready: ok("http://" + address + "/readyz"),
	}
	t.Cleanup(p.cleanup)
	p.Start()
	return "http://" + address
}

func nginxPath(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("nginx"); err == nil {
		return path
	}
	return "/usr/sbin/nginx" // often missing in PATH
}

// nginxConfig returns the distribution's configuration with another server and private files.
func nginxConfig(t testing.TB, dir, server string) string {
	t.Helper()
	text, err := os.ReadFile(nginxConf)
	if err != nil {
		t.Fatalf("%v; make setup installs it", err)
	}
	var paths strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		paths.WriteString(kind + "_temp_path " + dir + "/" + kind + ";\n")
	}
	conf := string(text)
	for pattern, line := range map[string]string{
		`(?m)^\s*pid .*;`:        "pid " + dir + "/pid;",
		`(?m)^\s*error_log .*;`:  "error_log stderr;",
		`(?m)^\s*access_log .*;`: "access_log off;",
	} {
		conf = regexp.MustCompile(pattern).ReplaceAllLiteralString(conf, line)
	}
	if !strings.Contains(conf, nginxSites) {
		t.Fatalf("%s does not say %q: it is not the distribution's", nginxConf, nginxSites)
	}
	return strings.Replace(conf, nginxSites, paths.String()+server, 1)
}
