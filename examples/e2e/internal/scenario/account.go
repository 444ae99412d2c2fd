// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
)

// RevokeTokens deletes and recreates the daemons' service account, so that the API server refuses
// all existing tokens with 401. It waits until the API server does so, since it caches recent
// tokens for some seconds. The kubelets do not notice: see [Scenario.RenewToken].
func (s *Scenario) RevokeTokens() {
	s.t.Helper()
	const name = "istio-cni"
	s.installation.renew()
	accounts := s.client().CoreV1().ServiceAccounts(SystemNamespace)
	s.Do("make service account "+name+" anew", func(ctx context.Context) error {
		account, err := accounts.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := accounts.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		account.UID, account.ResourceVersion = "", ""
		_, err = accounts.Create(ctx, account, metav1.CreateOptions{})
		return err
	})
	s.awaitRefusals()
}

// ExchangeSigningKey makes the API server sign tokens with another key, and waits until it is back
// and refuses the daemons' tokens. The kubelets do not notice: see [Scenario.RenewToken].
func (s *Scenario) ExchangeSigningKey() {
	s.t.Helper()
	s.Do("exchange the key of service accounts", s.Cluster.ExchangeServiceAccountKey)
	s.awaitRefusals()
}

// awaitRefusals waits until the API server refuses the plugin's tokens.
func (s *Scenario) awaitRefusals() {
	s.t.Helper()
	for _, node := range s.Cluster.Nodes() {
		token := s.PluginToken(node)
		s.Await("the end of the token on "+node.Name, func(ctx context.Context) (bool, error) {
			taken, err := s.Takes(ctx, token)
			return !taken, err
		})
	}
}

// RenewToken restarts a node's kubelet, which then forgets the tokens that it gave to pods. It
// waits until the plugin has another token that the API server accepts.
func (s *Scenario) RenewToken(node *cluster.Node) {
	s.t.Helper()
	before := s.PluginToken(node)
	s.RestartKubelet(node)
	s.Await("another token on "+node.Name, func(ctx context.Context) (bool, error) {
		token := s.PluginToken(node)
		if token == before {
			return false, nil
		}
		return s.Takes(ctx, token)
	})
	s.AwaitNode(node, true)
}

// RestartKubelet kills a node's kubelet. The node restarts it.
func (s *Scenario) RestartKubelet(node *cluster.Node) {
	s.t.Helper()
	s.Do("end the kubelet of "+node.Name, func(ctx context.Context) error {
		ids, err := node.Run(ctx, "pgrep", "--exact", "--full", ".*/kubernetes kubelet .*")
		if err != nil {
			return err
		}
		_, err = node.Run(ctx, append([]string{"kill", "-KILL"}, strings.Fields(ids)...)...)
		return err
	})
}

// PluginToken returns the token in the plugin's kubeconfig on a node.
func (s *Scenario) PluginToken(node *cluster.Node) string {
	s.t.Helper()
	token, err := KubeconfigToken(node)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// KubeconfigToken is [Scenario.PluginToken] for a node that may have no kubeconfig for a while.
func KubeconfigToken(node *cluster.Node) (string, error) {
	text, err := os.ReadFile(node.Path("/run/istio-cni/istio-cni-kubeconfig"))
	if err != nil {
		return "", err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return "", err
	}
	return config.BearerToken, nil
}

// Takes reports whether the API server accepts a token.
func (s *Scenario) Takes(ctx context.Context, token string) (bool, error) {
	config := s.Cluster.Config()
	config.CertFile, config.KeyFile, config.CertData, config.KeyData = "", "", nil, nil
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, err
	}
	_, err = client.CoreV1().Pods(s.Namespace).Get(ctx, "no-such-pod", metav1.GetOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	}
	return false, fmt.Errorf("the answer to a token: %w", err)
}
