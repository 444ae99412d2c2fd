// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// lines reads messages from a connection, one a line. It keeps no more than it needs for the
// present one.
type lines struct {
	reader *bufio.Reader
	most   int // bytes of a line
}

func newLines(from io.Reader, most int) *lines { return &lines{bufio.NewReader(from), most} }

// next returns the next line, which is valid until the next call. The error is io.EOF at the end,
// io.ErrUnexpectedEOF in the middle of a line, that of the connection, or wraps [ErrMessage] for a
// line that is too long.
func (l *lines) next() ([]byte, error) {
	var begun []byte
	for {
		part, err := l.reader.ReadSlice('\n')
		if len(begun)+len(part) > l.most {
			return nil, fmt.Errorf("%w: it has more than %d bytes", ErrMessage, l.most)
		}
		switch {
		case err == nil && begun == nil:
			return part, nil
		case err == nil:
			return append(begun, part...), nil
		case errors.Is(err, bufio.ErrBufferFull):
			begun = append(begun, part...)
		case errors.Is(err, io.EOF) && len(begun)+len(part) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// receive reads the first message, which must be of type M.
func receive[M any](from *lines, known kinds) (M, error) {
	var none M
	line, err := from.next()
	if err != nil {
		return none, err
	}
	message, err := parse(line, known)
	if err != nil {
		return none, err
	}
	first, is := message.(M)
	if !is {
		return none, fmt.Errorf("%w: the first one is no %s", ErrMessage, kindOf(none))
	}
	return first, nil
}

// send sends a message that has no more than most bytes. The other side must take it within the
// timeout.
func send(to net.Conn, message any, most int, timeout time.Duration) error {
	line, err := marshal(message, most)
	if err != nil {
		return err
	}
	if err := to.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := to.Write(line); err != nil {
		return fmt.Errorf("send %s: %w", kindOf(message), err)
	}
	return nil
}

// bounded makes an error's text fit into a message.
func bounded(text string) string {
	const most = 1024
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
