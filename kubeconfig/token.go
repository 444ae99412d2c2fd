// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted replaces a token in output.
const redacted = "REDACTED"

// Token is a bearer token, such as a service account's. It prints as REDACTED wherever Go calls a
// value's own methods to print it: in package fmt, package log/slog, and encoders of text such as
// those of JSON and XML. Where fmt calls no method (for unexported fields and unsuitable verbs) it
// prints an address, because reflection cannot reach the secret. Only [Token.Reveal] returns it;
// search for that name to find all uses. The zero value is the empty token, which [Build] refuses.
type Token struct {
	reveal func() string
}

// NewToken returns a Token that hides a secret.
func NewToken(secret string) Token { return Token{func() string { return secret }} }

// Reveal returns the secret.
func (t Token) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// String returns REDACTED.
func (t Token) String() string { return redacted }

// Format writes REDACTED for every verb, with every flag.
func (t Token) Format(f fmt.State, _ rune) { writeRedacted(f, redacted) }

// LogValue returns REDACTED.
func (t Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns REDACTED; encoders of JSON, XML and YAML use it.
func (t Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// writeRedacted prints what a Formatter may show. fmt reports a failed write.
func writeRedacted(w io.Writer, s string) { _, _ = io.WriteString(w, s) }

// validate refuses a secret that an HTTP header cannot carry (RFC 9110 5.5, RFC 6750 2.1). The
// error does not quote it.
func (t Token) validate() error {
	secret := t.Reveal()
	if secret == "" {
		return fmt.Errorf("%w: it is empty: read it from the service account's directory", ErrToken)
	}
	for i := range len(secret) {
		if c := secret[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("%w: byte %d of %d is a blank, a control character or not ASCII: remove what surrounds the token, such as a line break",
				ErrToken, i+1, len(secret))
		}
	}
	return nil
}
