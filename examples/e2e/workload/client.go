// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// newClient returns a client that opens a connection for each request.
func newClient() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
}

// get prints the answer of each URL.
func get(ctx context.Context, stdout io.Writer, urls []string) error {
	client := newClient()
	var failures []error
	for _, url := range urls {
		text, err := ask(ctx, client, url)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if _, err := fmt.Fprintf(stdout, "%s\n", bytes.TrimSpace(text)); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}

// loop queries once a second, and prints failures too.
func loop(ctx context.Context, stdout io.Writer, urls []string) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if err := get(ctx, stdout, urls); err != nil && ctx.Err() == nil {
			if _, err := fmt.Fprintf(stdout, "%q\n", err); err != nil {
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

// ask returns the answer of one URL.
func ask(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", url, response.Status, bytes.TrimSpace(text))
	}
	return text, nil
}
