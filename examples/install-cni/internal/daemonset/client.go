// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Client says how to reach the API server, and as whom. The files are read for each request, since the kubelet renews them.
type Client struct {
	// Server is the API server's URL.
	Server *url.URL
	// TokenFile has the service account's token. It is not sent over plain http.
	TokenFile string
	// CAFile has the certificates, in PEM, that the server is verified with.
	CAFile string
	// Insecure leaves the server unverified, and CAFile unread.
	Insecure bool
	// Pause is how long to wait before asking again; a second when 0.
	Pause time.Duration
}

// ErrUnknown is in the error of [Client.Deleted] when the API server can't be asked, or doesn't tell.
var ErrUnknown = errors.New("can't tell whether the DaemonSet was deleted")

const (
	attempts   = 4
	callTime   = 3 * time.Second
	maxAnswer  = 4 << 20
	maxFile    = 1 << 20
	maxMessage = 256
)

// Deleted reports whether the DaemonSet is gone, or about to be. It is also taken for gone when the API server, asked again and again, no
// longer knows the service account: that goes together with the DaemonSet, and often a moment earlier. Of anything else that keeps the
// answer from being known the error wraps [ErrUnknown].
func (c Client) Deleted(ctx context.Context, namespace, name string) (bool, error) {
	pause := c.Pause
	if pause == 0 {
		pause = time.Second
	}
	var last answer
	var err error
	for attempt := range attempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return false, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
			case <-time.After(pause):
			}
		}
		last, err = c.ask(ctx, namespace, name)
		switch {
		case err != nil:
		case last.status == http.StatusOK:
			return last.Metadata.DeletionTimestamp != "", nil
		case last.isMissing(name):
			return true, nil
		}
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrUnknown, err)
	case last.status == http.StatusUnauthorized:
		return true, nil
	case last.status == http.StatusForbidden:
		return false, fmt.Errorf("%w: the service account may not get it; allow it by a role, or set uninstall-on-deletion to false", ErrUnknown)
	}
	return false, fmt.Errorf("%w: the API server answers %d %.*q", ErrUnknown, last.status, maxMessage, last.Message)
}

// answer is what is read of a DaemonSet or a Status.
type answer struct {
	status   int
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string `json:"name"`
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Name string `json:"name"`
	} `json:"details"`
}

// isMissing is what the API server says, and no proxy before it: there is no such DaemonSet.
func (a answer) isMissing(name string) bool {
	return a.status == http.StatusNotFound && a.Kind == "Status" && a.Reason == "NotFound" && a.Details.Name == name
}

func (c Client) ask(ctx context.Context, namespace, name string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	where := c.Server.JoinPath("apis", "apps", "v1", "namespaces", namespace, "daemonsets", name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), http.NoBody)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "application/json")
	transport, err := c.transport(request)
	if err != nil {
		return answer{}, err
	}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request) // no redirects, cookies and proxies of the environment
	if err != nil {
		return answer{}, fmt.Errorf("ask %s: %w", where.Host, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return answer{}, fmt.Errorf("read what %s sends: %w", where.Host, err)
	}
	if len(data) > maxAnswer {
		return answer{}, fmt.Errorf("%s sends more than %d bytes", where.Host, maxAnswer)
	}
	a := answer{status: response.StatusCode}
	err = json.Unmarshal(data, &a)
	if response.StatusCode == http.StatusOK && (err != nil || a.Kind != "DaemonSet" || a.Metadata.Name != name) {
		return answer{}, errors.Join(err, fmt.Errorf("%s answers with something else than the DaemonSet %s", where.Host, name))
	}
	return a, nil
}

// transport gives the request its credential.
func (c Client) transport(request *http.Request) (*http.Transport, error) {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	transport := &http.Transport{Protocols: &http1, DisableKeepAlives: true}
	if c.Server.Scheme != "https" {
		return transport, nil
	}
	token, err := readFile(c.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token of the service account: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure}
	if c.Insecure {
		return transport, nil
	}
	certificates, err := readFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("certificate of the API server: %w", err)
	}
	transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", c.CAFile)
	}
	return transport, nil
}

// readFile reads a file of the service account, which is a link that the kubelet moves.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, err
}
