// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

// socketClient makes single requests over a unix socket.
type socketClient struct {
	socket string
	kept   *AgentConnection // nil if each request has its own connection
}

func (c socketClient) server() string { return "unix:" + c.socket }

// call sends body, unless it is nil, and decodes the answer into answer, unless that is nil.
func (c socketClient) call(ctx context.Context, method, path string, body, answer any) *Error {
	failure := c.exchange(ctx, method, path, body, answer)
	if failure != nil {
		failure.Source, failure.Server = sourceAgent, c.server()
	}
	return failure
}

func (c socketClient) exchange(ctx context.Context, method, path string, body, answer any) *Error {
	request, failure := c.request(ctx, method, path, body)
	if failure != nil {
		return failure
	}
	text, err := encoded(request.Write)
	if err != nil {
		return &Error{Kind: ErrRequest, Cause: err}
	}
	status, data, failure := exchange{dial: c.dial, kept: c.kept}.do(request, text)
	switch {
	case failure != nil:
		return failure
	case status != http.StatusOK && status != http.StatusNoContent:
		return refusalFrom(status, data)
	case answer == nil, status == http.StatusNoContent:
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return &Error{Kind: ErrAnswer, Cause: fmt.Errorf("it is not the expected JSON: %s", protocol.Quoted(err.Error()))}
	}
	return nil
}

// request makes a request with body, unless that is nil.
func (c socketClient) request(ctx context.Context, method, path string, body any) (*http.Request, *Error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, &Error{Kind: ErrRequest, Cause: err}
		}
	}
	if len(data) > protocol.MaxBody {
		return nil, &Error{Kind: ErrRequest, Cause: fmt.Errorf("it has %d bytes, and may have %d", len(data), protocol.MaxBody)}
	}
	request, err := newRequest(ctx, method, "http://agent"+path, defaultUserAgent, data)
	if err != nil {
		return nil, &Error{Kind: ErrRequest, Cause: err}
	}
	request.Close = c.kept == nil
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// dial connects, and checks the peer before anything is sent.
func (c socketClient) dial(ctx context.Context) (net.Conn, error) {
	if !strings.ContainsRune(c.socket, filepath.Separator) {
		return nil, fmt.Errorf("the agent's run directory is not given: %w", fs.ErrNotExist)
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", c.socket)
	if operation := (*net.OpError)(nil); errors.As(err, &operation) {
		return nil, operation.Err // without the path, which the error names already
	} else if err != nil {
		return nil, err
	}
	if err := CheckPeer(connection); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// refusalFrom returns the error for a status other than success, by the reason in the answer.
func refusalFrom(status int, data []byte) *Error {
	var answer protocol.ErrorAnswer
	if json.Unmarshal(data, &answer) != nil || answer.Error.Reason == "" {
		return &Error{Kind: ErrAnswer, Cause: fmt.Errorf("status %d", status)}
	}
	text := fmt.Sprintf("status %d, %s", status, protocol.Quoted(string(answer.Error.Reason)))
	if answer.Error.Message != "" {
		text += ", " + protocol.Quoted(answer.Error.Message)
	}
	if versions := answer.Error.Versions; len(versions) > 0 {
		text += fmt.Sprintf("; it speaks %s, and this side %s", protocol.Quoted(strings.Join(versions, ", ")), protocol.Version)
	}
	return &Error{Kind: kindOf(answer.Error.Reason, status), Cause: errors.New(text)}
}

// kindOf goes by the status if it doesn't know the reason, which a later version may have added.
func kindOf(reason protocol.Reason, status int) error {
	switch reason {
	case protocol.ReasonNotFound:
		return ErrNotFound
	case protocol.ReasonStale:
		return ErrStalePod
	case protocol.ReasonForbidden:
		return ErrForbidden
	case protocol.ReasonVersion, protocol.ReasonPath, protocol.ReasonMethod, protocol.ReasonNotServed:
		return ErrProtocol
	case protocol.ReasonBadRequest, protocol.ReasonTooLarge:
		return ErrRequest
	case protocol.ReasonNotReady:
		return ErrNotReady
	case protocol.ReasonFailed:
		return ErrServer
	}
	if status >= http.StatusInternalServerError {
		return ErrServer
	}
	return ErrRequest
}

// wrongPod says what is wrong with the answer to a question about ref.
func wrongPod(a protocol.PodAnswer, ref Ref) *Error {
	refuse := func(kind error, format string, args ...any) *Error {
		return &Error{Kind: kind, Cause: fmt.Errorf(format, args...)}
	}
	switch {
	case a.Pod == nil:
		return refuse(ErrNotPod, "it has no pod")
	case a.Pod.Namespace != ref.Namespace || a.Pod.Name != ref.Name:
		return refuse(ErrNotPod, "it is %s/%s", protocol.Quoted(a.Pod.Namespace), protocol.Quoted(a.Pod.Name))
	case !ref.Is(a.Pod.UID, a.Pod.Annotations):
		return refuse(ErrStalePod, "with UID %s, and not %s", protocol.Quoted(a.Pod.UID), protocol.Quoted(ref.UID))
	}
	return nil
}

// isMissing reports whether there is no socket at all.
func (e *Error) isMissing() bool {
	return isAny(e.Kind, ErrUnreachable) && errors.Is(e.Cause, fs.ErrNotExist)
}
