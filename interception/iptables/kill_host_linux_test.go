// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// hostWork is what a process does in the host's namespace until it kills itself.
type hostWork struct {
	Plan        *interception.Plan
	Flavour     iptables.Flavour
	Host, Proxy string // the paths of namespaces
	Remove      bool   // rather than Apply
	End         int    // the index of the step before which it kills itself
}

func (w hostWork) do(t *testing.T) error {
	t.Helper()
	var namespaces [2]*interception.Netns
	for i, path := range []string{w.Host, w.Proxy} {
		ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
		if err != nil {
			return err
		}
		namespaces[i] = ns
	}
	dp := (&mortal{Runner: iptables.DefaultRunner(), end: w.End}).dataplane(t, w.Flavour)
	if w.Remove {
		return dp.Remove(context.Background(), namespaces[0], w.Plan.Owner)
	}
	return dp.Apply(context.Background(), namespaces[0].With("proxy", namespaces[1]), w.Plan)
}

// mortal kills its process before a step: a program, or a call to the kernel that changes anything.
type mortal struct {
	iptables.Runner
	end int // the index of the step; negative for none

	mu    sync.Mutex
	steps []string
}

func (m *mortal) dataplane(t *testing.T, flavour iptables.Flavour) *iptables.Dataplane {
	t.Helper()
	return dataplane(t, iptables.Options{Flavour: flavour, Runner: m}).Through(func(in *os.File) kernel.Namespace {
		return kerneltest.Interfere(kernel.Of(in), func(call kerneltest.Call, do func() error) error {
			if call.Changes() {
				if err := m.step(call.What); err != nil {
					return err
				}
			}
			return do()
		})
	})
}

// Run is [iptables.Runner.Run].
func (m *mortal) Run(ctx context.Context, command iptables.Command) (iptables.Output, error) {
	if err := m.step(strings.Join(command.Args, " ")); err != nil {
		return iptables.Output{}, err
	}
	return m.Runner.Run(ctx, command)
}

func (m *mortal) step(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps = append(m.steps, what)
	if len(m.steps)-1 != m.end {
		return nil
	}
	return errors.Join(unix.Kill(os.Getpid(), unix.SIGKILL), errors.New("still alive"))
}

// taken returns the steps since the last call.
func (m *mortal) taken() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	steps := m.steps
	m.steps = nil
	return steps
}

// TestKilledOnTheHost kills a process before each program that it runs and each call to the kernel
// that changes anything: while it applies ambient mode's plan for a node, and while it removes that
// plan. The next Remove leaves the host and the proxy's pod as they were.
func TestKilledOnTheHost(t *testing.T) {
	t.Parallel()
	if task, is := victim.Task(); is {
		var work hostWork
		if err := json.Unmarshal([]byte(task), &work); err != nil {
			t.Fatal(err)
		}
		if err := victim.Serve(func() error { return work.do(t) }); err != nil {
			t.Fatal(err)
		}
		return
	}
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		killOnTheHost(t, flavour)
	})
}

func killOnTheHost(t *testing.T, flavour iptables.Flavour) {
	t.Helper()
	plan, err := ambient.NodePlan(ambient.NodeProxy{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.14"), netip.MustParseAddr("fd00:10:244:1::e")},
		Namespace: "proxy", Node: netip.MustParseAddr("10.244.1.13"), DNS: true,
	}, ambient.IstioNodeNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	host, proxy := newPod(t), newPod(t)
	sandboxtest.Run(t, host.Namespace.File(), "", "iptables-"+string(flavour), "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "1", "-j", "ACCEPT")
	steps := &mortal{Runner: iptables.DefaultRunner(), end: -1}
	dp := steps.dataplane(t, flavour)
	listing := func() string { return listed(t, host.Pod) + listed(t, proxy.Pod) }
	apply := func() {
		if err := dp.Apply(t.Context(), host.With("proxy", proxy.Netns), plan); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		if err := dp.Remove(t.Context(), host.Netns, plan.Owner); err != nil {
			t.Fatal(err)
		}
	}
	before := listing()
	apply()
	all := map[bool][]string{false: steps.taken()}
	remove()
	all[true] = steps.taken()
	work := hostWork{Plan: plan, Flavour: flavour, Host: host.Namespace.Path(), Proxy: proxy.Namespace.Path()}
	for _, work.Remove = range []bool{false, true} {
		for end, step := range all[work.Remove] {
			if work.Remove {
				apply()
			}
			work.End = end
			dieAtWork(t, work)
			remove()
			if diff := cmp.Diff(before, listing()); diff != "" {
				t.Fatalf("killed before step %d (%s), remove=%t, after Remove (-before +after):\n%s", end, step, work.Remove, diff)
			}
		}
		t.Logf("remove=%t: %d steps", work.Remove, len(all[work.Remove]))
	}
}

// dieAtWork has a process do the work until it kills itself.
func dieAtWork(t *testing.T, work hostWork) {
	t.Helper()
	task, err := json.Marshal(work)
	if err != nil {
		t.Fatal(err)
	}
	process, err := victim.Start(t.Context(), "TestKilledOnTheHost", string(task))
	if err != nil {
		t.Fatal(err)
	}
	if end, err := process.Run(victim.Ending{Itself: true}); err != nil || !end.Killed {
		t.Errorf("%+v: the process was not killed: %+v, %v", work, end, err)
	}
}

// listed returns what a namespace has, with its sets and the rules and chains that programs list.
func listed(t *testing.T, pod *sandboxtest.Pod) string {
	t.Helper()
	sets, err := ipset.Dial(kernel.Of(pod.Namespace.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sets.Close() }()
	names, err := sets.Names()
	if err != nil {
		t.Fatal(err)
	}
	all := pod.Network(t) + fmt.Sprintln("sets:", names)
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		for line := range strings.Lines(pod.Run(t, "", program)) {
			if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":") && strings.Contains(line, " - ") { // not a built-in chain
				all += fmt.Sprintln(program, line)
			}
		}
	}
	return all
}
