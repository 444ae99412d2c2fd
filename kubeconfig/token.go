// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what stands in place of a token.
const redacted = "REDACTED"

// Token is a bearer token, such as a service account's. It prints as REDACTED wherever Go asks a value how to print itself: package
// fmt, package log/slog, and encoders that ask for text, as those of JSON and XML do. Where nobody asks (fmt, for unexported fields and
// for verbs that don't fit) an address is printed, since the secret is out of reach of reflection. [Token.Reveal] is the way out, and
// the word to search for. The zero value is the empty token, which [Build] refuses.
type Token struct {
	reveal func() string
}

// NewToken hides a secret in a Token.
func NewToken(secret string) Token { return Token{func() string { return secret }} }

// Reveal gives the secret.
func (t Token) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// String is REDACTED.
func (t Token) String() string { return redacted }

// GoString is REDACTED, for the verb %#v.
func (t Token) GoString() string { return redacted }

// Format writes REDACTED for every verb, with every flag.
func (t Token) Format(f fmt.State, _ rune) { writeRedacted(f, redacted) }

// LogValue is REDACTED.
func (t Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText gives REDACTED, and so do encoders of JSON, XML and YAML.
func (t Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// writeRedacted prints what a Formatter may show. A write that fails is fmt's to report, as for all that it prints.
func writeRedacted(w io.Writer, s string) { _, _ = io.WriteString(w, s) }

// validate refuses what no HTTP header can carry (RFC 9110 5.5, RFC 6750 2.1). The error does not quote it.
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
