// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// settings are the keys of a kubeconfig's current context that are understood; see
// https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/.
type settings struct {
	server, tlsServerName, proxyURL string
	certificateAuthority            material
	skipVerify                      bool

	token, tokenFile             string
	clientCertificate, clientKey material
}

// settingsOf follows current-context to its cluster and its user.
func settingsOf(root *node) (settings, error) {
	if err := isConfig(root); err != nil {
		return settings{}, err
	}
	name, err := root.text("current-context")
	if err != nil {
		return settings{}, err
	}
	if name == "" {
		return settings{}, errors.New("current-context is not set: name one of the contexts")
	}
	context, err := root.named("contexts", name, "context")
	if err != nil {
		return settings{}, err
	}
	var s settings
	if err := s.fromCluster(root, context); err != nil {
		return settings{}, err
	}
	if err := s.fromUser(root, context); err != nil {
		return settings{}, err
	}
	return s, nil
}

func isConfig(root *node) error {
	if root.kind != mapping {
		return errors.New("it is no mapping with the keys of a kubeconfig")
	}
	var kind, version string
	if err := root.texts(field{"kind", &kind}, field{"apiVersion", &version}); err != nil {
		return err
	}
	if (kind != "" && kind != "Config") || (version != "" && version != "v1") {
		return errors.New("it is of another kind or version than Config, v1")
	}
	return nil
}

func (s *settings) fromCluster(root, context *node) error {
	name, err := context.text("cluster")
	if err != nil {
		return err
	}
	cluster, err := root.named("clusters", name, "cluster")
	if err != nil {
		return err
	}
	s.certificateAuthority.name = "certificate-authority"
	if s.skipVerify, err = cluster.boolean("insecure-skip-tls-verify"); err != nil {
		return err
	}
	return cluster.texts(
		field{"server", &s.server}, field{"tls-server-name", &s.tlsServerName}, field{"proxy-url", &s.proxyURL},
		field{"certificate-authority-data", &s.certificateAuthority.data}, field{"certificate-authority", &s.certificateAuthority.path},
	)
}

func (s *settings) fromUser(root, context *node) error {
	name, err := context.text("user")
	if err != nil {
		return err
	}
	user, err := root.named("users", name, "user")
	if err != nil {
		return err
	}
	for _, key := range []string{"exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra"} {
		if value := user.get(key); value != nil && value.kind != null {
			return fmt.Errorf("line %d: the user has %s, which is not supported: give it a token or a client certificate", value.line, key)
		}
	}
	s.clientCertificate.name, s.clientKey.name = "client-certificate", "client-key"
	return user.texts(
		field{"token", &s.token}, field{"tokenFile", &s.tokenFile},
		field{"client-certificate-data", &s.clientCertificate.data}, field{"client-certificate", &s.clientCertificate.path},
		field{"client-key-data", &s.clientKey.data}, field{"client-key", &s.clientKey.path},
	)
}

// readFile reads a file of the kubeconfig's. It has to be one that only root or this process's user can have written: whoever names the
// API server decides which pods are captured.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s has mode %s, and others may write to it: take that from them (chmod go-w)", path, info.Mode())
	case !trustedOwner(info):
		return nil, fmt.Errorf("%s belongs to another user: give it to root (chown)", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, nil
}
