// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// readyWithin limits how long the daemon may take to install everything.
	readyWithin = 20 * time.Second
	// stoppedWithin is Kubernetes' default grace period.
	stoppedWithin = 30 * time.Second
	// healthAddress is free, because no other process uses the sandbox's network.
	healthAddress = "127.0.0.1:8000"
)

type daemon struct {
	command *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	err     error         // how the process ended
}

// daemonCommand returns install-cni's command as its DaemonSet runs it, with this node's
// directories and without this process's environment.
func (n node) daemonCommand(ctx context.Context, api net.Addr, log *os.File, verbs ...string) *exec.Cmd {
	address := netip.MustParseAddrPort(api.String())
	command := exec.CommandContext(ctx, filepath.Join(n.image(), "install-cni"), append(verbs,
		"--cni-bin-source-dir="+n.sourceDir(),
		"--mounted-cni-bin-dir="+n.binDir(),
		"--mounted-cni-net-dir="+n.netDir(),
		"--mounted-cni-cache-dir="+n.cacheDir(),
		"--cni-agent-run-dir="+n.runDir(),
		"--service-account-dir="+n.serviceAccountDir(),
		"--health-address="+healthAddress,
		"--log_output_level=debug",
	)...)
	command.Env = []string{
		"KUBERNETES_SERVICE_HOST=" + address.Addr().String(),
		"KUBERNETES_SERVICE_PORT=" + strconv.Itoa(int(address.Port())),
		"POD_NAMESPACE=" + daemonNamespace, "POD_NAME=" + daemonSet + "-x7k2p",
		"EXCLUDE_NAMESPACES=kube-system",
	}
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stoppedWithin
	return command
}

// startDaemon starts install-cni and waits until it reports that everything is in place.
func startDaemon(ctx context.Context, command *exec.Cmd) (*daemon, error) {
	if err := command.Start(); err != nil {
		return nil, err
	}
	d := &daemon{command: command, ended: make(chan struct{})}
	go func() {
		d.err = command.Wait()
		close(d.ended)
	}()
	if err := d.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// awaitReady polls /readyz, as the kubelet does, but more often.
func (d *daemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for again := time.Tick(10 * time.Millisecond); ; {
		problem := askReady(ctx)
		if problem == nil {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("install-cni ended: %s", d.command.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("install-cni is not ready after %s: %w", readyWithin, problem)
		case <-again:
		}
	}
}

func askReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthAddress+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// stop sends SIGTERM to the daemon, as Kubernetes does, and waits until it ends. It may be called
// again.
func (d *daemon) stop() error {
	_ = d.command.Process.Signal(syscall.SIGTERM) // it may have ended already
	timer := time.AfterFunc(stoppedWithin, func() { _ = d.command.Process.Kill() })
	defer timer.Stop()
	<-d.ended
	return d.err
}
