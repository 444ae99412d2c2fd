// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// Account is the address of the API server, and the service account to use.
type Account struct {
	// Server is the API server's URL.
	Server *url.URL
	// TokenFile has the service account's token. It is not sent over plain http.
	TokenFile string
	// CAFile has the certificates, in PEM, that the server is verified with.
	CAFile string
	// Insecure leaves the server unverified, and CAFile unread. Callers must not act on the answers
	// of such a server.
	Insecure bool
}

const (
	callTime  = 3 * time.Second
	maxAnswer = 4 << 20
	maxFile   = 1 << 20
	// maxMessage bounds what errors quote of an answer.
	maxMessage = 256
)

// Answer is the server's answer.
type Answer struct {
	Status int
	Body   []byte
}

// Unexpected returns an error with the status and the server's message.
func (a Answer) Unexpected() error {
	var status struct{ Message string }
	_ = json.Unmarshal(a.Body, &status) // without a message, the error has the number alone
	return fmt.Errorf("the API server answers %d %.*q", a.Status, maxMessage, status.Message)
}

// Send sends a request for a path, and waits at most three seconds. An answer of any status is no
// error.
func (a Account) Send(ctx context.Context, method string, path []string, contentType, body string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	where := a.Server.JoinPath(path...)
	request, err := http.NewRequestWithContext(ctx, method, where.String(), strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	transport, err := a.transport(request)
	if err != nil {
		return Answer{}, err
	}
	defer transport.CloseIdleConnections()
	// No redirects, no cookies, and no proxies from the environment.
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", where.Host, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%s: read the answer: %w", where.Host, err)
	}
	return Answer{response.StatusCode, data}, nil
}

// transport adds the credential to the request.
func (a Account) transport(request *http.Request) (*http.Transport, error) {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	transport := &http.Transport{Protocols: &http1, DisableKeepAlives: true}
	if a.Server.Scheme != "https" {
		return transport, nil
	}
	data, err := filesystem.ReadThroughLinks(a.TokenFile, maxFile)
	if err != nil {
		return nil, fmt.Errorf("token of the service account: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return nil, fmt.Errorf("token of the service account: %s is empty", a.TokenFile)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.Insecure}
	if a.Insecure {
		return transport, nil
	}
	certificates, err := filesystem.ReadThroughLinks(a.CAFile, maxFile)
	if err != nil {
		return nil, fmt.Errorf("certificate of the API server: %w", err)
	}
	transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", a.CAFile)
	}
	return transport, nil
}
