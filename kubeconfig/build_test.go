// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/kubeconfig"
)

const secret = "eyJhbGciOiJSUzI1NiJ9.payload.signature-very_secret"

func newCA(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kubernetes"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func server(t testing.TB, host string) *url.URL {
	t.Helper()
	u, err := kubeconfig.ServerURL("", host, "443")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func input(t testing.TB) kubeconfig.Input {
	t.Helper()
	return kubeconfig.Input{Server: server(t, "10.96.0.1"), CA: newCA(t), Token: kubeconfig.NewToken(secret), Name: "istio-cni"}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.CA, in.Insecure = nil, true
	file, err := kubeconfig.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: https://10.96.0.1:443
    insecure-skip-tls-verify: true
users:
- name: istio-cni
  user:
    token: ` + secret + `
contexts:
- name: istio-cni-context
  context:
    cluster: local
    user: istio-cni
current-context: istio-cni-context
`
	if diff := cmp.Diff(want, string(file.YAML())); diff != "" {
		t.Errorf("YAML (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(strings.ReplaceAll(want, secret, "REDACTED"), file.String()); diff != "" {
		t.Errorf("String (-want +got):\n%s", diff)
	}
}

// TestYAMLIsItsOwn checks that a caller that changes the bytes does not change the file.
func TestYAMLIsItsOwn(t *testing.T) {
	t.Parallel()
	in := input(t)
	file, err := kubeconfig.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(file.YAML())
	clear(file.YAML())
	clear(in.CA)
	in.Server.Host = "elsewhere"
	if !bytes.Equal(want, file.YAML()) {
		t.Error("the file has changed")
	}
}

func TestZeroFile(t *testing.T) {
	t.Parallel()
	var file kubeconfig.File
	if len(file.YAML()) != 0 || file.String() != "" {
		t.Errorf("got %q, %q; want nothing", file.YAML(), file.String())
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	key := []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")
	for _, tc := range []struct {
		name   string
		change func(*kubeconfig.Input)
		is     error
		want   string
	}{
		{"no server", func(in *kubeconfig.Input) { in.Server = nil }, kubeconfig.ErrServer, "make it with ServerURL"},
		{"empty server", func(in *kubeconfig.Input) { in.Server = &url.URL{} }, kubeconfig.ErrServer, `protocol ""`},
		{"another protocol", func(in *kubeconfig.Input) { in.Server.Scheme = "unix" }, kubeconfig.ErrServer, `protocol "unix"`},
		{"user information", func(in *kubeconfig.Input) { in.Server.User = url.UserPassword("u", secret) }, kubeconfig.ErrServer, "user information"},
		{"query", func(in *kubeconfig.Input) { in.Server.RawQuery = secret }, kubeconfig.ErrServer, "more than host, port and path"},
		{"opaque", func(in *kubeconfig.Input) { in.Server.Opaque = "x" }, kubeconfig.ErrServer, "more than host, port and path"},
		{"no host", func(in *kubeconfig.Input) { in.Server.Host = ":443" }, kubeconfig.ErrServer, "nor a DNS name"},
		{"IPv4 in brackets", func(in *kubeconfig.Input) { in.Server.Host = "[10.96.0.1]:443" }, kubeconfig.ErrServer, "brackets are for IPv6 only"},
		{"IPv6 without brackets", func(in *kubeconfig.Input) { in.Server.Host = "fd00::1:443" }, kubeconfig.ErrServer, "fd00::1:443"},
		{"no port after the colon", func(in *kubeconfig.Input) { in.Server.Host = "api:" }, kubeconfig.ErrServer, `port is ""`},
		{"port out of range", func(in *kubeconfig.Input) { in.Server.Host = "api:70000" }, kubeconfig.ErrServer, `port is "70000"`},
		{"http", func(in *kubeconfig.Input) { in.Server.Scheme = "http" }, kubeconfig.ErrServer, "clear text"},
		{"no trust", func(in *kubeconfig.Input) { in.CA = nil }, kubeconfig.ErrCA, "or set Insecure"},
		{"both kinds of trust", func(in *kubeconfig.Input) { in.Insecure = true }, kubeconfig.ErrCA, "contradict each other"},
		{"CA is no PEM", func(in *kubeconfig.Input) { in.CA = []byte("0\x82") }, kubeconfig.ErrCA, "its 2 bytes are not PEM"},
		{"CA is cut off", func(in *kubeconfig.Input) { in.CA = ca[:len(ca)-10] }, kubeconfig.ErrCA, "1 PEM blocks begin and 0 can be read"},
		{"second certificate is cut off", func(in *kubeconfig.Input) { in.CA = append(bytes.Clone(ca), ca[:99]...) }, kubeconfig.ErrCA, "2 PEM blocks begin and 1 can"},
		{
			"first certificate is garbled", func(in *kubeconfig.Input) { in.CA = append(bytes.Replace(ca, []byte("MII"), []byte("M!!"), 1), ca...) },
			kubeconfig.ErrCA, "2 PEM blocks begin and 1 can",
		},
		{
			"PEM that is not a certificate", func(in *kubeconfig.Input) {
				in.CA = bytes.ReplaceAll(key, []byte("EC PRIVATE KEY"), []byte("CERTIFICATE"))
			},
			kubeconfig.ErrCA, "PEM block 1 is not a certificate",
		},
		{"a key beside the certificate", func(in *kubeconfig.Input) { in.CA = append(bytes.Clone(ca), key...) }, kubeconfig.ErrCA, `PEM block 2 is of type "EC PRIVATE KEY"`},
		{
			"a certificate with headers, which clients skip",
			func(in *kubeconfig.Input) {
				in.CA = bytes.Replace(ca, []byte("-----\n"), []byte("-----\nA: b\n\n"), 1)
			},
			kubeconfig.ErrCA, "with 1 headers",
		},
		{"CA is huge", func(in *kubeconfig.Input) { in.CA = append(ca, make([]byte, 1<<20)...) }, kubeconfig.ErrCA, "larger than"},
		{"no token", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken("") }, kubeconfig.ErrToken, "it is empty"},
		{"token with a line break", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken(secret + "\n") }, kubeconfig.ErrToken, "byte 51 of 51"},
		{"token with a blank", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken("a " + secret) }, kubeconfig.ErrToken, "byte 2 of 52"},
		{"token with a zero byte", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken("\x00" + secret) }, kubeconfig.ErrToken, "byte 1 of 51"},
		{"token that is not ASCII", func(in *kubeconfig.Input) { in.Token = kubeconfig.NewToken(secret + "é") }, kubeconfig.ErrToken, "not ASCII"},
		{"no name", func(in *kubeconfig.Input) { in.Name = "" }, kubeconfig.ErrName, "it is empty"},
		{"name with a line break", func(in *kubeconfig.Input) { in.Name = "a\nb" }, kubeconfig.ErrName, "does not print"},
		{"name that is not UTF-8", func(in *kubeconfig.Input) { in.Name = "a\xff" }, kubeconfig.ErrName, "not UTF-8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			in := input(t)
			in.CA = bytes.Clone(ca)
			tc.change(&in)
			file, err := kubeconfig.Build(in)
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %v with %q", err, tc.is, tc.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error has the secret in it: %v", err)
			}
			if len(file.YAML()) > 0 {
				t.Error("there is a file beside the error")
			}
		})
	}
}

// TestBuildReportsEverything checks that one call reports all problems.
func TestBuildReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := kubeconfig.Build(kubeconfig.Input{})
	for _, want := range []error{kubeconfig.ErrServer, kubeconfig.ErrCA, kubeconfig.ErrToken, kubeconfig.ErrName} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not reported: %v", want, err)
		}
	}
}
