// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/meshcni/meshcni/kubeconfig"
)

// settingsIn reads a document as readKubeconfig does, up to the files it refers to.
func settingsIn(document string) (settings, error) {
	root, err := parseDocument([]byte(document))
	if err != nil {
		return settings{}, err
	}
	return settingsOf(root)
}

// weWrite is what our own node agent writes.
func weWrite(t *testing.T) string {
	t.Helper()
	file, err := kubeconfig.Build(kubeconfig.Input{
		Server: &url.URL{Scheme: "https", Host: "10.96.0.1:443"}, Insecure: true, Token: kubeconfig.NewToken("the-token"), Name: `it's: "C:\x" #1`,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(file.YAML())
}

// kubectlWrites is what client-go, and with it every tool built on it, writes.
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

func TestSettingsOfWhatOthersWrite(t *testing.T) {
	t.Parallel()
	local := settings{
		server: "https://10.96.0.1:443", skipVerify: true, token: "the-token",
		certificateAuthority: material{name: "certificate-authority"},
		clientCertificate:    material{name: "client-certificate"}, clientKey: material{name: "client-key"},
	}
	withAuthority := local
	withAuthority.server, withAuthority.skipVerify = "https://[fd00::1]:443", false
	withAuthority.certificateAuthority.data = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("authority ", 200)))
	for _, test := range []struct {
		name, document string
		want           settings
	}{
		{"client-go", kubectlWrites(t), withAuthority},
		{"package kubeconfig", weWrite(t), local},
		{"lists indented, quotes, comments, DOS lines", strings.ReplaceAll(`
# written by hand
---
apiVersion: "v1"   # the only one
'kind': Config
preferences: {}
extensions: []
current-context: 'istio''s'
clusters:
  -
    name: "local \u00e9\\"
    cluster:
      server: "https://10.96.0.1:443"#no comment
      insecure-skip-tls-verify: true # for a test
contexts:
  - name: istio's
    context:
        user: u#1
        cluster: local é\
        namespace: ~
users:
  - user: {}
    name: nobody
  - user:
      token: the-token
      client-key:
    name: u#1
`, "\"#no", "\" #no"), local},
		{"DOS line ends", strings.ReplaceAll(minimal, "\n", "\r\n"), local},
		{"JSON", `{"kind": "Config", "current-context": "c", "preferences": null, "n": 12e3,
			"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
			"clusters": [{"name": "k", "cluster": {"server": "https:\/\/10.96.0.1:443", "insecure-skip-tls-verify": true}}],
			"users": [{"name": "u", "user": {"token": "the-token"}}]}`, local},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := settingsIn(test.document)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(settings{}, material{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const minimal = `current-context: c
contexts:
- name: c
  context:
    cluster: k
    user: u
clusters:
- name: k
  cluster:
    server: https://10.96.0.1:443
    insecure-skip-tls-verify: true
users:
- name: u
  user:
    token: the-token
`

func TestKubeconfigsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, from, to, want string
	}{
		{"anchor", "https://10.96.0.1:443", "&a https://10.96.0.1:443", `line 10: its value starts with "&", which is not supported`},
		{"alias", "cluster: k", "cluster: *k", `line 5: its value starts with "*"`},
		{"tag", "the-token", "!!str the-token", `line 15: its value starts with "!"`},
		{"block text", "token: the-token", "token: |\n      the-token", `line 15: its value starts with "|"`},
		{"flow mapping", "- name: u", "- {name: u}", `line 13: it starts with "{", which is not supported`},
		{"flow list", "users:\n", "users: [u]\n", `line 12: it has a list or mapping in braces or brackets`},
		{"value of two lines", "the-token", "the\n      -token", "line 16: it is indented deeper than the line above allows"},
		{"tab", "    token", "\ttoken", "line 15: it is indented with a tab"},
		{"second document", "users:\n", "---\nusers:\n", "line 12: directives and several documents are not supported"},
		{"directive", "current-context", "%YAML 1.2\ncurrent-context", "line 1: directives"},
		{"merge key", "    token", "    <<: *x\n    token", `line 15: it starts with "<"`},
		{"question mark", "    token", "    ? token", `line 15: it starts with "?"`},
		{"no colon", "token: ", "token ", `line 15: it is no "key: value"`},
		{"odd indentation", "  context:\n", " context:\n", "line 4: it is indented deeper than the line above allows"},
		{"indented less than the first line", "current-context", " current-context", "line 2: its indentation fits nothing above it"},
		{"key twice", "    token", "    token: a\n    token", `line 16: "token" is there twice`},
		{"colon in value", "the-token", "the: token", "line 15: its value has a tab, or a blank behind a colon or a dash"},
		{"dash in value", "the-token", "- the-token", "line 15: its value has a tab, or a blank behind a colon or a dash"},
		{"open quote", "the-token", `"the-token`, "line 15: a quote is not closed"},
		{"open single quote", "the-token", `'the''token`, "line 15: a quote is not closed"},
		{"strange escape", "the-token", `"the\xtoken"`, "line 15: it has a backslash with something behind it"},
		{"behind a quote", "the-token", `"the"-token`, "line 15: there is something behind its value"},
		{"control character", "the-token", "the\x07token", "line 15: it has characters that are no text"},
		{"no UTF-8", "the-token", "the\xfftoken", "line 15: it has characters that are no text"},
		{"too deep", "the-token", "\n" + deep(20), "too many levels"},
		{"too many keys", "users:\n", manyKeys(300) + "users:\n", "more than 256 keys in a mapping"},
		{"empty", minimal, "# nothing\n", "it is empty"},
		{"a list", minimal, "- a\n", "it is no mapping with the keys of a kubeconfig"},
		{"text", minimal, "Service Unavailable", `line 1: it is no "key: value"`},
		{"wrong kind", "users:\n", "kind: Pod\nusers:\n", "it is of another kind or version than Config, v1"},
		{"no current context", "current-context: c", "current-context: ''", "current-context is not set"},
		{"unknown context", "current-context: c", "current-context: d", "line 3: contexts has no entry with the name that is in use"},
		{"unknown cluster", "cluster: k", "cluster: j", "clusters has no entry with the name that is in use"},
		{"unknown user", "user: u", "user: v", "users has no entry with the name that is in use"},
		{"two users", "users:\n", "users:\n- name: u\n  user: {}\n", "users has two entries with the name that is in use"},
		{"no users", "users:\n", "losers:\n", "there is no list of users"},
		{"user without anything", "  user:\n    token: the-token\n", "  uses: 1\n", "line 13: the entry of users that is in use has no mapping user"},
		{"token as a list", "token: the-token", "token:\n    - a", "line 16: token is a list, and should be a value"},
		{"exec", "    token", "    exec:\n      command: aws\n    token", "line 16: the user has exec, which is not supported"},
		{"password", "    token", "    password: x\n    token", "line 15: the user has password, which is not supported"},
		{"not a boolean", "verify: true", "verify: 'yes'", "line 11: insecure-skip-tls-verify is neither true nor false"},
		{"JSON syntax", minimal, "{\n\"users\": [}", "line 2: not understood as JSON: syntax error"},
		{"JSON cut off", minimal, "{\"users\":\n[{", "line 2: not understood as JSON"},
		{"JSON and more", minimal, "{}\n{}", "there is more behind the end"},
		{"JSON key twice", minimal, `{"kind": 1, "kind": 2}`, `"kind" is there twice`},
		{"JSON too deep", minimal, `{"a":` + strings.Repeat("[", 30) + strings.Repeat("]", 30) + "}", "too many levels"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			document := strings.Replace(minimal, test.from, test.to, 1)
			if document == minimal {
				t.Fatalf("nothing to replace: %q", test.from)
			}
			_, err := settingsIn(document)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "the-token") {
				t.Errorf("the error repeats the token: %v", err)
			}
		})
	}
}

