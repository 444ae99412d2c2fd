// SPDX-License-Identifier: Apache-2.0

//go:build !js

package kubeconfig

import (
	"net/url"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// FuzzDocument compares the reader with client-go's: client-go accepts what we accept, and reads
// the same from it.
func FuzzDocument(f *testing.F) {
	f.Add("current-context: c\ncontexts:\n- name: c\n  context:\n    cluster: k\n    user: u\nclusters:\n- name: k\n  cluster:\n" +
		"    server: https://10.96.0.1:443\nusers:\n- name: u\n  user:\n    token: the-token\n")
	f.Add("current-context: 'a''b'\nusers: []\nclusters:\n- name: \"x\\u0041\" # c\n  cluster:\n    server: a:b#c\n")
	f.Add(`{"current-context": "c", "users": [{"name": "u", "user": {"token": "t"}}]}`)
	f.Fuzz(func(t *testing.T, document string) {
		root, err := parseDocument([]byte(document))
		if err != nil || root.kind != mappingNode {
			return
		}
		for _, key := range []string{"kind", "apiVersion", "preferences", "extensions"} {
			if root.get(key) != nil {
				return // client-go wants known values there
			}
		}
		ours, err := root.config()
		if err != nil {
			return
		}
		config, err := clientcmd.Load([]byte(document))
		if err != nil {
			return // it checks types of keys that don't matter here
		}
		context := config.Contexts[config.CurrentContext]
		if context == nil {
			t.Fatalf("client-go sees no current context in %q, and we %v", document, ours.Server)
		}
		cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
		if cluster == nil || user == nil {
			t.Fatalf("client-go sees no cluster or user in %q, and we %v", document, ours.Server)
		}
		server, err := url.Parse(cluster.Server)
		if err != nil || *ours.Server != *server || ours.Token.Reveal() != user.Token || ours.Insecure != cluster.InsecureSkipTLSVerify {
			t.Fatalf("client-go sees %q %q in %q, and we %v", cluster.Server, user.Token, document, ours.Server)
		}
	})
}
