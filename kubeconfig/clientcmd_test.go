// SPDX-License-Identifier: Apache-2.0

//go:build !js

package kubeconfig_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/meshcni/meshcni/kubeconfig"
)

// TestClientGoLoads checks that client-go reads exactly the input, by both of its ways of loading.
func TestClientGoLoads(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	for _, tc := range []struct {
		name   string
		change func(*kubeconfig.Input)
		server string
	}{
		{"IPv4", func(*kubeconfig.Input) {}, "https://10.96.0.1:443"},
		{"IPv6", func(in *kubeconfig.Input) { in.Server = server(t, "fd00::1") }, "https://[fd00::1]:443"},
		{"IPv6 in brackets", func(in *kubeconfig.Input) { in.Server = server(t, "[::1]") }, "https://[::1]:443"},
		{"name", func(in *kubeconfig.Input) { in.Server = server(t, "kubernetes.default.svc") }, "https://kubernetes.default.svc:443"},
		{"path", func(in *kubeconfig.Input) { in.Server.Path = "/k8s/clusters/c 1" }, "https://10.96.0.1:443/k8s/clusters/c%201"},
		{"no port", func(in *kubeconfig.Input) { in.Server.Host = "api.example" }, "https://api.example"},
		{"insecure", func(in *kubeconfig.Input) { in.CA, in.Insecure = nil, true }, "https://10.96.0.1:443"},
		{"insecure http", func(in *kubeconfig.Input) { in.Server.Scheme, in.CA, in.Insecure = "http", nil, true }, "http://10.96.0.1:443"},
		{"two certificates with text between", func(in *kubeconfig.Input) {
			in.CA = bytes.Join([][]byte{ca, ca}, []byte("# the old one\r\n"))
		}, "https://10.96.0.1:443"},
		{"odd name", func(in *kubeconfig.Input) { in.Name = `system:node "ä": #1 \n {x}` }, "https://10.96.0.1:443"},
		{"name that is a word of YAML", func(in *kubeconfig.Input) { in.Name = "null" }, "https://10.96.0.1:443"},
		{"token that is a number", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken("0123456789") }, "https://10.96.0.1:443"},
		{"token of indicators", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken(`!&*{}[]|>'"%@,#?:-\` + "`~") }, "https://10.96.0.1:443"},
		{"token that ends in a colon", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken("a:") }, "https://10.96.0.1:443"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			in := kubeconfig.Input{Server: server(t, "10.96.0.1"), CA: ca, Token: kubeconfig.NewToken(secret), Name: "istio-cni"}
			tc.change(&in)
			file, err := kubeconfig.Build(in)
			if err != nil {
				t.Fatal(err)
			}
			wantLoaded(t, in, tc.server, file.YAML())
			wantUsable(t, in, tc.server, file.YAML())
		})
	}
}

// wantLoaded checks the parts of the file.
func wantLoaded(t *testing.T, in kubeconfig.Input, server string, yaml []byte) {
	t.Helper()
	loaded, err := clientcmd.Load(yaml)
	if err != nil {
		t.Fatalf("client-go does not load it: %v", err)
	}
	if err := clientcmd.Validate(*loaded); err != nil {
		t.Errorf("client-go finds it invalid: %v", err)
	}
	cluster, user, context := loaded.Clusters["local"], loaded.AuthInfos[in.Name], loaded.Contexts[in.Name+"-context"]
	if cluster == nil || user == nil || context == nil || len(loaded.Clusters)+len(loaded.AuthInfos)+len(loaded.Contexts) != 3 {
		t.Fatalf("client-go sees other entries: %v, %v, %v", loaded.Clusters, loaded.AuthInfos, loaded.Contexts)
	}
	if cluster.Server != server || !bytes.Equal(cluster.CertificateAuthorityData, in.CA) || cluster.InsecureSkipTLSVerify != in.Insecure {
		t.Errorf("client-go sees another cluster: %+v", cluster)
	}
	if user.Token != in.Token.Reveal() {
		t.Error("client-go sees another token")
	}
	got := []string{loaded.CurrentContext, context.Cluster, context.AuthInfo}
	if diff := cmp.Diff([]string{in.Name + "-context", "local", in.Name}, got); diff != "" {
		t.Errorf("context (-want +got):\n%s", diff)
	}
}

// wantUsable checks what a client is configured with.
func wantUsable(t *testing.T, in kubeconfig.Input, server string, yaml []byte) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(yaml)
	if err != nil {
		t.Fatalf("client-go makes no client of it: %v", err)
	}
	token, insecure := in.Token.Reveal(), in.Insecure
	if in.Server.Scheme == "http" { // client-go has nothing to verify, and sends no token
		token, insecure = "", false
	}
	if config.Host != server || config.BearerToken != token || config.Insecure != insecure || !bytes.Equal(config.CAData, in.CA) {
		t.Errorf("client-go is configured for %s, insecure %v", config.Host, config.Insecure)
	}
}

// kubectlWrites returns what client-go writes, and every tool built on it.
func kubectlWrites(t *testing.T) string {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"local":  {Server: "https://[fd00::1]:443", CertificateAuthorityData: []byte(strings.Repeat("authority ", 200))},
			"remote": {Server: "https://192.0.2.1", InsecureSkipTLSVerify: true, TLSServerName: "kubernetes"},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"istio-cni": {Token: "the-token"},
			"admin":     {Username: "admin", Password: "secret"},
		},
		Contexts: map[string]*clientcmdapi.Context{
			"istio-cni-context": {Cluster: "local", AuthInfo: "istio-cni"},
			"other":             {Cluster: "remote", AuthInfo: "admin", Namespace: "default"},
		},
		CurrentContext: "istio-cni-context",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestParseOfClientGo checks that Parse reads what client-go writes.
func TestParseOfClientGo(t *testing.T) {
	t.Parallel()
	want := local()
	want.Server.Host, want.Insecure = "[fd00::1]:443", false
	want.CA.Data = kubeconfig.NewToken(strings.Repeat("authority ", 200))
	wantConfig(t, want, kubectlWrites(t))
}
