// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
)

// wire is a connection to a server that speaks HTTP/1. Its errors quote nothing that the server
// sent, because that may repeat a part of the request.
type wire struct {
	net.Conn

	bound   *io.LimitedReader // of what may still be read
	reader  *bufio.Reader
	failure error // of the connection, other than its end
}

func newWire(connection net.Conn) *wire {
	w := &wire{Conn: connection}
	w.bound = &io.LimitedReader{R: w}
	w.reader = bufio.NewReader(w.bound)
	return w
}

// Read remembers what fails.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		w.failure = err
	}
	return n, err
}

// ask sends the text of a request and reads the header of the answer. It passes over interim
// answers (1xx), but not 101, which ends the conversation.
func (w *wire) ask(request *http.Request, text []byte) (*http.Response, error) {
	w.bound.N = maxHeader
	_, failed := w.Write(text) // a server that hangs up at once may have said why
	for {
		response, err := http.ReadResponse(w.reader, request)
		switch {
		case err != nil && w.bound.N <= 0:
			return nil, fmt.Errorf("the header of the answer has more than %d bytes", maxHeader)
		case err != nil:
			return nil, cmp.Or(failed, w.unquoted("header", err))
		case response.ProtoMajor != 1:
			return nil, errors.New("the answer is not of HTTP/1")
		case response.StatusCode < http.StatusContinue:
			return nil, fmt.Errorf("the answer has status %d, which is not one of HTTP", response.StatusCode)
		case response.StatusCode >= http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols:
			w.bound.N = math.MaxInt64 // what follows is bounded by the caller that reads the body
			return response, nil
		}
	}
}

// answered reports whether anything of an answer came after ask.
func (w *wire) answered() bool { return w.bound.N != maxHeader }

// reusable reports whether the connection takes another request, now that the body of the response
// was read.
func (w *wire) reusable(response *http.Response) bool {
	return !response.Close && response.StatusCode >= http.StatusOK && w.reader.Buffered() == 0
}

// errTooLarge is the error of a body of more than maxAnswer bytes.
var errTooLarge = fmt.Errorf("more than %d bytes", maxAnswer)

// body reads the body of an answer. If the header says that it is too large, body waits for none of
// it.
func (w *wire) body(response *http.Response) ([]byte, error) {
	if response.ContentLength > maxAnswer {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer broke off: %w", w.unquoted("body", err))
	case len(body) > maxAnswer:
		return nil, errTooLarge
	}
	return body, nil
}

// unquoted replaces an error of net/http about a part of an answer by one that quotes nothing:
// net/http quotes lines that it does not understand.
func (w *wire) unquoted(part string, err error) error {
	switch {
	case w.failure != nil:
		return w.failure
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	default:
		return errors.New("malformed HTTP " + part)
	}
}
