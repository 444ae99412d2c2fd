// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/kubeconfig"
)

// connection is how to reach an API server, and as whom.
type connection struct {
	server *url.URL
	tls    *tls.Config
	proxy  *url.URL // nil: connect directly
	token  string   // empty: send none, as always over http
}

// dial connects to the server and, with https, verifies its certificate.
func (c connection) dial(ctx context.Context) (net.Conn, error) {
	raw, err := c.dialServer(ctx)
	if err != nil || c.server.Scheme == "http" {
		return raw, err
	}
	config := c.tls.Clone()
	config.ServerName = cmp.Or(config.ServerName, c.server.Hostname())
	return handshake(ctx, raw, config)
}

// dialServer connects to the server, or to the proxy that passes requests on to it.
func (c connection) dialServer(ctx context.Context) (net.Conn, error) {
	if c.proxy != nil {
		return c.dialProxy(ctx)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address(c.server))
}

// address is the URL's host and port.
func address(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return net.JoinHostPort(u.Hostname(), port)
}

// handshake closes the connection when it fails.
func handshake(ctx context.Context, raw net.Conn, config *tls.Config) (net.Conn, error) {
	defer endWith(ctx, raw)()
	secure := tls.Client(raw, config)
	if err := secure.Handshake(); err != nil { //nolint:noctx // HandshakeContext starts a goroutine; endWith ends the handshake with the context
		return nil, errors.Join(err, raw.Close())
	}
	return secure, nil
}

// readTrusted reads a kubeconfig, or a file that it refers to. Only root or this process's user may
// be able to write it: the API server that it names decides which pods are captured.
func readTrusted(path string) ([]byte, error) { return filesystem.ReadTrusted(path, 1<<20) }

// readKubeconfig makes the connection that the current context of a kubeconfig describes. Its
// errors quote no values, because any value may be a secret in the wrong place.
func readKubeconfig(path string) (connection, error) {
	data, err := readTrusted(path)
	if err != nil {
		return connection{}, err
	}
	config, err := kubeconfig.Parse(data)
	c := connection{server: config.Server, proxy: config.Proxy}
	dir := filepath.Dir(path)
	if err == nil {
		c.token, err = bearerToken(config, dir)
	}
	if err == nil {
		c.tls, err = tlsConfig(config, dir)
	}
	if err != nil {
		return connection{}, fmt.Errorf("%s: %w", path, err)
	}
	if c.server.Scheme == "http" {
		c.token = ""
	}
	return c, nil
}

// bearerToken prefers the file, as kubectl does.
func bearerToken(config kubeconfig.Config, dir string) (string, error) {
	token := config.Token.Reveal()
	if config.TokenFile != "" {
		data, err := readTrusted(within(dir, config.TokenFile))
		if err != nil {
			return "", fmt.Errorf("the user's tokenFile: %w", err)
		}
		token = strings.TrimSpace(string(data))
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return "", errors.New("the user's token has a character that no token has")
		}
	}
	return token, nil
}

func tlsConfig(from kubeconfig.Config, dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: from.ServerName, InsecureSkipVerify: from.Insecure}
	authorities, err := load(dir, "certificate-authority", from.CA)
	if err != nil {
		return nil, err
	}
	if authorities != nil {
		if from.Insecure {
			return nil, errors.New("the cluster has both a certificate authority and insecure-skip-tls-verify: remove one")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, errors.New("the cluster's certificate authority has no certificate in PEM form")
		}
	}
	certificate, err := load(dir, "client-certificate", from.ClientCertificate)
	if err != nil {
		return nil, err
	}
	key, err := load(dir, "client-key", from.ClientKey)
	if err != nil || (certificate == nil && key == nil) {
		return config, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, errors.New("the user's client certificate and key are not a pair in PEM form")
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// load returns PEM text, or nil if there is none; errors name the key that it has in the
// kubeconfig.
func load(dir, key string, m kubeconfig.Material) ([]byte, error) {
	if data := m.Data.Reveal(); data != "" {
		return []byte(data), nil
	}
	if m.File == "" {
		return nil, nil
	}
	data, err := readTrusted(within(dir, m.File))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return data, nil
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
