// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// script writes a program that runs a script of the shell in the directory.
func script(t *testing.T, directory, text string) string {
	t.Helper()
	path := filepath.Join(directory, "proxy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncd "+directory+"\n"+text+"\n"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	return path
}

func commandOptions(command string) StartOptions {
	return StartOptions{ProxyOptions: ProxyOptions{Socket: "/run/z", Numbers: ambient.IstioNumbers()}, Command: command}
}

// holders is a pipe that programs have open: a script that writes "here" to it and keeps it open.
// Its end means that they all have ended.
func holders(t *testing.T) (directory string, lines func() *bufio.Reader) {
	t.Helper()
	directory = t.TempDir()
	if err := unix.Mkfifo(filepath.Join(directory, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return directory, func() *bufio.Reader {
		t.Helper()
		file, err := os.Open(filepath.Join(directory, "pipe"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return bufio.NewReader(file)
	}
}

func readLine(t *testing.T, from *bufio.Reader, want string) {
	t.Helper()
	if line, _ := from.ReadString('\n'); strings.TrimSpace(line) != want {
		t.Errorf("the program says %q, want %q", line, want)
	}
}

// TestCommandEnds ends a program with one that it has started, which holds the pipe too: by Close,
// by Drain, and by the context.
func TestCommandEnds(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, test := range map[string]struct {
		script string
		end    func(Instance, context.CancelFunc)
		last   string
	}{
		"Close":             {"echo here >&3; sleep 1000", func(Instance, context.CancelFunc) {}, ""},
		"the context":       {"echo here >&3; sleep 1000", func(_ Instance, cancel context.CancelFunc) { cancel() }, ""},
		"Drain":             {"trap 'echo drained >&3; exit' TERM; echo here >&3; sleep 1000 & wait", func(i Instance, _ context.CancelFunc) { i.Drain(t.Context()) }, "drained"},
		"Drain's deadline":  {"trap '' TERM; echo here >&3; sleep 1000", func(i Instance, _ context.CancelFunc) { i.Drain(ended) }, ""},
		"its end by itself": {"echo here >&3; sleep 1000 & exit", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory, lines := holders(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			instance, err := Start(ctx, commandOptions(script(t, directory, "exec 3>pipe; "+test.script)))
			if err != nil {
				t.Fatal(err)
			}
			from := lines()
			readLine(t, from, "here")
			if test.end == nil {
				readLine(t, from, "") // what it has started goes with it
				if err := instance.Close(); err == nil || !strings.Contains(err.Error(), "by itself (exit status 0)") {
					t.Errorf("Close: %v", err)
				}
				return
			}
			test.end(instance, cancel)
			if test.last == "" && name != "Close" {
				readLine(t, from, "")
			}
			if err := instance.Close(); err != nil {
				t.Error(err)
			}
			readLine(t, from, test.last)
		})
	}
}

// TestCommandDiesWithItsParent kills the process that has started a program.
func TestCommandDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if directory, is := victim.Task(); is {
		if err := victim.Serve(func() error {
			_, err := Start(context.Background(), commandOptions(script(t, directory, "exec 3>pipe; echo here >&3; exec sleep 1000")))
			if err == nil {
				select {} // until it is killed
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return
	}
	directory, lines := holders(t)
	process, err := victim.Start(t.Context(), t.Name(), directory)
	if err != nil {
		t.Fatal(err)
	}
	var from *bufio.Reader
	if _, err := process.Run(victim.Ending{When: func() {
		from = lines()
		readLine(t, from, "here")
	}}); err != nil {
		t.Fatal(err)
	}
	readLine(t, from, "")
}

// TestCommandsSurroundings has a program say what it finds: ztunnel's settings, its arguments, and
// a network of its own with lo up.
func TestCommandsSurroundings(t *testing.T) {
	t.Parallel()
	directory, lines := holders(t)
	var output bytes.Buffer
	o := commandOptions(script(t, directory, `
echo "$@" "$PROXY_MODE" "$INPOD_UDS" "$INPOD_PORT_REUSE" "$PACKET_MARK" "$FAKE_CA" "[$XDS_ADDRESS]"
echo "$LOCAL_XDS"
readlink /proc/self/ns/net
cat /proc/net/if_inet6 | wc -l
echo done >pipe`) + " proxy ztunnel")
	o.Workloads = []Workload{
		{Name: "a", Namespace: "shop", ServiceAccount: "account", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Tunnel: true},
		{Name: "b", Namespace: "shop"},
	}
	o.Output = &output
	instance, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	readLine(t, lines(), "done")
	_ = instance.Close() // it has ended, or is about to
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Split(output.String(), "\n")
	if len(said) < 4 || said[2] == own || strings.TrimSpace(said[3]) != "1" {
		t.Fatalf("in the network %s the program says %q, want a network of its own with the address of lo", own, said)
	}
	want := []string{
		"proxy ztunnel shared /run/z true 1337 true []",
		`{"workloads":[{"uid":"Kubernetes//Pod/shop/a","name":"a","namespace":"shop","serviceAccount":"account",` +
			`"workloadIps":["10.0.0.1"],"protocol":"HBONE","services":{}},` +
			`{"uid":"Kubernetes//Pod/shop/b","name":"b","namespace":"shop","serviceAccount":"","workloadIps":[],"protocol":"TCP","services":{}}]}`,
	}
	if diff := cmp.Diff(want, said[:2]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	read, err := ParseWorkloads([]byte(said[1]))
	if err != nil || len(read) != 2 || !read[0].Tunnel || read[1].Tunnel || read[0].Name != "a" || !slices.Equal(read[0].Addresses, o.Workloads[0].Addresses) {
		t.Errorf("read again: %+v, %v", read, err)
	}
	if _, err := ParseWorkloads([]byte("workloads: []")); err == nil || !strings.Contains(err.Error(), "JSON alone") {
		t.Errorf("YAML: %v", err)
	}
}

// TestCommandRefuses what it cannot ask of a program.
func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*StartOptions){
		"Tunnels":   func(o *StartOptions) { o.Tunnels = func(netip.Addr) bool { return true } },
		"Resolvers": func(o *StartOptions) { o.Resolvers = []netip.AddrPort{{}} },
		"Refuse":    func(o *StartOptions) { o.Refuse = func(zds.Workload) string { return "" } },
		"Strict":    func(o *StartOptions) { o.Strict = true },
		"Observe":   func(o *StartOptions) { o.Observe = func(Event) {} },
		"Faults":    func(o *StartOptions) { o.Faults.NoAck = true },
		"Numbers":   func(o *StartOptions) { o.Numbers.InboundPort++ },
	} {
		o := commandOptions("/bin/true")
		change(&o)
		if _, err := Start(t.Context(), o); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), ": "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := commandOptions("/bin/true")
	o.Numbers = ambient.Numbers{}
	if _, err := Start(t.Context(), o); err == nil || errors.Is(err, ErrOption) && !strings.Contains(err.Error(), "Numbers") {
		t.Errorf("without numbers: %v", err)
	}
	for _, command := range []string{" ", "/is/not/there", "'/bin/true'"} {
		if _, err := Start(t.Context(), commandOptions(command)); err == nil {
			t.Errorf("%q: no error", command)
		}
	}
}

// TestWitnessOfQueries counts each query of a socket with the mark once, also on lo, where it
// leaves and arrives, and no other datagram.
func TestWitnessOfQueries(t *testing.T) {
	t.Parallel()
	pod, namespace := newPod(t)
	witness := watch(t, namespace)
	mark := int(ambient.IstioNumbers().ProxyMark.Value)
	for _, datagram := range []struct {
		mark int
		to   string
		want int
	}{{mark, "127.0.0.1:53", 1}, {mark, "[::1]:53", 2}, {mark, "127.0.0.1:54", 2}, {0, "127.0.0.1:53", 2}, {mark | 1<<12, "127.0.0.1:53", 3}} {
		if err := pod.Do(func() error {
			dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
				var err error
				return errors.Join(raw.Control(func(fd uintptr) {
					err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, datagram.mark)
				}), err)
			}}
			conn, err := dialer.DialContext(t.Context(), "udp", datagram.to)
			if err != nil {
				return err
			}
			_, err = conn.Write([]byte("?"))
			return errors.Join(err, conn.Close())
		}); err != nil {
			t.Fatal(err)
		}
		if counted, err := witness.Relayed(); err != nil || counted != datagram.want {
			t.Errorf("after one to %s with mark %#x: %d, %v, want %d", datagram.to, datagram.mark, counted, err, datagram.want)
		}
	}
}

// TestWitness counts what sockets with the mark begin, and nothing else.
func TestWitness(t *testing.T) {
	t.Parallel()
	pod, namespace := newPod(t)
	witness := watch(t, namespace)
	connect(t, pod, witness.Relayed, 0)
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	await(t, server, "a")
	awaitListening(t, witness, true)
	capture(t, namespace)
	connect(t, pod, witness.Relayed, 1)
	if counted, err := witness.Relayed(); err != nil || counted != proxy.Relayed() {
		t.Errorf("the witness counts %d, %v, and the proxy %d", counted, err, proxy.Relayed())
	}
	proxy.LoseListeners()
	awaitListening(t, witness, false)
	if _, err := NewWitness(namespace, ambient.Numbers{}); err == nil {
		t.Error("without numbers: no error")
	}
}
