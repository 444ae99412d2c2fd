// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// body reads the body, which ends as RFC 9112, 6.3 says.
func (r reader) body(h head, c Client) ([]byte, error) {
	var body bytes.Buffer
	var err error
	switch {
	case h.status < StatusOK || h.status == StatusNoContent || h.status == StatusNotModified:
		return nil, nil
	case h.chunked:
		err = r.chunks(&body, c)
	case h.length > int64(c.MaxBody):
		return nil, ErrTooLarge
	case h.length >= 0:
		err = r.take(&body, h.length)
	default:
		var n int64
		if n, err = body.ReadFrom(io.LimitReader(r, int64(c.MaxBody)+1)); err == nil && n > int64(c.MaxBody) {
			return nil, ErrTooLarge
		}
	}
	return body.Bytes(), brokeOff(err)
}

// brokeOff tells an answer that came half from one that should not be.
func brokeOff(err error) error {
	var malformed *MalformedError
	if err == nil || errors.As(err, &malformed) || errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("the answer broke off: %w", err)
}

// firstTake is how much is made place for on the word of whoever answers.
const firstTake = 64 << 10

// take reads so many bytes.
func (r reader) take(into *bytes.Buffer, n int64) error {
	into.Grow(int(min(n, firstTake)) + bytes.MinRead) // with what Buffer wants to have left, so that it doesn't grow again
	_, err := io.CopyN(into, r, n)
	return early(err)
}

// chunks reads a body in chunks (RFC 9112, 7.1).
func (r reader) chunks(into *bytes.Buffer, c Client) error {
	for frame := 0; ; {
		line, err := r.chunkLine()
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(line, ";") // extensions mean nothing to anybody
		n, err := strconv.ParseUint(strings.TrimRight(size, " \t"), 16, 63)
		frame += len(line)
		switch {
		case err != nil, !isValue(line), frame > c.MaxHeader+8*into.Len(): // or next to nothing could come for ever
			return &MalformedError{"chunk", line}
		case n == 0:
			r.source.left = c.MaxHeader
			return fields(r.chunkLine, func(string, string) error { return nil })
		case n > uint64(c.MaxBody-into.Len()):
			return ErrTooLarge
		}
		if err := r.take(into, int64(n)); err != nil {
			return err
		}
		if end, err := r.chunkLine(); err != nil {
			return err
		} else if end != "" {
			return &MalformedError{"end of a chunk", end}
		}
	}
}

// chunkLine reads a line that is as long as the reader's buffer at most. No line feed is enough for an end here.
func (r reader) chunkLine() (string, error) {
	line, err := r.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return "", early(err)
	}
	text, found := strings.CutSuffix(string(line), "\r\n")
	if !found {
		return "", &MalformedError{"chunk", text}
	}
	return text, nil
}
