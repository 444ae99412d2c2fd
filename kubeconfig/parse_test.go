// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/kubeconfig"
)

// weWrite returns what Build writes.
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

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, document string
	}{
		{"package kubeconfig", weWrite(t)},
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
`, "\"#no", "\" #no")},
		{"DOS line ends", strings.ReplaceAll(minimal, "\n", "\r\n")},
		{"JSON", `{"kind": "Config", "current-context": "c", "preferences": null, "n": 12e3,
			"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
			"clusters": [{"name": "k", "cluster": {"server": "https:\/\/10.96.0.1:443", "insecure-skip-tls-verify": true}}],
			"users": [{"name": "u", "user": {"token": "the-token"}}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			wantConfig(t, local(), test.document)
		})
	}
}

// local is what the documents of these tests say.
func local() kubeconfig.Config {
	return kubeconfig.Config{
		Server: &url.URL{Scheme: "https", Host: "10.96.0.1:443"}, Insecure: true, Token: kubeconfig.NewToken("the-token"),
	}
}

func wantConfig(t *testing.T, want kubeconfig.Config, document string) {
	t.Helper()
	got, err := kubeconfig.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	tokens := cmp.Comparer(func(a, b kubeconfig.Token) bool { return a.Reveal() == b.Reveal() })
	urls := cmp.Transformer("String", func(u *url.URL) string { return u.String() })
	if diff := cmp.Diff(want, got, tokens, cmp.FilterValues(func(a, b *url.URL) bool { return a != nil && b != nil }, urls)); diff != "" {
		t.Error(diff)
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

func TestParseEverything(t *testing.T) {
	t.Parallel()
	want := kubeconfig.Config{
		Server: &url.URL{Scheme: "https", Host: "10.96.0.1:443"}, ServerName: "kubernetes",
		Proxy: &url.URL{Scheme: "http", User: url.UserPassword("a", "b"), Host: "proxy:3128"},
		CA:    kubeconfig.Material{Data: kubeconfig.NewToken("authority"), File: "ca.pem"},
		Token: kubeconfig.NewToken("the-token"), TokenFile: "token",
		ClientCertificate: kubeconfig.Material{File: "/etc/client.pem"},
		ClientKey:         kubeconfig.Material{Data: kubeconfig.NewToken("key")},
	}
	document := strings.Replace(minimal, "    insecure-skip-tls-verify: true\n", `    tls-server-name: kubernetes
    proxy-url: http://a:b@proxy:3128
    certificate-authority-data: YXV0aG9yaXR5
    certificate-authority: ca.pem
`, 1) + `    tokenFile: token
    client-certificate: /etc/client.pem
    client-key-data: a2V5
`
	wantConfig(t, want, document)
	config, err := kubeconfig.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"the-token", "key}", "authority}"} {
		if text := fmt.Sprintf("%+v", config); strings.Contains(text, secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}
}

func TestValuesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ from, to, want string }{
		{"    server: https://10.96.0.1:443\n", "", "the cluster's server is not a URL"},
		{"https://10", "10", "the cluster's server is not a URL"},
		{"https://", "https://a:b@", "the cluster's server is a URL with more than"},
		{"    server", "    proxy-url: ftp://proxy\n    server", "the cluster's proxy-url is not a URL with"},
		{"    server", "    proxy-url: socks5://proxy\n    server", "the cluster's proxy-url is of SOCKS, which is not supported: name"},
		{"    server", "    certificate-authority-data: '*'\n    server", "certificate-authority-data is not base64"},
		{"    token", "    client-key-data: '*'\n    token", "client-key-data is not base64"},
	} {
		_, err := kubeconfig.Parse([]byte(strings.Replace(minimal, test.from, test.to, 1)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got error %v, want %q", test.to, err, test.want)
		}
	}
}

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
		{"no colon", "token: ", "token ", `line 15: it is not "key: value"`},
		{"odd indentation", "  context:\n", " context:\n", "line 4: it is indented deeper than the line above allows"},
		{"indented less than the first line", "current-context", " current-context", "line 2: its indentation fits nothing above it"},
		{"key twice", "    token", "    token: a\n    token", `line 16: "token" is there twice`},
		{"colon in value", "the-token", "the: token", "line 15: its value has a tab, or a blank after a colon or a dash"},
		{"dash in value", "the-token", "- the-token", "line 15: its value has a tab, or a blank after a colon or a dash"},
		{"open quote", "the-token", `"the-token`, "line 15: a quote is not closed"},
		{"open single quote", "the-token", `'the''token`, "line 15: a quote is not closed"},
		{"strange escape", "the-token", `"the\xtoken"`, "line 15: it has a backslash followed by something"},
		{"after a quote", "the-token", `"the"-token`, "line 15: there is something after its value"},
		{"control character", "the-token", "the\x07token", "line 15: it has characters that are not text"},
		{"no UTF-8", "the-token", "the\xfftoken", "line 15: it has characters that are not text"},
		{"too deep", "the-token", "\n" + deep(20), "too many levels"},
		{"too many keys", "users:\n", manyKeys(300) + "users:\n", "more than 256 keys in a mapping"},
		{"empty", minimal, "# nothing\n", "it is empty"},
		{"a list", minimal, "- a\n", "it is not a mapping with the keys of a kubeconfig"},
		{"text", minimal, "Service Unavailable", `line 1: it is not "key: value"`},
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
		{"JSON and more", minimal, "{}\n{}", "there is more after the end"},
		{"JSON key twice", minimal, `{"kind": 1, "kind": 2}`, `"kind" is there twice`},
		{"JSON too deep", minimal, `{"a":` + strings.Repeat("[", 30) + strings.Repeat("]", 30) + "}", "too many levels"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			document := strings.Replace(minimal, test.from, test.to, 1)
			if document == minimal {
				t.Fatalf("nothing to replace: %q", test.from)
			}
			_, err := kubeconfig.Parse([]byte(document))
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
