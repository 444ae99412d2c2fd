// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/kubeconfig"
)

// minimal is a kubeconfig as the node agent writes it.
func minimal(t *testing.T) string {
	t.Helper()
	file, err := kubeconfig.Build(kubeconfig.Input{
		Server: &url.URL{Scheme: "https", Host: "10.96.0.1:443"}, Insecure: true, Token: kubeconfig.NewToken("the-token"), Name: "u",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(file.YAML())
}

func TestConnectionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, from, to, want string
	}{
		{"no server", "    server: https://10.96.0.1:443\n", "", "the cluster's server is not a URL"},
		{"server without scheme", "https://10", "10", "the cluster's server is not a URL"},
		{"server with a password", "https://", "https://a:b@", "the cluster's server is a URL with more than"},
		{"strange proxy", "    server", "    proxy-url: ftp://proxy\n    server", "the cluster's proxy-url is not a URL with"},
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
			whole := minimal(t)
			document := strings.Replace(whole, test.from, test.to, 1)
			if document == whole {
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
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKubeconfig(path); err == nil || !strings.Contains(err.Error(), "larger than the limit of 1048576 bytes") {
		t.Errorf("got error %v", err)
	}
}
