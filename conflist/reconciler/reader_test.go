// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// TestReaderSeesTheChainAtEachInstant loads the directory in a loop, as containerd does, while
// versions and modes change.
func TestReaderSeesTheChainAtEachInstant(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]string{
		"list":     {"10-calico.conflist", calicoList},
		"link":     {"10-calico.conflist", "->below/net", "below/", "", "below/net", calicoList},
		"single":   {"10-bridge.conf", bridgeSingle},
		"drop-ins": {"10-net.conflist", `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"ptp"}]}`, "net/", "", "net/10-tuning.conf", `{"type":"tuning"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, reconciler.Splice)
			shape{files: files}.lay(t, n.directory)
			before, network := dump(t, n.directory), n.loaded()
			n.install()
			ctx, stop := context.WithCancel(context.Background())
			seen := make(chan error, 1)
			go func() { seen <- watchChain(ctx, n.directory, len(network.Plugins)) }()
			follow := modes()[:3]
			if network.Plugins[0].Network.Type == "bridge" { // a single configuration has no drop-ins
				follow = modes()[:2]
			}
			for i := range 40 {
				n.options.Want.Plugin = mesh(fmt.Sprint(i))
				n.options.Want.Mode = follow[i/5%len(follow)]
				n.install()
			}
			stop()
			if err := <-seen; err != nil {
				t.Error(err)
			}
			n.remove()
			n.want("after the uninstall", before)
		})
	}
}

// watchChain loads until the context ends, and returns an error if it sees anything but a complete
// chain with the plugin. During a move the plugin may be in two places, and be called twice. A load
// during which a file came or went shows no instant: it has read one file before the change and
// another after it. A runtime is notified of the change and loads again.
func watchChain(ctx context.Context, directory string, others int) error {
	for loads := 0; ctx.Err() == nil || loads == 0; loads++ {
		before, err := names(directory)
		if err != nil {
			return err
		}
		list, file, err := load(directory, true)
		after, namesErr := names(directory)
		if namesErr != nil {
			return namesErr
		}
		if before != after {
			continue
		}
		if err != nil {
			return fmt.Errorf("load %d: %w", loads, err)
		}
		if n := calls(list); n == 0 || n > 2 || len(list.Plugins) != others+n {
			return fmt.Errorf("load %d: %s has the plugins %q", loads, file, chain(list))
		}
	}
	return nil
}

// names lists the files that a runtime looks at, in a directory and its subdirectories.
func names(directory string) (string, error) {
	var found []string
	for _, pattern := range []string{"*.conf*", "*/*.conf"} {
		files, err := filepath.Glob(filepath.Join(directory, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if !filesystem.IsTemporary(filepath.Base(file)) {
				found = append(found, file)
			}
		}
	}
	return strings.Join(found, " "), nil
}
