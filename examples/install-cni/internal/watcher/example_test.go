// SPDX-License-Identifier: Apache-2.0

package watcher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/meshcni/meshcni/examples/install-cni/internal/watcher"
	"github.com/meshcni/meshcni/interception/podsource"
)

func ExampleWatcher() {
	w := watcher.New(watcher.Options{
		Command: func() ([]string, error) { return []string{"node-watcher"}, nil }, Dir: "/run/node-watcher", Log: slog.New(slog.DiscardHandler),
	})
	// This is before the watcher's part runs.
	_, err := w.Pod(context.Background(), podsource.Ref{Namespace: "shop", Name: "web-0"})
	fmt.Println(errors.Is(err, podsource.ErrNotReady))
	// Output: true
}
