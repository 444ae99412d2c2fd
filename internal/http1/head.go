// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// head is what comes before the body.
type head struct {
	status  int
	length  int64 // -1: not said
	chunked bool
}

// head reads a status line and the fields of a header.
func (r reader) head() (head, error) {
	line, err := r.line()
	if err != nil {
		return head{}, err
	}
	result := head{length: -1}
	version, rest, _ := strings.Cut(line, " ")
	status, _, _ := strings.Cut(rest, " ")
	if result.status, err = strconv.Atoi(status); err != nil || len(status) != 3 || result.status < 100 || !isVersion(version) {
		return head{}, &MalformedError{"status line", line}
	}
	return result, fields(r.line, func(name, value string) error {
		switch {
		case strings.EqualFold(name, "Content-Length"):
			return result.setLength(value)
		case strings.EqualFold(name, "Transfer-Encoding"):
			return result.setEncoding(version, value)
		}
		return nil
	})
}

// isVersion takes any of HTTP/1.
func isVersion(text string) bool {
	minor, found := strings.CutPrefix(text, "HTTP/1.")
	return found && len(minor) == 1 && '0' <= minor[0] && minor[0] <= '9'
}

// setLength takes the same length several times (RFC 9112, 6.3).
func (h *head) setLength(value string) error {
	length, err := strconv.ParseUint(value, 10, 63)
	if err != nil || (h.length >= 0 && h.length != int64(length)) {
		return &MalformedError{"Content-Length", value}
	}
	h.length = int64(length)
	return nil
}

func (h *head) setEncoding(version, value string) error {
	if h.chunked || version == "HTTP/1.0" || !strings.EqualFold(value, "chunked") {
		return &MalformedError{"Transfer-Encoding", value}
	}
	h.chunked = true
	return nil
}

// fields reads the fields of a header, or behind the last chunk, with the empty line at their end.
func fields(next func() (string, error), each func(name, value string) error) error {
	for {
		line, err := next()
		if err != nil || line == "" {
			return err
		}
		name, value, found := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !found || !isToken(name) || !isValue(value) {
			return &MalformedError{"header", line}
		}
		if err := each(name, value); err != nil {
			return err
		}
	}
}

// line reads a line, without its end, which may be a line feed alone (RFC 9112, 2.2).
func (r reader) line() (string, error) {
	text, err := r.ReadString('\n')
	if err != nil {
		return "", early(err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), nil
}

// early makes an error of an end that comes too early.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
