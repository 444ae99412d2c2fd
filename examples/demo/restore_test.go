// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSpoilWaitsForTheRestoredFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	changed := make(chan struct{})
	go func() {
		<-changed
		_ = os.WriteFile(path, []byte("half"), 0o600) // not yet the awaited content
		_ = replace(path, []byte("restored"))
	}()
	_, err := spoil(t.Context(), path, []byte("restored"), func() error {
		defer close(changed)
		return os.WriteFile(path, []byte("spoilt"), 0o600)
	})
	if err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "restored" {
		t.Errorf("the file holds %q, %v, want it restored", text, err)
	}
}

func TestSpoilGivesUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := spoil(ctx, path, []byte("restored"), func() error {
		cancel()
		return os.WriteFile(path, []byte("spoilt"), 0o600)
	})
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v, want one that names the file", err)
	}
}
