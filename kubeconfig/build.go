// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Input is the content of a kubeconfig. Its zero value is refused.
type Input struct {
	// Server is the API server's address, as [ServerURL] returns it. A path is kept. Plain http
	// requires Insecure: client-go then sends no token at all, and other clients send it in clear
	// text.
	Server *url.URL
	// CA is one or more PEM certificates (RFC 7468), one of which must have signed the API
	// server's. The file contains them. There is no default: to trust the system's roots, put their
	// bundle here.
	CA []byte
	// Insecure accepts any server that answers at the address. It excludes a CA.
	Insecure bool
	// Token is the bearer token that identifies the user to the API server.
	Token Token
	// Name is the user's name in the file; the context is called Name-context, and the cluster
	// "local". In the file of Istio's CNI agent it is "istio-cni". It must be printable.
	Name string
}

// maxCA bounds the CA. Kubernetes publishes it in a ConfigMap, which has the same limit.
const maxCA = 1 << 20

// Build returns a kubeconfig (kubectl's configuration format v1) with one cluster, user and
// context. It refuses input that a client would refuse or misread, with [ErrServer], [ErrCA],
// [ErrToken] and [ErrName]; the error contains all problems at once.
func Build(in Input) (File, error) {
	err := errors.Join(checkServer(in.Server), in.checkTrust(), in.Token.validate(), checkName(in.Name))
	if err != nil {
		return File{}, err
	}
	yaml := render(in, in.Token.Reveal())
	return File{yaml: func() string { return yaml }, redacted: render(in, redacted)}, nil
}

// checkTrust requires either a CA or Insecure. client-go refuses both together; no client refuses
// the lack of both.
func (in Input) checkTrust() error {
	switch {
	case in.Insecure && len(in.CA) > 0:
		return fmt.Errorf("%w: a CA and Insecure contradict each other: give one of them", ErrCA)
	case in.Insecure:
		return nil
	case in.Server != nil && in.Server.Scheme == "http":
		return fmt.Errorf("%w: the token would be sent over http in clear text: use https, or set Insecure if that is meant", ErrServer)
	case len(in.CA) == 0:
		return fmt.Errorf("%w: there is none: give the cluster's (ca.crt in the service account's directory), "+
			"or set Insecure to trust any server", ErrCA)
	}
	return checkCertificates(in.CA)
}

// checkCertificates requires that all PEM certificates parse; text around them is comment. Clients
// skip blocks that they cannot parse, and the problem would show only at the first connection.
func checkCertificates(ca []byte) error {
	if len(ca) > maxCA {
		return fmt.Errorf("%w: larger than %d bytes: give the cluster's, not a collection", ErrCA, maxCA)
	}
	n := 0
	for rest := ca; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			return fmt.Errorf("%w: PEM block %d is of type %q with %d headers: only CERTIFICATE without headers belongs there",
				ErrCA, n+1, block.Type, len(block.Headers))
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("%w: PEM block %d is not a certificate: %w: copy the file again", ErrCA, n+1, err)
		}
	}
	switch begun := bytes.Count(ca, []byte("-----BEGIN")); {
	case begun == 0:
		return fmt.Errorf("%w: its %d bytes are not PEM: there must be a line -----BEGIN CERTIFICATE-----", ErrCA, len(ca))
	case begun != n:
		return fmt.Errorf("%w: %d PEM blocks begin and %d can be read: copy the whole file again", ErrCA, begun, n)
	}
	return nil
}

func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty: give the plugin's, such as istio-cni", ErrName)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: %q is not UTF-8", ErrName, name)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: %q has a character that does not print: use letters, digits and hyphens", ErrName, name)
	}
	return nil
}

// scalar returns valid UTF-8 as a YAML 1.1 and 1.2 string on one line: plain if no reader can take
// it for anything else, otherwise in double quotes. Go's quoted form has only escapes that YAML has
// too, with the same meaning for valid UTF-8.
func scalar(s string) string {
	if isPlain(s) {
		return s
	}
	return strconv.Quote(s)
}

// isPlain reports whether a text needs no quotes: it starts with a letter, so that it is not a
// number, date, indicator or special float; the other characters have no meaning in YAML; a colon
// precedes such a character; and the text is not a word for a boolean or null.
func isPlain(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		inner := '0' <= c && c <= '9' || strings.IndexByte("-_./+=", c) >= 0
		colon := c == ':' && i+1 < len(s)
		if !letter && (i == 0 || !inner && !colon) {
			return false
		}
	}
	words := []string{"", "true", "false", "yes", "no", "on", "off", "y", "n", "null"}
	return !slices.Contains(words, strings.ToLower(s))
}
