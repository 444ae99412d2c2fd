// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// load queries a URL until the context ends, by two clients: one opens a connection for each
// request, and one keeps its connection. It prints each failure, and once a second how far it is.
func load(ctx context.Context, stdout io.Writer, url string) error {
	connections := 0
	// One connection at most: a transport may otherwise open another one before it notices that the
	// last request has left the first one idle.
	kept := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connections++ // by one request at a time
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
	clients := map[string]*http.Client{"new": newClient(), "kept": kept}
	const rate = 20 // turns in a second
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	for turn := 1; ; turn++ {
		for name, client := range clients {
			if _, err := ask(ctx, client, url); err != nil && ctx.Err() == nil {
				if _, err := fmt.Fprintf(stdout, "failed on a %s connection: %v\n", name, err); err != nil {
					return err
				}
			}
		}
		if turn%rate == 0 {
			if _, err := fmt.Fprintf(stdout, `{"asked":%d,"kept":%d}`+"\n", turn, connections); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
