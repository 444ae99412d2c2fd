// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"errors"
	"strconv"
	"strings"
)

// The methods that are in use (RFC 9110, 9.3).
const (
	MethodGet  = "GET"
	MethodPost = "POST"
)

// Field is a field of a header, such as Accept: application/json (RFC 9110, 5).
type Field struct{ Name, Value string }

// Request is what is asked.
type Request struct {
	// Method is such as [MethodGet]. HEAD, whose answers lie about their length, and CONNECT have no place here.
	Method string
	// Target is the path, with the query, in the form in which it is sent ("origin-form"); for a proxy the whole URL ("absolute-form"). See
	// RFC 9112, 3.2.
	Target string
	// Host is the host, and the port unless it is that of the scheme.
	Host string
	// Header has the fields besides Host, Connection and Content-Length.
	Header []Field
	// Body is sent with its length; nil for a request without one.
	Body []byte
}

// errRequest never quotes: what is wrong may be next to a credential.
var errRequest = errors.New("the request has a character that would end a line or a word of it")

// text is the request as it is sent, with more fields, or none.
func (r Request) text(more ...Field) ([]byte, error) {
	if !isToken(r.Method) || !isWord(r.Target) || !isWord(r.Host) {
		return nil, errRequest
	}
	fields := append([]Field{{"Host", r.Host}}, append(more, r.Header...)...)
	if r.Body != nil {
		fields = append(fields, Field{"Content-Length", strconv.Itoa(len(r.Body))})
	}
	text := make([]byte, 0, 512+len(r.Body))
	text = append(append(append(append(text, r.Method...), ' '), r.Target...), " HTTP/1.1\r\n"...)
	for _, field := range fields {
		if !isToken(field.Name) || !isValue(field.Value) {
			return nil, errRequest
		}
		text = append(append(append(append(text, field.Name...), ": "...), field.Value...), "\r\n"...)
	}
	return append(append(text, "\r\n"...), r.Body...), nil
}

// isToken says whether the text is a token of RFC 9110, 5.6.2.
func isToken(text string) bool {
	for _, c := range []byte(text) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return text != ""
}

// isWord says whether the text has no blanks and no control characters.
func isWord(text string) bool {
	return isValue(text) && text != "" && !strings.ContainsAny(text, " \t")
}

// isValue says whether the text can be a field's value (RFC 9110, 5.5).
func isValue(text string) bool {
	for _, c := range []byte(text) {
		if (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}
