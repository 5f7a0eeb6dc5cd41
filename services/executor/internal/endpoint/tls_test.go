package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/webhook"
)

func TestMutualTLSAndHTTP2(t *testing.T) {
	t.Parallel()
	secret, err := webhook.ParseSecret(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	app := &endpointapp.App{Secrets: []webhook.Secret{secret}}
	app.Describe(`{"endpoint":1,"agents":[]}`)
	app.Handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
		c.Event("half", nil)
		return c.HTTP.Proto + " " + c.HTTP.TLS.PeerCertificates[0].Subject.Organization[0], nil
	})
	server := httptest.NewUnstartedServer(app)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	open := func(c *tls.Config) *Client {
		host := strings.TrimPrefix(server.URL, "https://")
		client, err := New(Config{URL: server.URL, Secrets: []webhook.Secret{secret}, TLS: c, Policy: outbound.Policy{Hosts: []string{host}}}, Peers{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	client := open(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: server.TLS.Certificates})
	refund := Binding{Client: client}.Tool(agent.Tool{Name: "refund"}, []string{"execute"}, nil)
	call := &agent.Call{ID: "c", Tool: "refund", AgentType: "support"}
	for range 3 {
		result, err := refund.Execute(t.Context(), call)
		if text, _ := encode(result); err != nil || string(text) != `"HTTP/2.0 Acme Co"` {
			t.Errorf("result = %s, %v", text, err)
		}
	}
	for name, c := range map[string]*tls.Config{
		"without a certificate of its own": {MinVersion: tls.VersionTLS12, RootCAs: trusted},
		"without the authority":            {MinVersion: tls.VersionTLS12, Certificates: server.TLS.Certificates},
	} {
		// In TLS 1.3 the client may have written its request when the refusal arrives, and then sees a broken connection.
		if _, err := open(c).Describe(t.Context(), nil); err == nil {
			t.Errorf("%s: the endpoint has described itself", name)
		}
	}
	if !client.Wait(time.Minute) {
		t.Error("answers have no end")
	}
}
