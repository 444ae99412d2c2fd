// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority makes the certificates of a cluster, and writes them to a directory: NAME.crt and
// NAME.key.
type authority struct {
	directory   string
	certificate *x509.Certificate
	key         crypto.Signer
}

// identity is the subject of a certificate.
type identity struct {
	// name is the base name of the files.
	name string
	// user and groups are in the certificate's subject, for the API server.
	user   string
	groups []string
	// hosts and addresses are those of a server.
	hosts     []string
	addresses []net.IP
}

// newAuthority makes a new authority with the files ca.crt and ca.key.
func newAuthority(directory string) (*authority, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "meshcni-e2e"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a := &authority{directory: directory, certificate: template, key: key}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.certificate, err = x509.ParseCertificate(signed); err != nil {
		return nil, err
	}
	return a, a.write("ca", signed, key)
}

// issue makes a certificate for clients and servers.
func (a *authority) issue(of identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: of.user, Organization: of.groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames: of.hosts, IPAddresses: of.addresses,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", of.name, err)
	}
	return a.write(of.name, signed, key)
}

// serviceAccountKey makes a key that signs service accounts' tokens: NAME.key and NAME.pub.
func (a *authority) serviceAccountKey(name string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := a.writePEM(name+".key", "PRIVATE KEY", private); err != nil {
		return err
	}
	return a.writePEM(name+".pub", "PUBLIC KEY", public)
}

func (a *authority) path(name string) string { return filepath.Join(a.directory, name) }

func (a *authority) write(name string, certificate []byte, key crypto.Signer) error {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := a.writePEM(name+".key", "PRIVATE KEY", private); err != nil {
		return err
	}
	return a.writePEM(name+".crt", "CERTIFICATE", certificate)
}

func (a *authority) writePEM(name, kind string, content []byte) error {
	return os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}

// kubeconfig writes NAME.kubeconfig, for the identity of that name.
func (a *authority) kubeconfig(name, server string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: e2e
clusters: [{name: e2e, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: user, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: e2e, context: {cluster: e2e, user: user}}]
`, server, a.path("ca.crt"), a.path(name+".crt"), a.path(name+".key"))
	return os.WriteFile(a.path(name+".kubeconfig"), []byte(text), 0o600)
}
