// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

// updatePlans returns golden plans that all capture what probes send: one for each mode, and others
// that differ from them in several tables.
func updatePlans(t *testing.T) map[string]*interception.Plan {
	t.Helper()
	cases, err := golden.Load("../sidecar/testdata")
	if err != nil {
		t.Fatal(err)
	}
	plans := map[string]*interception.Plan{}
	for _, c := range cases {
		if slices.Contains([]string{"default", "tproxy", "tproxy-interfaces", "dns", "drop-invalid"}, c.Name) {
			if plans[c.Name], _, err = c.Plan(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(plans) != 5 {
		t.Fatalf("got %d golden plans", len(plans))
	}
	return plans
}

func probes() []dataplanetest.Probe {
	return []dataplanetest.Probe{
		{Dst: netip.MustParseAddrPort("192.0.2.1:443")},
		{Dst: netip.MustParseAddrPort("10.244.0.2:8080"), From: dataplanetest.Elsewhere},
		{Dst: netip.MustParseAddrPort("[fd00:10:244::2]:8080"), From: dataplanetest.Elsewhere},
	}
}

// captured returns "" if the proxy got the probe, or nothing did where dropped allows that.
func captured(t *testing.T, pod *dataplanetest.Pod, probe dataplanetest.Probe, dropped bool) string {
	t.Helper()
	o, err := pod.Send(t.Context(), probe)
	switch {
	case err != nil:
		return err.Error()
	case o.Verdict == dataplanetest.Accepted && o.At == dataplanetest.InPod && (o.Port == 15001 || o.Port == 15006):
		return ""
	case o.Verdict == dataplanetest.Dropped && dropped:
		return ""
	}
	return fmt.Sprintf("%s was %s", probe, o)
}

func newUpdatePod(t *testing.T) (*dataplanetest.Pod, *interception.Netns) {
	t.Helper()
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
		Addresses:  []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
		Ports:      []uint16{8080},
		ProxyPorts: []uint16{15001, 15006, 15053},
		DropAfter:  20 * time.Millisecond, // the kernel then reports packets in flight
	})
	ns, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return pod, ns
}

// cut ends a restore program after a number of commits, and then fails every program.
type cut struct {
	commits int
	killed  bool
}

var errKilled = errors.New("killed")

// Run is [iptables.Runner.Run].
func (c *cut) Run(ctx context.Context, command iptables.Command) (iptables.Output, error) {
	if c.killed {
		return iptables.Output{}, errKilled
	}
	lines := strings.SplitAfter(string(command.Stdin), "\n")
	for i, line := range lines {
		if line == "COMMIT\n" {
			if c.commits--; c.commits < 0 {
				c.killed = true
				command.Stdin = []byte(strings.Join(lines[:i], "")) // without its COMMIT, the last table does not change
				break
			}
		}
	}
	out, err := iptables.DefaultRunner().Run(ctx, command)
	if c.killed {
		return out, errKilled
	}
	return out, err
}

// TestKilled ends an update after each of its commits: connections reach the proxy or no
// destination, and the next Apply repairs everything.
func TestKilled(t *testing.T) {
	t.Parallel()
	plans := updatePlans(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for _, update := range [][2]string{
			{"default", "tproxy"}, {"tproxy", "default"}, {"tproxy", "tproxy-interfaces"}, {"default", "dns"}, {"dns", "drop-invalid"},
		} {
			t.Run(update[0]+" to "+update[1], func(t *testing.T) {
				t.Parallel()
				pod, ns := newUpdatePod(t)
				dp := dataplane(t, iptables.Options{Flavour: flavour})
				for commits := 0; ; commits++ {
					if err := dp.Apply(t.Context(), ns, plans[update[0]]); err != nil {
						t.Fatal(err)
					}
					killed := &cut{commits: commits}
					err := dataplane(t, iptables.Options{Flavour: flavour, Runner: killed}).Apply(t.Context(), ns, plans[update[1]])
					if killed.killed != errors.Is(err, errKilled) {
						t.Errorf("after %d commits: got %v", commits, err)
					}
					for _, probe := range probes() {
						if problem := captured(t, pod, probe, killed.killed); problem != "" {
							t.Errorf("after %d commits: %s", commits, problem)
						}
					}
					if !killed.killed {
						if commits < 2 {
							t.Errorf("the update took %d commits only", commits)
						}
						return
					}
				}
			})
		}
	})
}

// TestKilledFirst ends the first Apply of a plan after each of its commits: what becomes of a
// connection is what the whole plan makes of it, or what happens without a plan. A former value of
// a sysctl is remembered beside the rules.
func TestKilledFirst(t *testing.T) {
	t.Parallel()
	plans := updatePlans(t)
	ttl := interception.Sysctl{ID: "test.ttl", Key: "ipv4/ip_default_ttl", Value: 65, Why: "a former value to remember"}
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for _, name := range []string{"tproxy", "dns", "drop-invalid"} {
			plan := &interception.Plan{Owner: plans[name].Owner, Objects: append(slices.Clone(plans[name].Objects), ttl)}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pod, ns := newUpdatePod(t)
				dp := dataplane(t, iptables.Options{Flavour: flavour})
				without := outcomes(t, pod)
				if err := dp.Apply(t.Context(), ns, plan); err != nil {
					t.Fatal(err)
				}
				with := outcomes(t, pod)
				for commits := 0; ; commits++ {
					if err := dp.Remove(t.Context(), ns, plan.Owner); err != nil {
						t.Fatal(err)
					}
					killed := &cut{commits: commits}
					if err := dataplane(t, iptables.Options{Flavour: flavour, Runner: killed}).Apply(t.Context(), ns, plan); killed.killed != errors.Is(err, errKilled) {
						t.Errorf("after %d commits: got %v", commits, err)
					}
					for i, now := range outcomes(t, pod) {
						if now != with[i] && now != without[i] {
							t.Errorf("after %d commits: %s was %s, want %s or %s", commits, probes()[i], now, with[i], without[i])
						}
					}
					if !killed.killed {
						return
					}
				}
			})
		}
	})
}

// outcomes returns what becomes of each probe, without the ports of its client.
func outcomes(t *testing.T, pod *dataplanetest.Pod) (all []string) {
	t.Helper()
	for _, probe := range probes() {
		o, err := pod.Send(t.Context(), probe)
		all = append(all, fmt.Sprint(o.Verdict, " ", o.At, " ", o.Port, err))
	}
	return all
}
