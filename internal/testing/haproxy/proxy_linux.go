// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// Proxy is a running HAProxy. Start one with [Start].
type Proxy struct {
	t   testing.TB
	log *net.UnixConn
}

// listeners are the ports at which it listens, by the names of its front ends. What comes to the
// port of tunnels goes to the application's port.
func listeners() map[string]interception.Port {
	return map[string]interception.Port{"outbound": 15001, "inbound": 15006, "tunnel": 15008}
}

// configuration is HAProxy's, with the path of the socket that it logs to. A connection is logged
// when the one to its destination stands, and before the client hears anything.
const configuration = `
global
	log %s format raw local0
defaults
	mode tcp
	log global
	option logasap
	log-format "%%f %%ci %%cp %%fi %%fp"
	timeout connect 30s
	timeout client 5m
	timeout server 5m
frontend outbound
	bind 0.0.0.0:15001 transparent
	bind [::]:15001 transparent v6only
	default_backend destination
frontend inbound
	bind 0.0.0.0:15006 transparent
	bind [::]:15006 transparent v6only
	default_backend destination
frontend tunnel
	bind 0.0.0.0:15008 transparent
	bind [::]:15008 transparent v6only
	default_backend application
backend destination
	source 0.0.0.0 usesrc clientip
	server original 0.0.0.0:0
backend application
	source 0.0.0.0 usesrc clientip
	server original 0.0.0.0:8080
`

// Start runs HAProxy in a pod to the end of the test, and returns when it listens. It fails the
// test if the program is not installed.
func Start(t testing.TB, place *nodes.Place) *Proxy {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		t.Fatalf("a proxy that is not ours: %v; run: sudo apt-get install -y haproxy", err)
	}
	directory := t.TempDir()
	p := &Proxy{t: t, log: listen(t, filepath.Join(directory, "log"))}
	ready := listen(t, filepath.Join(directory, "ready"))
	file := filepath.Join(directory, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, filepath.Join(directory, "log")), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	command := exec.CommandContext(t.Context(), program, "-Ws", "-q", "-f", file)
	command.Env = append(os.Environ(), "NOTIFY_SOCKET="+ready.LocalAddr().String())
	command.Stdout, command.Stderr = &said, &said
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) } // it ends its workers, too
	if err := namespace.Run(place.Netns.File(), command.Start); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // the test's end, or what it said
		_ = ready.SetReadDeadline(time.Now())
	}()
	t.Cleanup(func() { <-ended })
	if err := awaitReady(ready); err != nil {
		<-ended
		t.Fatalf("%s: %v: %s", program, err, &said)
	}
	return p
}

// listen opens a socket for messages.
func listen(t testing.TB, path string) *net.UnixConn {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() }) // nothing is written to it here
	return socket
}

// awaitReady waits for the message by which a service tells that it is ready (sd_notify(3)).
func awaitReady(socket *net.UnixConn) error {
	message := make([]byte, 1024)
	for {
		n, err := socket.Read(message)
		if err != nil {
			return err
		}
		if bytes.Contains(message[:n], []byte("READY=1")) {
			return nil
		}
	}
}

// Takings returns the connections that were taken since the last call, and have reached their
// destinations.
func (p *Proxy) Takings() []ambienttest.Taken {
	p.t.Helper()
	raw, err := p.log.SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	var took []ambienttest.Taken
	line := make([]byte, 1024)
	if err := raw.Control(func(fd uintptr) {
		for {
			n, _, err := syscall.Recvfrom(int(fd), line, syscall.MSG_DONTWAIT)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				return // no more lines
			}
			if taken, is := parse(string(line[:n])); is {
				took = append(took, taken)
			}
		}
	}); err != nil {
		p.t.Fatal(err)
	}
	return took
}

// parse reads a line of the log about a connection; false for other lines.
func parse(line string) (ambienttest.Taken, bool) {
	fields := strings.Fields(line)
	if len(fields) != 5 {
		return ambienttest.Taken{}, false
	}
	port, is := listeners()[fields[0]]
	from, err := netip.ParseAddrPort(net.JoinHostPort(fields[1], fields[2]))
	to, err2 := netip.ParseAddrPort(net.JoinHostPort(fields[3], fields[4]))
	return ambienttest.Taken{Port: port, From: from, To: to}, is && err == nil && err2 == nil
}
