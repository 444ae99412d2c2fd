// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// maxFile bounds every file that is read here.
const maxFile = 1 << 20

// connection is how to reach an API server, and as whom.
type connection struct {
	server *url.URL
	tls    *tls.Config
	proxy  *url.URL // nil: connect directly
	token  string   // empty: send none, as always over http
}

// dial connects to the server, and goes no further before it is known to be the one.
func (c connection) dial(ctx context.Context) (net.Conn, error) {
	raw, err := c.dialServer(ctx)
	if err != nil || c.server.Scheme == "http" {
		return raw, err
	}
	config := c.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = c.server.Hostname()
	}
	return handshake(ctx, raw, config)
}

// dialServer connects to where the server, or the proxy, takes requests.
func (c connection) dialServer(ctx context.Context) (net.Conn, error) {
	if c.proxy != nil {
		return c.dialProxy(ctx)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address(c.server))
}

// address is the URL's host and port.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// handshake closes the connection when it fails.
func handshake(ctx context.Context, raw net.Conn, config *tls.Config) (net.Conn, error) {
	defer endWith(ctx, raw)()
	secure := tls.Client(raw, config)
	if err := secure.Handshake(); err != nil { //nolint:noctx // with it comes a goroutine; the deadline is the context's
		return nil, errors.Join(err, raw.Close())
	}
	return secure, nil
}

// readKubeconfig makes the connection that the current context of a kubeconfig file describes. Its errors quote no values, as any could
// be a secret in the wrong place.
func readKubeconfig(path string) (connection, error) {
	data, err := readFile(path)
	if err != nil {
		return connection{}, err
	}
	root, err := parseDocument(data)
	if err == nil {
		var settings settings
		if settings, err = settingsOf(root); err == nil {
			var c connection
			if c, err = settings.connection(filepath.Dir(path)); err == nil {
				return c, nil
			}
		}
	}
	return connection{}, fmt.Errorf("%s: %w", path, err)
}

// connection reads what the settings refer to; relative paths start at dir.
func (s settings) connection(dir string) (connection, error) {
	var c connection
	var err error
	if c.server, err = serverURL(s.server); err != nil {
		return connection{}, err
	}
	if c.proxy, err = proxyURL(s.proxyURL); err != nil {
		return connection{}, err
	}
	if c.token, err = s.bearerToken(dir); err != nil {
		return connection{}, err
	}
	if c.tls, err = s.tlsConfig(dir); err != nil {
		return connection{}, err
	}
	if c.server.Scheme == "http" {
		c.token = ""
	}
	return c, nil
}

func serverURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the cluster's server is no URL such as https://10.96.0.1:443")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the cluster's server is a URL with more than scheme, host, port and path")
	}
	return u, nil
}

func proxyURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no proxy
	}
	u, err := url.Parse(text)
	switch {
	case err == nil && strings.HasPrefix(u.Scheme, "socks"):
		return nil, errors.New("the cluster's proxy-url is of SOCKS, which is not supported: name a proxy of HTTP")
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return nil, errors.New("the cluster's proxy-url is no URL with http or https")
	}
	return u, nil
}

// bearerToken prefers the file, as kubectl does.
func (s settings) bearerToken(dir string) (string, error) {
	token := s.token
	if s.tokenFile != "" {
		data, err := readFile(within(dir, s.tokenFile))
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

func (s settings) tlsConfig(dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.tlsServerName, InsecureSkipVerify: s.skipVerify}
	authorities, err := s.certificateAuthority.load(dir)
	if err != nil {
		return nil, err
	}
	if authorities != nil {
		if s.skipVerify {
			return nil, errors.New("the cluster has both a certificate authority and insecure-skip-tls-verify: remove one")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, errors.New("the cluster's certificate authority has no certificate in PEM form")
		}
	}
	certificate, err := s.clientCertificate.load(dir)
	if err != nil {
		return nil, err
	}
	key, err := s.clientKey.load(dir)
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

// material is a PEM text that is inline in base64 (which goes first), or in a file.
type material struct{ name, data, path string }

// load is nil when there is none.
func (m material) load(dir string) ([]byte, error) {
	if m.data != "" {
		data, err := base64.StdEncoding.DecodeString(m.data)
		if err != nil {
			return nil, fmt.Errorf("%s-data is not base64", m.name)
		}
		return data, nil
	}
	if m.path == "" {
		return nil, nil
	}
	data, err := readFile(within(dir, m.path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	return data, nil
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