func deep(levels int) string {
	var b strings.Builder
	for i := range levels {
		fmt.Fprintf(&b, "%sk:\n", strings.Repeat(" ", 6+i))
	}
	return b.String()
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	return b.String()
}

func TestConnectionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, from, to, want string
	}{
		{"no server", "    server: https://10.96.0.1:443\n", "", "the cluster's server is no URL"},
		{"server without scheme", "https://10", "10", "the cluster's server is no URL"},
		{"server with a password", "https://", "https://a:b@", "the cluster's server is a URL with more than"},
		{"strange proxy", "    server", "    proxy-url: ftp://proxy\n    server", "the cluster's proxy-url is no URL with"},
		{"proxy of SOCKS", "    server", "    proxy-url: socks5://proxy\n    server", "the cluster's proxy-url is of SOCKS, which is not supported: name"},
		{"authority and no verification", "    server", "    certificate-authority-data: eA==\n    server", "remove one"},
		{"authority not base64", "    insecure-skip-tls-verify: true", "    certificate-authority-data: '*'", "certificate-authority-data is not base64"},
		{"authority not PEM", "    insecure-skip-tls-verify: true", "    certificate-authority-data: eA==", "has no certificate in PEM form"},
		{"authority missing", "    insecure-skip-tls-verify: true", "    certificate-authority: ca.pem", "certificate-authority: open "},
		{"token with a line end", "the-token", `"the\ntoken"`, "the user's token has a character that no token has"},
		{"token file missing", "token: the-token", "tokenFile: none", "the user's tokenFile: open "},
		{"token file a directory", "token: the-token", "tokenFile: .", "is not a regular file"},
		{"key without certificate", "token: the-token", "client-key-data: eA==", "are not a pair in PEM form"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "kubeconfig")
			document := strings.Replace(minimal, test.from, test.to, 1)
			if document == minimal {
				t.Fatalf("nothing to replace: %q", test.from)
			}
			if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readKubeconfig(path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestKubeconfigOfAnEndlessSize(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKubeconfig(path); err == nil || !strings.Contains(err.Error(), "is larger than 1048576 bytes") {
		t.Errorf("got error %v", err)
	}
}

// FuzzDocument holds the reader against client-go's: what we accept, it accepts, and both see the same in it.
func FuzzDocument(f *testing.F) {
	f.Add(minimal)
	f.Add("current-context: 'a''b'\nusers: []\nclusters:\n- name: \"x\\u0041\" # c\n  cluster:\n    server: a:b#c\n")
	f.Add(`{"current-context": "c", "users": [{"name": "u", "user": {"token": "t"}}]}`)
	f.Fuzz(func(t *testing.T, document string) {
		root, err := parseDocument([]byte(document))
		if err != nil || root.kind != mapping {
			return
		}
		for _, key := range []string{"kind", "apiVersion", "preferences", "extensions"} {
			if root.get(key) != nil {
				return // client-go wants known values there
			}
		}
		ours, err := settingsOf(root)
		if err != nil {
			return
		}
		config, err := clientcmd.Load([]byte(document))
		if err != nil {
			return // it checks types of keys that don't matter here
		}
		context := config.Contexts[config.CurrentContext]
		if context == nil {
			t.Fatalf("client-go sees no current context in %q, and we %+v", document, ours)
		}
		cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
		if cluster == nil || user == nil {
			t.Fatalf("client-go sees no cluster or user in %q, and we %+v", document, ours)
		}
		if ours.server != cluster.Server || ours.token != user.Token || ours.skipVerify != cluster.InsecureSkipTLSVerify {
			t.Fatalf("client-go sees %q %q in %q, and we %+v", cluster.Server, user.Token, document, ours)
		}
	})
}
