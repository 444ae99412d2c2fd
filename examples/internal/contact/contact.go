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

// Contact is safe for use by several goroutines. Make it with [New].
type Contact struct {
	options Options

	mu       sync.Mutex
	last     time.Time // when it last said something, at first when the contact was made
	kind     string    // of the last failure since; empty for none
	err      error     // that failure
	failures int       // since
}

// Options say what is to be watched, and who wants to know. All fields must be set.
type Options struct {
	// Path is the end of the URL's path for the requests that count. Others may be answered while these are not.
	Path string
	// Now is the clock; its readings must be monotonic, as those of [time.Now] are.
	Now func() time.Time
	// OnChange is told of a failure that is of another kind than the one before, and with "" and nil that there is none any more.
	OnChange func(kind string, err error)
}

// New begins with no failure, as if something had just been said.
func New(o Options) *Contact { return &Contact{options: o, last: o.Now()} }

// Status is how it is now.
func (c *Contact) Status() podsource.ServerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return podsource.ServerStatus{Age: c.options.Now().Sub(c.last).Seconds(), Failure: c.kind, Failures: c.failures}
}

// Err is the last failure since the API server said something; nil if there was none.
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
	Other        = "other" // a connection that broke, no route, another status
)

// Kinds are all of them.
func Kinds() []string {
	return []string{Refused, Unauthorized, Forbidden, TooMany, ServerError, Timeout, Certificate, Name, Other}
}

// kindOf is that of a request without an answer.
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

// kindOfStatus is that of an answer that is none.
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
