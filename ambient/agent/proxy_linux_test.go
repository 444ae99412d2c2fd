// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/nftables"
)

// proxy starts the proxy of the node until the test ends: the stand-in, or the command of the run.
func (n *node) proxy() ambienttest.Instance {
	n.t.Helper()
	return n.startProxy(ambienttest.StartOptions{ProxyOptions: ambienttest.ProxyOptions{Socket: n.options.Socket}})
}

// startProxy is proxy with other settings. A proxy that is a command knows the pods of object.
func (n *node) startProxy(o ambienttest.StartOptions) ambienttest.Instance {
	n.t.Helper()
	o.Numbers, o.Command, o.Output = n.options.Numbers, n.command, n.t.Output()
	if o.Command != "" && o.Workloads == nil {
		o.Workloads = workloads()
	}
	instance, err := ambienttest.Start(n.t.Context(), o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.closeProxy(instance)
	return instance
}

// workloads are the pods of object as the proxy's control plane knows them.
func workloads() (all []ambienttest.Workload) {
	for _, uid := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		pod := object(uid)
		all = append(all, ambienttest.Workload{
			Name: pod.Name, Namespace: pod.Namespace, ServiceAccount: pod.ServiceAccount, Addresses: pod.Addresses,
		})
	}
	return all
}

// standIn starts the stand-in of this process, for tests that make the proxy misbehave.
func (n *node) standIn(o ambienttest.ProxyOptions) *ambienttest.Proxy {
	n.t.Helper()
	o.Socket, o.Numbers = n.options.Socket, n.options.Numbers
	proxy, err := ambienttest.StartProxy(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.closeProxy(proxy)
	return proxy
}

func (n *node) closeProxy(instance ambienttest.Instance) {
	n.t.Helper()
	n.t.Cleanup(func() {
		if err := instance.Close(); err != nil {
			n.t.Error(err)
		}
	})
}

// witness returns the one of a pod, which counts from the first call on.
func (n *node) witness(pod *dataplanetest.Pod) *ambienttest.Witness {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if former := n.witnesses[pod]; former != nil {
		return former
	}
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = namespace.Close() }) // nothing was written
	n.witnesses[pod] = newWitness(n.t, namespace)
	return n.witnesses[pod]
}

func newWitness(t testing.TB, in *interception.Netns) *ambienttest.Witness {
	t.Helper()
	witness, err := ambienttest.NewWitness(in, ambient.IstioNumbers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := witness.Close(); err != nil {
			t.Error(err)
		}
	})
	return witness
}

// relayed returns how many connections proxies have relayed in a pod since the first call.
func (n *node) relayed(pod *dataplanetest.Pod) int {
	n.t.Helper()
	relayed, err := n.witness(pod).Relayed()
	if err != nil {
		n.t.Error(err)
	}
	return relayed
}

// served reports whether a proxy has its listeners in a pod.
func (n *node) served(pod *dataplanetest.Pod) bool {
	n.t.Helper()
	listening, err := n.witness(pod).Listening()
	if err != nil {
		n.t.Error(err)
	}
	return listening
}

// TestCommand puts a program in the stand-in's place: the stand-in, as a program.
func TestCommand(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "stand-in-proxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "github.com/meshcni/meshcni/examples/stand-in-proxy")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", build, err, output)
	}
	for name, test := range map[string]func(*testing.T, *node){
		"a pod comes and goes":  podComesAndGoes,
		"connections live on":   connectionsLiveOn,
		"the agent is replaced": restart,
		"the proxy is replaced": proxyIsReplaced,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.command = program
			test(t, n)
		})
	}
	t.Run("nodes", func(t *testing.T) {
		t.Parallel()
		native, err := nftables.New(nftables.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tried := newMatrix()
		newMesh(t, native, families(), program).tryAll(tried, "nftables dual", families())
		if got := tried.count(notTried); got != 2*len(families()) {
			t.Errorf("%d cells were not tried, want the two of captured queries for each family\n%s", got, tried)
		}
	})
}

// workloads are the pods of both nodes as the proxies' control plane knows them.
func (m *mesh) workloads() (all []ambienttest.Workload) {
	for name, place := range m.places {
		if place.Addresses != nil {
			all = append(all, ambienttest.Workload{Name: name, Namespace: "shop", Addresses: place.Addresses, Tunnel: m.enrolled(place)})
		}
	}
	return all
}

// enrolled reports whether a place is a pod that is enrolled.
func (m *mesh) enrolled(place *nodes.Place) bool {
	for _, n := range m.nodes {
		if _, is := n.uids[place]; is {
			return true
		}
	}
	return false
}

// proxyOptions are those of a node's proxy. Only the stand-in of this process can be told where to
// send queries.
func (m *mesh) proxyOptions(n *meshNode) ambienttest.StartOptions {
	o := ambienttest.StartOptions{ProxyOptions: ambienttest.ProxyOptions{Socket: n.options.Socket}, Workloads: m.workloads()}
	if n.command == "" {
		o.Resolvers = []netip.AddrPort{m.resolver(interception.IPv4), m.resolver(interception.IPv6)}
	}
	return o
}

// relayed returns how many connections the proxy of a node has relayed so far.
func (n *meshNode) relayed() (all int) {
	n.t.Helper()
	for _, witness := range n.seen {
		relayed, err := witness.Relayed()
		if err != nil {
			n.t.Error(err)
		}
		all += relayed
	}
	return all
}

// TestConnectionWithoutHello has programs connect to the proxy's socket that say no hello: no
// worker looks at its pod because of them, as it does for a proxy that comes or goes.
func TestConnectionWithoutHello(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, err := New(t.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(a, "a")
	a.workers["a"] = w
	alert := w.begin()
	isAlerted := func() bool {
		select {
		case <-alert:
			return true
		default:
			return false
		}
	}
	if a.hear(zds.Event{Err: io.ErrUnexpectedEOF}); isAlerted() {
		t.Error("a connection without a hello counts as a proxy")
	}
	if a.hear(zds.Event{Connection: 1, Err: io.ErrUnexpectedEOF}); !isAlerted() {
		t.Error("the end of a proxy is not told")
	}
}
