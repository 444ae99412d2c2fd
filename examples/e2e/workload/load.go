// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// load queries a URL until the context ends, on a new connection for each request, and on one that
// it keeps. It prints each failure, and once a second how far it is.
func load(ctx context.Context, stdout io.Writer, url string) error {
	kept, fresh := &keptConnection{}, newClient()
	defer kept.close()
	clients := map[string]func(context.Context, string) error{"kept": kept.ask, "new": func(ctx context.Context, url string) error {
		_, err := ask(ctx, fresh, url)
		return err
	}}
	const rate = 20 // turns in a second
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	for turn := 1; ; turn++ {
		for name, ask := range clients {
			if err := ask(ctx, url); err != nil && ctx.Err() == nil {
				at := time.Now().UTC().Format(time.RFC3339Nano)
				if _, err := fmt.Fprintf(stdout, "failed on a %s connection: turn %d, at %s: %v\n", name, turn, at, err); err != nil {
					return err
				}
			}
		}
		if turn%rate == 0 {
			if _, err := fmt.Fprintf(stdout, `{"asked":%d,"kept":%d}`+"\n", turn, kept.opened); err != nil {
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

// keptConnection is one that only a failure ends. A transport of net/http also gives up connections
// where the machine is busy.
type keptConnection struct {
	net.Conn

	answers *bufio.Reader
	opened  int // how often
}

// ask sends a request on the connection, and opens the connection if there is none.
func (k *keptConnection) ask(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	if k.Conn == nil {
		if k.Conn, err = (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", request.URL.Host); err != nil {
			return err
		}
		k.opened++
		k.answers = bufio.NewReader(k.Conn)
	}
	if err := k.exchange(request); err != nil {
		k.close()
		return err
	}
	return nil
}

// timeout bounds a request on the kept connection.
const timeout = 5 * time.Second

func (k *keptConnection) exchange(request *http.Request) error {
	if err := k.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := request.Write(k.Conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(k.answers, request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	return nil
}

func (k *keptConnection) close() {
	if k.Conn != nil {
		_ = k.Close() // the connection has failed, or is not needed any more
		k.Conn = nil
	}
}
