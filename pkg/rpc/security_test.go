package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

func TestOnlyTheRightTokenIsLetIn(t *testing.T) {
	t.Parallel()
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		address = serve(t, network, address, rpc.ServerConfig{Security: rpc.Security{Token: "right"}}, service{})
		for token, want := range map[string]string{"right": "", "wrong": "BAD_TOKEN", "righ": "BAD_TOKEN", "right2": "BAD_TOKEN", "": "BAD_TOKEN"} {
			conn := dial(t, network, address, rpc.ClientConfig{Security: rpc.Security{Token: token}})
			for name, shape := range shapes {
				err := shape(t.Context(), grpc_testing.NewTestServiceClient(conn))
				if fault.ReasonOf(err) != want || want != "" && !errors.Is(err, fault.Unauthenticated) {
					t.Errorf("%s call with token %q = %v, want %q", name, token, err, want)
				}
			}
		}
	})
}

func TestATokenWithoutItsSchemeIsRefused(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	serve(t, network, "state", rpc.ServerConfig{Security: rpc.Security{Token: "right"}}, service{})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "right")
	client := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{}))
	if err := shapes["unary"](ctx, client); fault.ReasonOf(err) != "BAD_TOKEN" {
		t.Errorf("call = %v, want BAD_TOKEN", err)
	}
}

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// identity returns the security of a service with a certificate for the hosts.
func (a authority) identity(name string, hosts ...string) rpc.Security {
	a.t.Helper()
	return a.identityWith(name, "", hosts...)
}

// identityWith adds a URI to the certificate, unless it is empty.
func (a authority) identityWith(name, id string, hosts ...string) rpc.Security {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour), DNSNames: hosts, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if id != "" {
		uri, err := url.Parse(id)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = []*url.URL{uri}
	}
	key := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return rpc.Security{
		CertFile: a.write(name+".pem", "CERTIFICATE", der),
		KeyFile:  a.write(name+".key", "PRIVATE KEY", keyDER),
		CAFile:   a.file,
	}
}

func TestOnlyCertificatesOfTheAuthorityMeet(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	server := ours.identity("state", "state")
	client := ours.identity("gateway", "gateway")
	stranger := theirs.identity("stranger", "gateway")
	mixed := stranger // trusts our authority, but is signed by another
	mixed.CAFile = ours.file
	clients := map[string]struct {
		security rpc.Security
		accepted bool
	}{
		"ours":                       {client, true},
		"with a token to spare":      {withToken(client, "any"), true},
		"no certificate":             {rpc.Security{CAFile: ours.file}, false},
		"another authority's client": {mixed, false},
		"another authority's trust":  {rpc.Security{CertFile: client.CertFile, KeyFile: client.KeyFile, CAFile: theirs.file}, false},
		"plain":                      {rpc.Security{}, false},
	}
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		address = serve(t, network, address, rpc.ServerConfig{Security: server}, service{})
		for name, c := range clients {
			err := firstAnswer(t, dialSecure(t, network, address, c.security))
			if c.accepted && err != nil || !c.accepted && !errors.Is(err, fault.Unavailable) {
				t.Errorf("%s: call = %v, accepted should be %v", name, err, c.accepted)
			}
		}
	})
}

func withToken(s rpc.Security, token string) rpc.Security {
	s.Token = token
	return s
}

func dialSecure(t *testing.T, network rpc.Network, address string, s rpc.Security) grpc_testing.TestServiceClient {
	t.Helper()
	return grpc_testing.NewTestServiceClient(dial(t, network, address, rpc.ClientConfig{Security: s}))
}

func firstAnswer(t *testing.T, client grpc_testing.TestServiceClient) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return shapes["unary"](ctx, client)
}

func TestTokenAndCertificateMustBothHold(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	network := rpc.NewMemory()
	serve(t, network, "state", rpc.ServerConfig{Security: withToken(ours.identity("state", "state"), "right")}, service{})
	client := ours.identity("gateway")
	if err := firstAnswer(t, dialSecure(t, network, "state", withToken(client, "right"))); err != nil {
		t.Errorf("call with both = %v, want nil", err)
	}
	if err := firstAnswer(t, dialSecure(t, network, "state", client)); fault.ReasonOf(err) != "BAD_TOKEN" {
		t.Errorf("call without the token = %v, want BAD_TOKEN", err)
	}
}

func TestAServerForAnotherHostIsNotBelieved(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	network := rpc.NewMemory()
	serve(t, network, "state", rpc.ServerConfig{Security: ours.identity("stream", "stream")}, service{})
	if err := firstAnswer(t, dialSecure(t, network, "state", ours.identity("gateway"))); !errors.Is(err, fault.Unavailable) {
		t.Errorf("call = %v, want Unavailable", err)
	}
}

func TestSecurityThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	good := ours.identity("state", "state")
	tests := map[string]struct {
		security rpc.Security
		reason   string
	}{
		"a certificate without a key": {rpc.Security{CertFile: good.CertFile}, "TLS_INVALID"},
		"a key without a certificate": {rpc.Security{KeyFile: good.KeyFile}, "TLS_INVALID"},
		"no such file":                {rpc.Security{CertFile: "nowhere", KeyFile: "nowhere"}, "TLS_INVALID"},
		"no such authority":           {rpc.Security{CertFile: good.CertFile, KeyFile: good.KeyFile, CAFile: "nowhere"}, "TLS_INVALID"},
		"an authority that is a key":  {rpc.Security{CertFile: good.CertFile, KeyFile: good.KeyFile, CAFile: good.KeyFile}, "TLS_INVALID"},
		"a token with a newline":      {rpc.Security{Token: "secret\n"}, "TOKEN_INVALID"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, serverErr := rpc.NewServer(rpc.ServerConfig{Security: test.security})
			_, clientErr := rpc.Dial(rpc.NewMemory(), "state", rpc.ClientConfig{Security: test.security})
			for _, err := range []error{serverErr, clientErr} {
				if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != test.reason || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want Invalid (%s)", err, test.reason)
				}
			}
		})
	}
	if _, err := rpc.NewServer(rpc.ServerConfig{Security: rpc.Security{CAFile: ours.file}}); fault.ReasonOf(err) != "TLS_INVALID" {
		t.Errorf("a server with only an authority: %v, want TLS_INVALID", err)
	}
	if _, err := rpc.Dial(rpc.NewMemory(), "", rpc.ClientConfig{}); fault.ReasonOf(err) != "ADDRESS_INVALID" {
		t.Errorf("an empty address: %v, want ADDRESS_INVALID", err)
	}
}

func TestAnOpenServiceStaysOnLoopback(t *testing.T) {
	t.Parallel()
	mutual := rpc.Security{CertFile: "c", KeyFile: "k", CAFile: "a"}
	tests := []struct {
		address  string
		security rpc.Security
		ok       bool
	}{
		{"127.0.0.1:7001", rpc.Security{}, true},
		{"127.8.8.8:7001", rpc.Security{}, true},
		{"[::1]:7001", rpc.Security{}, true},
		{"localhost:7001", rpc.Security{}, true},
		{"LOCALHOST:0", rpc.Security{}, true},
		{":7001", rpc.Security{}, false},
		{"0.0.0.0:7001", rpc.Security{}, false},
		{"[::]:7001", rpc.Security{}, false},
		{"10.0.0.3:7001", rpc.Security{}, false},
		{"localhost.example.com:7001", rpc.Security{}, false},
		{"127.0.0.1", rpc.Security{}, false},
		{"", rpc.Security{}, false},
		{":7001", rpc.Security{Token: strings.Repeat("x", 32)}, true},
		{":7001", rpc.Security{Token: strings.Repeat("x", 31)}, false},
		{"127.0.0.1:7001", rpc.Security{Token: "x"}, true},
		{":7001", mutual, true},
		{":7001", rpc.Security{TokensFile: "tokens"}, true},
		{":7001", rpc.Security{CertFile: "c", KeyFile: "k"}, false},
	}
	for _, test := range tests {
		var warnings logbook
		err := rpc.CheckListen("HOLDFAST_THIS_LISTEN", test.address, test.security, warnings.logger())
		if test.ok && err != nil || !test.ok && (!errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != "INSECURE_LISTEN") {
			t.Errorf("CheckListen(%q, %+v) = %v, allowed should be %v", test.address, test.security, err, test.ok)
		}
		if err != nil && (!strings.Contains(err.Error(), "HOLDFAST_INTERNAL_TOKEN") || !strings.Contains(err.Error(), fmt.Sprintf("HOLDFAST_THIS_LISTEN is %q", test.address))) {
			t.Errorf("CheckListen(%q) = %v, want the variables to set", test.address, err)
		}
		plain := err == nil && test.address == ":7001" && test.security.CAFile == ""
		if got := strings.Contains(warnings.String(), "without encryption"); got != plain {
			t.Errorf("CheckListen(%q, %+v) warns: %v, want %v", test.address, test.security, got, plain)
		}
		shared := plain && test.security.TokensFile == ""
		if got := strings.Contains(warnings.String(), "every service may call everything"); got != shared {
			t.Errorf("CheckListen(%q, %+v) warns of the shared token: %v, want %v", test.address, test.security, got, shared)
		}
	}
}
