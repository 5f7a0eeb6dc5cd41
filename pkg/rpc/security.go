package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Security defines how both ends of a connection authenticate. The zero value authenticates nothing and is only
// suitable for loopback and memory.
//
// Token is the secret that a client sends; a plain connection does not protect it. A server with a TokensFile accepts
// the tokens of the file, each with its role: see parseTokens. A server without one accepts Token alone, with RoleAny.
//
// CertFile, KeyFile and CAFile are PEM files. A server with CertFile and KeyFile uses TLS 1.3; with CAFile it also
// requires a client certificate signed by this authority. A client with any of the files uses TLS: it verifies the
// server against CAFile (or the machine's roots) and sends its certificate. A certificate may name a role, as
// the SPIFFE ID spiffe://<any trust domain>/holdfast/<role>.
//
// Everything that is set is required: with a token and certificates, both must be valid, and may not name different
// roles. Changed files are used for new connections, and the file of tokens also for the calls of open ones.
type Security struct {
	Token      string `env:"TOKEN" secret:"true" doc:"secret that this service sends to the others; without HOLDFAST_INTERNAL_TOKENS also the one that it accepts; empty asks for none"`
	TokensFile string `env:"TOKENS" doc:"file with the tokens that this service accepts: in each line a role (gateway, executor, operator, any) and the SHA-256 of a token in hex"`
	CertFile   string `env:"TLS_CERT" doc:"PEM file with this service's certificate; with TLS_KEY turns TLS on"`
	KeyFile    string `env:"TLS_KEY" doc:"PEM file with the key of TLS_CERT"`
	CAFile     string `env:"TLS_CA" doc:"PEM file with the authority that signs the services' certificates; a server then asks clients for one"`
}

// mutual reports whether a server with s verifies client certificates.
func (s Security) mutual() bool { return s.CertFile != "" && s.KeyFile != "" && s.CAFile != "" }

func (s Security) encrypted() bool { return s.CertFile != "" || s.KeyFile != "" || s.CAFile != "" }

// minToken is the length of a token that other machines cannot guess, in bytes.
const minToken = 32

// CheckListen refuses to expose an unauthenticated service: Invalid (INSECURE_LISTEN) if the address, which variable
// configures, is not a loopback address and s has neither a token of at least 32 bytes nor all three TLS files. A name other than localhost
// and an empty host (":8080") count as exposed. It warns of a token that travels without TLS, and of one that every
// service shares.
func CheckListen(variable, address string, s Security, log *slog.Logger) error {
	if Loopback(address) || s.mutual() {
		return nil
	}
	switch {
	case s.TokensFile != "":
	case s.Token == "":
		return fault.New(fault.Invalid, "INSECURE_LISTEN",
			"%s is %q, which other machines can reach, and callers would need no credentials: "+
				"set HOLDFAST_INTERNAL_TOKEN (one secret for all services), "+
				"or HOLDFAST_INTERNAL_TOKENS (a token for each role), or HOLDFAST_INTERNAL_TLS_CERT, _TLS_KEY and _TLS_CA (mutual TLS), "+
				"or set %[1]s to a port of 127.0.0.1", variable, address)
	case len(s.Token) < minToken:
		return fault.New(fault.Invalid, "INSECURE_LISTEN",
			"%s is %q, which other machines can reach, and HOLDFAST_INTERNAL_TOKEN has %d bytes: "+
				"it must have at least %d, such as the output of \"openssl rand -hex 32\"", variable, address, len(s.Token), minToken)
	default:
		log.Warn("every service may call everything with the one token: set HOLDFAST_INTERNAL_TOKENS to give each a token of its own role",
			"address", address)
	}
	if !s.encrypted() {
		log.Warn("the token of the services travels without encryption: "+
			"set HOLDFAST_INTERNAL_TLS_CERT and _TLS_KEY, unless the network is private", "address", address)
	}
	return nil
}

// Loopback reports whether only this machine can reach the address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// check finds a token invalid in a header, for example with the newline of its file.
func (s Security) check() error {
	for _, r := range s.Token {
		if r <= ' ' || r > '~' {
			return fault.New(fault.Invalid, "TOKEN_INVALID", "TOKEN may contain only printable ASCII without spaces")
		}
	}
	return nil
}

func (s Security) serverCredentials(log *slog.Logger) (credentials.TransportCredentials, error) {
	return s.reloaded(log, func() (*tls.Config, error) {
		certificate, err := s.certificate()
		if err != nil {
			return nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}}
		if s.CAFile != "" {
			if config.ClientCAs, err = s.authority(); err != nil {
				return nil, err
			}
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return config, nil
	})
}

func (s Security) clientCredentials() (credentials.TransportCredentials, error) {
	return s.reloaded(slog.Default(), func() (*tls.Config, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS13}
		if s.CertFile != "" || s.KeyFile != "" {
			certificate, err := s.certificate()
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		if s.CAFile != "" {
			roots, err := s.authority()
			if err != nil {
				return nil, err
			}
			config.RootCAs = roots
		}
		return config, nil
	})
}

// reloaded returns credentials that use the current files for each new connection.
func (s Security) reloaded(log *slog.Logger, load func() (*tls.Config, error)) (credentials.TransportCredentials, error) {
	if !s.encrypted() {
		return insecure.NewCredentials(), nil
	}
	current, err := watch([]string{s.CertFile, s.KeyFile, s.CAFile}, 0, log, func() (credentials.TransportCredentials, error) {
		config, err := load()
		if err != nil {
			return nil, err
		}
		return credentials.NewTLS(config), nil
	})
	if err != nil {
		return nil, err
	}
	return reloadedCredentials{current}, nil
}

// reloadedCredentials are TLS credentials whose files may change.
type reloadedCredentials struct {
	current *watched[credentials.TransportCredentials]
}

func (c reloadedCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.current.get().ClientHandshake(ctx, authority, conn)
}

func (c reloadedCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.current.get().ServerHandshake(conn)
}

func (c reloadedCredentials) Info() credentials.ProtocolInfo { return c.current.get().Info() }

// Clone returns c, which has no state of a connection.
func (c reloadedCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName does nothing: the dialed address names the server.
func (c reloadedCredentials) OverrideServerName(string) error { return nil }

func (s Security) certificate() (tls.Certificate, error) {
	if s.CertFile == "" || s.KeyFile == "" {
		return tls.Certificate{}, tlsFault("TLS_CERT and TLS_KEY belong together: set both")
	}
	certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return tls.Certificate{}, tlsFault("TLS_CERT %q and TLS_KEY %q: %v", s.CertFile, s.KeyFile, err)
	}
	return certificate, nil
}

func (s Security) authority() (*x509.CertPool, error) {
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, tlsFault("TLS_CA: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, tlsFault("TLS_CA %q holds no PEM certificate", s.CAFile)
	}
	return pool, nil
}

func tokensFault(format string, args ...any) error {
	return fault.New(fault.Invalid, "TOKENS_INVALID", "HOLDFAST_INTERNAL_TOKENS: "+format, args...)
}

func tlsFault(format string, args ...any) error {
	return fault.New(fault.Invalid, "TLS_INVALID", format, args...)
}
