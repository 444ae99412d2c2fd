// SPDX-License-Identifier: Apache-2.0

package contact

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
)

// Contact is safe for concurrent use. Create it with [New].
type Contact struct {
	options Options

	mu       sync.Mutex
	last     time.Time // when the API server last answered; at first, the time of New
	kind     string    // of the last failure since; may be empty
	err      error     // that failure
	failures int       // since
}

// Options configure which requests are observed, and who receives reports. All fields must be set.
type Options struct {
	// Path is the end of the URL's path for the requests that count. The API server may answer
	// others while it does not answer these.
	Path string
	// Now is the clock; its readings must be monotonic, as those of [time.Now] are.
	Now func() time.Time
	// OnChange receives a failure of another kind than the last one, and "" and nil after the end
	// of failures.
	OnChange func(kind string, err error)
}

// New returns a contact without a failure, as if the API server had just answered.
func New(o Options) *Contact { return &Contact{options: o, last: o.Now()} }

// Status returns the current state.
func (c *Contact) Status() podsource.ServerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return podsource.ServerStatus{Age: c.options.Now().Sub(c.last).Seconds(), Failure: c.kind, Failures: c.failures}
}

// Err returns the last failure since the API server last answered; nil without a failure.
func (c *Contact) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Contact) good() {
	c.mu.Lock()
	before := c.kind
	c.last, c.kind, c.err, c.failures = c.options.Now(), "", nil, 0
	c.mu.Unlock()
	if before != "" {
		c.options.OnChange("", nil)
	}
}

func (c *Contact) failed(kind string, err error) {
	c.mu.Lock()
	before := c.kind
	c.kind, c.err = kind, err
	c.failures++
	c.mu.Unlock()
	if kind != before {
		c.options.OnChange(kind, err)
	}
}

// The kinds of failures.
const (
	Refused      = "refused" // the connection
	Unauthorized = "401"
	Forbidden    = "403"
	TooMany      = "429"
	ServerError  = "5xx"
	Timeout      = "timeout" // also an answer that never comes
	Certificate  = "tls"
	Name         = "dns"
	Other        = "other" // a broken connection, no route, another status
)

// Kinds returns all kinds of failures.
func Kinds() []string {
	return []string{Refused, Unauthorized, Forbidden, TooMany, ServerError, Timeout, Certificate, Name, Other}
}

// kindOf returns the kind of failure of a request without an answer.
func kindOf(err error) string {
	var (
		network     net.Error
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		alert       tls.AlertError
		record      tls.RecordHeaderError
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.As(err, &name):
		return Name
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &alert), errors.As(err, &record):
		return Certificate
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return Timeout
	}
	return Other
}

// kindOfStatus returns the kind of failure of an answer with this status.
func kindOfStatus(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return Unauthorized
	case status == http.StatusForbidden:
		return Forbidden
	case status == http.StatusTooManyRequests:
		return TooMany
	case status >= http.StatusInternalServerError:
		return ServerError
	}
	return Other
}
