package endpoint_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/webhook"
)

// identity is a certificate with its key, in files and decoded.
type identity struct {
	cert, key   string
	certificate *x509.Certificate
	signer      *ecdsa.PrivateKey
}

// issue makes a certificate for a name, and for 127.0.0.1. A nil issuer makes an authority.
func issue(t *testing.T, issuer *identity, name string, expires time.Time) *identity {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: expires, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, parentKey := template, signer
	if issuer == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, parentKey = issuer.certificate, issuer.signer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &signer.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	made := &identity{signer: signer, cert: filepath.Join(t.TempDir(), "cert.pem"), key: filepath.Join(t.TempDir(), "key.pem")}
	if made.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, made.cert, "CERTIFICATE", der)
	writePEM(t, made.key, "PRIVATE KEY", secret)
	return made
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tlsApp serves an app in this process, which remembers the names in its clients' certificates.
type tlsApp struct {
	endpointapp.App
	mu      sync.Mutex
	clients []string
}

func (a *tlsApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.clients = append(a.clients, r.TLS.PeerCertificates[0].Subject.CommonName)
	a.mu.Unlock()
	a.App.ServeHTTP(w, r)
}

// last is the name of the last client.
func (a *tlsApp) last() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.clients) == 0 {
		return ""
	}
	return a.clients[len(a.clients)-1]
}

// startTLSApp serves an app with the agents of the suite that the tests need.
func startTLSApp(t *testing.T, server, authority *identity) (app *tlsApp, address string) {
	t.Helper()
	secret, err := webhook.ParseSecret(newSecret)
	if err != nil {
		t.Fatal(err)
	}
	app = &tlsApp{}
	app.Secrets = []webhook.Secret{secret}
	app.Describe(`{"endpoint":1,"agents":[{"name":"puppet","model":"suite/model","tools":[{"name":"act","description":"Acts.","callbacks":["execute"]}]}]}`)
	app.Handle("tool/act", func(context.Context, *endpointapp.Call) (any, error) { return "hello", nil })
	certificate, err := tls.LoadX509KeyPair(server.cert, server.key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.certificate)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: app, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)} // refused handshakes
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return app, listener.Addr().String()
}

// tlsFile writes an agents file with an endpoint that is reached with a client's certificate; nil for none.
func tlsFile(t *testing.T, address string, client *identity, authority string) string {
	t.Helper()
	lines := []string{}
	if client != nil {
		lines = append(lines, fmt.Sprintf("cert: %q, key: %q", client.cert, client.key))
	}
	if authority != "" {
		lines = append(lines, fmt.Sprintf("ca: %q", authority))
	}
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	text := fmt.Sprintf("endpoints: [{url: %q, secrets: [\"${APP_KEY}\"], tls: {%s}}]\n", "https://"+address+endpointPath, strings.Join(lines, ", "))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var tlsEnv = []string{"APP_KEY=" + newSecret, "HOLDFAST_EXECUTOR_ENDPOINT_HOSTS=127.0.0.1"}

// checkTLS runs agents check on files in a process of its own, and returns what it prints.
func checkTLS(t *testing.T, files ...string) (output string, valid bool) {
	t.Helper()
	c := exec.CommandContext(t.Context(), harness.Binary(t, "holdfast"), append([]string{"agents", "check"}, files...)...)
	c.Env = append(os.Environ(), tlsEnv...)
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return out.String(), err == nil
}

func TestAnAppDemandsTheCertificateOfTheExecutor(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	authority, others := issue(t, nil, "authority", later), issue(t, nil, "others", later)
	server, expired := issue(t, authority, "app", later), issue(t, authority, "expired", time.Now().Add(-time.Hour))
	client, stranger := issue(t, authority, "executor", later), issue(t, others, "stranger", later)
	variables := func(server *identity) []string {
		return []string{"TLS_CERT=" + server.cert, "TLS_KEY=" + server.key, "TLS_CA=" + authority.cert}
	}
	apps := map[string]func(*testing.T, *outside, *identity) string{
		"typescript": func(t *testing.T, o *outside, s *identity) string {
			return typescript(t, o, newSecret, variables(s)...).Address
		},
		"python": func(t *testing.T, o *outside, s *identity) string {
			return python(t, o, newSecret, variables(s)...).Address
		},
		"go": func(t *testing.T, _ *outside, s *identity) string {
			_, address := startTLSApp(t, s, authority)
			return address
		},
	}
	for language, start := range apps {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			address := start(t, w.outside, server)
			models := strings.TrimPrefix(w.modelEnv(t), "HOLDFAST_EXECUTOR_AGENTS=")
			for name, refused := range map[string]struct{ file, want string }{
				"without a certificate":             {tlsFile(t, address, nil, authority.cert), "endpoint"},
				"with that of another authority":    {tlsFile(t, address, stranger, authority.cert), "endpoint"},
				"of an app of an unknown authority": {tlsFile(t, address, client, others.cert), "unknown authority"},
				"of an app whose certificate has expired": {
					tlsFile(t, start(t, w.outside, expired), client, authority.cert), "expired",
				},
			} {
				if out, valid := checkTLS(t, models, refused.file); valid || !strings.Contains(out, refused.want) {
					t.Errorf("%s: agents check prints %s, want a mistake with %s", name, out, refused.want)
				}
			}
			file := tlsFile(t, address, client, authority.cert)
			if out, valid := checkTLS(t, models, file); !valid || !strings.Contains(out, "puppet") {
				t.Errorf("agents check prints %s, want the agents", out)
			}
			w.join(harness.Serve(t, nil, append(tlsEnv, "HOLDFAST_EXECUTOR_AGENTS="+models+";"+file)...))
			w.served.WaitAgent(t, "puppet")
			p := w.begin(t, scenario{name: "tls", agent: "puppet", model: []turn{calls(act(give("hello"))), say("ok")}})
			p.wait()
			if got := p.modelReads(callID(1, 1)); got != "hello" {
				t.Errorf("the model reads %q, want the result of the tool", got)
			}
		})
	}
}

func TestTheCertificateOfTheExecutorIsReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	authority := issue(t, nil, "authority", later)
	first, second := issue(t, authority, "first", later), issue(t, authority, "second", later)
	app, address := startTLSApp(t, issue(t, authority, "app", later), authority)
	w := newWorld(t)
	models := strings.TrimPrefix(w.modelEnv(t), "HOLDFAST_EXECUTOR_AGENTS=")
	file := tlsFile(t, address, first, authority.cert)
	w.join(harness.Serve(t, nil, append(tlsEnv,
		"HOLDFAST_EXECUTOR_AGENTS="+models+";"+file, "HOLDFAST_EXECUTOR_AGENTS_POLL=50ms", "HOLDFAST_EXECUTOR_ENDPOINT_POLL=50ms")...))
	w.served.WaitAgent(t, "puppet")
	if got := app.last(); got != "first" {
		t.Errorf("the client is %q, want the first certificate", got)
	}
	for from, to := range map[string]string{second.cert: first.cert, second.key: first.key} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.WaitFor(t, patience, "the second certificate", func() (bool, string) { return app.last() == "second", app.last() })
	p := w.begin(t, scenario{name: "rotated", agent: "puppet", model: []turn{calls(act(give("hello"))), say("ok")}})
	p.wait()
	if got := p.modelReads(callID(1, 1)); got != "hello" || app.last() != "second" {
		t.Errorf("the model reads %q, and the client is %q", got, app.last())
	}
}
