// SPDX-License-Identifier: Apache-2.0

package contact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// Wrap wraps the transport of a client of the API server.
func (c *Contact) Wrap(next http.RoundTripper) http.RoundTripper { return transport{c, next} }

type transport struct {
	*Contact
	next http.RoundTripper
}

// RoundTrip calls the next transport, and observes the result.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	switch {
	case r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, t.options.Path):
	case errors.Is(err, context.Canceled): // by the client itself
	case err != nil:
		t.failed(kindOf(err), err)
	case response.StatusCode == http.StatusUnprocessableEntity && r.URL.Query().Has("sendInitialEvents"):
		// An API server that does not stream lists answers like this, and client-go lists at once.
	case response.StatusCode/100 != http.StatusOK/100:
		t.failed(kindOfStatus(response.StatusCode), refusal(response))
	default:
		response.Body = &body{ReadCloser: response.Body, of: t.Contact}
	}
	return response, err
}

// Limits on how much of a refusal is read, and how much of it is reported.
const (
	maxStatus  = 16 << 10
	maxMessage = 512
)

// refusal returns the reason that the API server gives in an object of kind Status, such as which
// account may not list which resource. The client can still read the whole body.
func refusal(response *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), response.Body), response.Body}
	var status struct{ Message string }
	if err != nil || json.Unmarshal(text, &status) != nil || status.Message == "" {
		return fmt.Errorf("status %s", response.Status)
	}
	return fmt.Errorf("status %s: %s", response.Status, status.Message[:min(len(status.Message), maxMessage)])
}

// body is that of a good answer.
type body struct {
	io.ReadCloser
	of     *Contact
	closed atomic.Bool
}

// Read records that the API server answers.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.said(p[:n])
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) && !b.closed.Load() {
		b.of.failed(kindOf(err), err)
	}
	return n, err
}

// Close marks later failures of Read as the client's own doing.
func (b *body) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// said distinguishes an error in a watch, which an API server sends as an event of its own, from a
// good answer. Other errors, for example that the watch is too old, count as answers.
func (b *body) said(text []byte) {
	if bytes.HasPrefix(text, []byte(`{"type":"ERROR"`)) {
		var event struct{ Object struct{ Code int } }
		if json.Unmarshal(text, &event) == nil {
			if kind := kindOfStatus(event.Object.Code); kind != Other {
				b.of.failed(kind, fmt.Errorf("status %d in a watch", event.Object.Code))
				return
			}
		}
	}
	b.of.good()
}
