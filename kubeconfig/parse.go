// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Config is what the current context of a kubeconfig says. Files are not read, and their paths are
// as the kubeconfig has them: relative ones start at its own directory.
type Config struct {
	// Server is the API server's address, with https or http, and maybe a path.
	Server *url.URL
	// ServerName is the name in the server's certificate; if it is empty, that is Server's host.
	ServerName string
	// Proxy is the HTTP proxy to the server; nil if there is none. If it has a password, fmt prints
	// that.
	Proxy *url.URL
	// Insecure accepts any server that answers at the address.
	Insecure bool
	// CA are the certificates to verify the server with.
	CA Material
	// Token is the user's bearer token, and TokenFile a file that takes precedence.
	Token     Token
	TokenFile string
	// ClientCertificate and ClientKey are the user's pair for TLS.
	ClientCertificate, ClientKey Material
}

// Material is PEM text: Data or, if that is empty, the content of File. Data is a Token so that a
// private key is not printed.
type Material struct {
	Data Token
	File string
}

// Parse reads a kubeconfig (kubectl's configuration format v1), as JSON or in the part of YAML that
// programs write: block style with values on one line. It refuses other YAML, with its line, and
// keys of the user that require another way to log in, such as exec; it ignores other unknown keys.
// Errors quote no values, because any value may be a secret in the wrong place.
func Parse(data []byte) (Config, error) {
	root, err := parseDocument(data)
	if err != nil {
		return Config{}, err
	}
	return root.config()
}

// config follows the current context to its cluster and its user.
func (n *node) config() (c Config, err error) {
	context, err := n.context()
	if err != nil {
		return c, err
	}
	var cluster, user string
	if err := context.texts(field{"cluster", &cluster}, field{"user", &user}); err != nil {
		return c, err
	}
	from, err := n.named("clusters", cluster, "cluster")
	if err == nil {
		err = c.fromCluster(from)
	}
	if err != nil {
		return c, err
	}
	if from, err = n.named("users", user, "user"); err == nil {
		err = c.fromUser(from)
	}
	return c, err
}

// context returns the current one; see
// https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/.
func (n *node) context() (*node, error) {
	if n.kind != mappingNode {
		return nil, errors.New("it is not a mapping with the keys of a kubeconfig")
	}
	var kind, version, name string
	if err := n.texts(field{"kind", &kind}, field{"apiVersion", &version}, field{"current-context", &name}); err != nil {
		return nil, err
	}
	switch {
	case (kind != "" && kind != "Config") || (version != "" && version != "v1"):
		return nil, errors.New("it is of another kind or version than Config, v1")
	case name == "":
		return nil, errors.New("current-context is not set: name one of the contexts")
	}
	return n.named("contexts", name, "context")
}

func (c *Config) fromCluster(cluster *node) (err error) {
	if c.Insecure, err = cluster.boolean("insecure-skip-tls-verify"); err != nil {
		return err
	}
	if c.CA, err = cluster.material("certificate-authority"); err != nil {
		return err
	}
	var server, proxy string
	if err := cluster.texts(field{"server", &server}, field{"tls-server-name", &c.ServerName}, field{"proxy-url", &proxy}); err != nil {
		return err
	}
	if c.Server, err = parseServer(server); err == nil && proxy != "" {
		c.Proxy, err = parseProxy(proxy)
	}
	return err
}

func (c *Config) fromUser(user *node) (err error) {
	for _, key := range []string{"exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra"} {
		if value := user.get(key); value != nil && value.kind != nullNode {
			return fmt.Errorf("line %d: the user has %s, which is not supported: give it a token or a client certificate", value.line, key)
		}
	}
	var token string
	if err := user.texts(field{"token", &token}, field{"tokenFile", &c.TokenFile}); err != nil {
		return err
	}
	c.Token = NewToken(token)
	if c.ClientCertificate, err = user.material("client-certificate"); err == nil {
		c.ClientKey, err = user.material("client-key")
	}
	return err
}

// material returns the value of key-data, which is in base64, and of key.
func (n *node) material(key string) (m Material, err error) {
	var encoded string
	if err := n.texts(field{key + "-data", &encoded}, field{key, &m.File}); err != nil {
		return m, err
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return m, fmt.Errorf("%s-data is not base64", key)
	}
	m.Data = NewToken(string(data))
	return m, nil
}

func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the cluster's server is not a URL such as https://10.96.0.1:443")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the cluster's server is a URL with more than scheme, host, port and path")
	}
	return u, nil
}

func parseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err == nil && strings.HasPrefix(u.Scheme, "socks"):
		return nil, errors.New("the cluster's proxy-url is of SOCKS, which is not supported: name a proxy of HTTP")
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return nil, errors.New("the cluster's proxy-url is not a URL with http or https")
	}
	return u, nil
}
