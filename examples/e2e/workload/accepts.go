// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// accepts prints whether a connection to an address is accepted or refused. Where nothing listens
// at the address, only a proxy on the way accepts it.
func accepts(ctx context.Context, stdout io.Writer, address string) error {
	connection, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	word := "accepted"
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		word = "refused"
	case errors.Is(err, syscall.ECONNRESET): // the proxy has accepted it and ended it at once
	case err != nil:
		return err
	default:
		_ = connection.Close()
	}
	_, err = fmt.Fprintln(stdout, word)
	return err
}
