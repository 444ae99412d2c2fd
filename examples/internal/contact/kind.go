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
	"syscall"
)

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
