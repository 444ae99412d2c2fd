// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// maxReport bounds what is read of an answer, since another program may listen.
const maxReport = 1 << 20

// Ask asks a daemon at the address for its readiness. An answer that is not a daemon's is an error.
func Ask(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), address string) (*Report, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, "tcp", address)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://install-cni/readyz?verbose", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReport))
	if err != nil {
		return nil, err
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil || len(report.Parts) == 0 {
		return nil, fmt.Errorf("the answer has status %d, and %w", response.StatusCode, errStranger)
	}
	return &report, nil
}

// errStranger is the error about an answer of another program.
var errStranger = errors.New("is not a daemon's: another program listens there")
