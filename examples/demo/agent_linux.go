// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
)

// agent is node-ambient's process.
type agent struct {
	command *exec.Cmd
	input   io.Closer
	ended   chan struct{} // closed when the process has ended
	err     error         // how it ended
}

// agentCommand returns node-ambient's command with this node's directories.
func (n node) agentCommand(ctx context.Context, settings string, log *os.File) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(n.image(), "node-ambient"),
		"-feed="+n.feedSocket(), "-events="+n.eventSocket(), "-proxy="+n.proxySocket(),
		"-journal="+n.ambientDir(), "-netns="+n.netnsDir(), "-results="+filepath.Join(n.cacheDir(), "results"),
		"-settings="+settings, "-log-level=DEBUG")
	command.Env = []string{"PATH=" + os.Getenv("PATH")} // of iptables, where nftables does not serve
	command.Stderr = log
	return command
}

// startAgent starts node-ambient, which reports to the feed.
func startAgent(command *exec.Cmd, reports *podFeed) (*agent, error) {
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	a := &agent{command: command, input: input, ended: make(chan struct{})}
	go func() {
		reports.read(output) // to its end, before Wait closes it
		a.err = command.Wait()
		close(a.ended)
	}()
	return a, nil
}

// stop closes the process's input, which ends it, and kills it if it does not end. It may be called
// again.
func (a *agent) stop() error {
	_ = a.input.Close() // the process may have ended and closed it
	timer := time.AfterFunc(stoppedWithin, func() { _ = a.command.Process.Kill() })
	defer timer.Stop()
	<-a.ended
	if a.err != nil {
		return fmt.Errorf("stop node-ambient: %w", a.err)
	}
	return nil
}

// serveFeed serves the feed at its socket until stop is called.
func serveFeed(ctx context.Context, socket string, source *podFeed) (stop func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, err
	}
	server, err := feed.Listen(ctx, socket, feed.ServerOptions{Source: source, Annotator: source})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}, nil
}

// ambientSettings are node-ambient's: DNS is captured, too.
func ambientSettings() ambientconf.Config {
	return ambientconf.Config{DNS: true, ProxyNamespace: daemonNamespace, DrainTimeout: "1h"}
}
