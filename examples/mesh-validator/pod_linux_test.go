// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// pod is a pod's network namespace and its node's.
type pod struct {
	t         *testing.T
	pod, node *sandbox.Namespace
	// goesOn is true once a probe was answered with success: the kubelet then starts the next
	// container.
	goesOn atomic.Bool
}

const (
	podV4, podV6   = "10.244.1.10", "fd00:10:244:1::a"
	nodeV4, nodeV6 = "10.244.1.1", "fd00:10:244:1::1"
)

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{t: t}
	for name, namespace := range map[string]**sandbox.Namespace{"pod": &p.pod, "node": &p.node} {
		made, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = made.Close() })
		*namespace = made
	}
	if err := sandbox.Connect(t.Context(), sandbox.End{Namespace: p.pod, Name: "eth0"}, sandbox.End{Namespace: p.node, Name: "eth0"}); err != nil {
		t.Fatal(err)
	}
	for address, namespace := range map[string]*sandbox.Namespace{
		podV4 + "/24": p.pod, podV6 + "/64": p.pod, nodeV4 + "/24": p.node, nodeV6 + "/64": p.node,
		// The node has the test addresses, so that it refuses at once what is not captured.
		"192.0.2.1/32": p.node, "2001:db8::1/128": p.node,
	} {
		if err := namespace.AddAddress(t.Context(), "eth0", netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
	}
	eth0, err := p.pod.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, gateway := range []string{nodeV4, nodeV6} {
		if err := p.pod.Netlink().RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(gateway)}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// everything captures all traffic except what the proxy's user sends.
func everything(mode sidecar.Mode, proxy interception.UID) sidecar.Redirect {
	return sidecar.Redirect{
		Mode:   mode,
		TProxy: sidecar.TProxy{Mark: 1337, SelfMark: 1338, Table: 133, Priority: 1337},
		Proxy: sidecar.Proxy{
			UIDs: interception.UIDs(proxy), OutboundPort: 15001, InboundPort: 15006, TunnelPort: 15008,
			// These are Istio's addresses.
			PassthroughSources: interception.Prefixes(netip.MustParsePrefix("127.0.0.6/32"), netip.MustParsePrefix("::6/128")),
		},
		Inbound:  sidecar.Inbound{Include: interception.AllPorts()},
		Outbound: sidecar.Outbound{Include: interception.AllPrefixes()},
	}
}

func (p *pod) capture(r sidecar.Redirect, f interception.Facts) {
	p.t.Helper()
	plan, err := sidecar.Plan(r, f, "test-mesh")
	if err != nil {
		p.t.Fatal(err)
	}
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	ns, err := interception.OpenNetns(p.pod.Path(), interception.NetnsOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(dataplane.Apply(p.t.Context(), ns, plan), ns.Close()); err != nil {
		p.t.Fatal(err)
	}
}

type validator struct {
	*exec.Cmd
	stdout         io.Reader
	stderr         bytes.Buffer
	terminationLog string
}

// start starts the program. Without privileges, it runs in a user namespace that does not own the
// network namespace.
func (p *pod) start(privileged bool, args ...string) *validator {
	p.t.Helper()
	v := &validator{terminationLog: filepath.Join(p.t.TempDir(), "termination-log")}
	if err := os.WriteFile(v.terminationLog, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	v.Cmd = exec.CommandContext(p.t.Context(), self, append([]string{"-o", "json", "-termination-log", v.terminationLog}, args...)...)
	v.Env, v.Stderr = append(os.Environ(), programVariable+"=1"), &v.stderr
	if !privileged {
		v.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		}
	}
	if v.stdout, err = v.StdoutPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.pod.Do(v.Start); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// report returns the first line of its output, decoded.
func (v *validator) report(t *testing.T) report {
	t.Helper()
	line, err := bufio.NewReader(v.stdout).ReadBytes('\n')
	var r report
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		t.Fatalf("output %q: %v: %s", line, err, &v.stderr)
	}
	return r
}

// code waits for its end and returns the exit code.
func (v *validator) code(t *testing.T) int {
	t.Helper()
	var exit *exec.ExitError
	if err := v.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return v.ProcessState.ExitCode()
}

// kubelet probes an address repeatedly until stop is called.
func (p *pod) kubelet(to string) (stop func()) {
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				_ = p.probe(to) // it may be refused, or dropped
			}
		}
	})
	return sync.OnceFunc(func() {
		close(ended)
		group.Wait()
	})
}

func (p *pod) probe(to string) error {
	var conn net.Conn
	err := p.node.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", to, patience)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+to+"\r\nUser-Agent: kube-probe/1.34\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		p.goesOn.Store(true)
	}
	return err
}
