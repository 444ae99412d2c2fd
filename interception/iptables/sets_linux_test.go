// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

type owners = map[netip.Addr]string

// livePlan drops what goes to a pod of the set, and what goes to 192.0.2.0/24 and to no network of
// another set.
func livePlan(t testing.TB, family interception.Family) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		pods, nets := b.LiveAddresses("pods", family, "addresses come and go"), b.LiveSet("nets", interception.IPv4, "networks")
		c := b.Filter("output")
		c.Entry(interception.Output, interception.Match{}, "all packets")
		c.Do("output.pods", interception.Match{DstSet: interception.Is(pods), L4: interception.UDP()}, interception.Drop{}, "to pods")
		elsewhere := interception.Match{DstSet: interception.Not(nets), Dst: interception.Is(prefixes(t, "192.0.2.0/24"))}
		c.Do("output.elsewhere", elsewhere, interception.Drop{}, "to no network of the set")
	})
}

func prefixes(t testing.TB, text ...string) interception.PrefixSet {
	t.Helper()
	var all []netip.Prefix
	for _, p := range text {
		all = append(all, netip.MustParsePrefix(p))
	}
	return interception.Prefixes(all...)
}

// holding is a pod with a plan of live sets.
type holding struct {
	*pod
	*iptables.Dataplane
	plan *interception.Plan
}

func newHolding(t testing.TB, flavour iptables.Flavour, family interception.Family) *holding {
	t.Helper()
	h := &holding{newPod(t), dataplane(t, iptables.Options{Flavour: flavour}), livePlan(t, family)}
	h.apply(t)
	return h
}

func (h *holding) apply(t testing.TB) {
	t.Helper()
	if err := h.Apply(t.Context(), h.Netns, h.plan); err != nil {
		t.Fatal(err)
	}
}

func (h *holding) update(t testing.TB, edit interception.SetEdit) {
	t.Helper()
	if err := h.UpdateSet(t.Context(), h.Netns, "mesh-test", "pods", edit); err != nil {
		t.Fatal(err)
	}
}

func (h *holding) observe(t testing.TB) interception.State {
	t.Helper()
	state, err := h.Observe(t.Context(), h.Netns, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// members are those of the set pods, read by a dataplane that has edited nothing.
func (h *holding) members(t testing.TB) owners {
	t.Helper()
	state, err := dataplane(t, iptables.Options{}).Observe(t.Context(), h.Netns, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	return state.Owners["pods"]
}

// onSets is what another program does to the sets.
func (h *holding) onSets(t testing.TB, do func(*ipset.Socket) error) {
	t.Helper()
	s, err := ipset.Dial(kernel.Of(h.Namespace.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := do(s); err != nil {
		t.Fatal(err)
	}
}

// sets returns the names of all sets.
func (h *holding) sets(t testing.TB) (names []string) {
	t.Helper()
	h.onSets(t, func(s *ipset.Socket) (err error) {
		names, err = s.Names()
		return err
	})
	slices.Sort(names)
	return names
}

// dropped sends a packet to an address, and reports whether a rule dropped it.
func (h *holding) dropped(t testing.TB, to netip.Addr) bool {
	t.Helper()
	err := namespace.Run(h.Namespace.File(), func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("a packet"))
		return errors.Join(err, c.Close())
	})
	if err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatalf("send to %s: %v", to, err)
	}
	return err != nil
}

// TestLiveSets has rules that match members of live sets, through Apply, Observe and Remove.
func TestLiveSets(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for family, pod := range map[interception.Family]netip.Addr{
			interception.IPv4: netip.MustParseAddr("127.0.0.9"), interception.IPv6: netip.MustParseAddr("::1"),
		} {
			h := newHolding(t, flavour, family)
			h.Run(t, "", "ip", "link", "set", "lo", "up")
			h.Run(t, "", "ip", "route", "add", "192.0.2.0/24", "dev", "lo")
			in := netip.MustParseAddr("192.0.2.1")
			if h.dropped(t, pod) || !h.dropped(t, in) {
				t.Errorf("%s: empty sets should have no member", family)
			}
			h.update(t, interception.SetEdit{Add: owners{pod: "one"}})
			h.onSets(t, func(s *ipset.Socket) error {
				return s.Add("mesh-test_nets_4p", ipset.Member{Prefix: netip.MustParsePrefix("192.0.2.0/30"), Comment: "x"})
			})
			for range 2 {
				if !h.dropped(t, pod) || h.dropped(t, in) || !h.dropped(t, netip.MustParseAddr("192.0.2.4")) {
					t.Errorf("%s: the rules should match the members", family)
				}
				h.apply(t)
			}
			state := h.observe(t)
			if drift := interception.Diff(h.plan, state); drift != nil {
				t.Errorf("%s: %v", family, drift)
			}
			if !maps.Equal(state.Owners["pods"], owners{pod: "one"}) || len(state.Owners) != 1 {
				t.Errorf("%s: got the owners %v", family, state.Owners)
			}
			want := map[interception.SetName]interception.PrefixSet{
				"pods": interception.Prefixes(netip.PrefixFrom(pod, pod.BitLen())), "nets": prefixes(t, "192.0.2.0/30"),
			}
			for _, o := range state.Objects {
				if set, ok := o.(interception.Set); ok && !set.Members.Equal(want[set.Name]) {
					t.Errorf("%s: got %v, want a set of %v", family, set, want[set.Name])
				}
			}
			if err := h.Remove(t.Context(), h.Netns, "mesh-test"); err != nil {
				t.Error(err)
			}
			if sets, rules := h.sets(t), h.rules(t); len(sets) > 0 || rules != "" {
				t.Errorf("%s: after Remove there are %v and %q", family, sets, rules)
			}
		}
	})
}

// TestLiveSetsTakeBack has the rules refused: the sets are as before.
func TestLiveSetsTakeBack(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		fresh := &holding{newPod(t), dataplane(t, iptables.Options{Flavour: flavour, Runner: &failing{step: 0}}), livePlan(t, interception.IPv4)}
		if err := fresh.Apply(t.Context(), fresh.Netns, fresh.plan); !errors.Is(err, errKilled) {
			t.Errorf("got %v, want errKilled", err)
		}
		if sets := fresh.sets(t); len(sets) > 0 {
			t.Errorf("after a first plan that was refused there are %v", sets)
		}
		h := newHolding(t, flavour, interception.IPv4)
		want := owners{netip.MustParseAddr("10.0.0.1"): "one"}
		h.update(t, interception.SetEdit{Add: want})
		before := h.sets(t)
		// The programs list the rules of both families first.
		failing := dataplane(t, iptables.Options{Flavour: flavour, Runner: &failing{step: 2}})
		if err := failing.Apply(t.Context(), h.Netns, livePlan(t, interception.IPv6)); !errors.Is(err, errKilled) {
			t.Errorf("got %v, want errKilled", err)
		}
		if sets := h.sets(t); !slices.Equal(sets, before) {
			t.Errorf("after a plan that was refused there are %v, want %v", sets, before)
		}
		if got := h.members(t); !maps.Equal(got, want) {
			t.Errorf("after a plan that was refused the members are %v, want %v", got, want)
		}
	})
}

// TestLiveSetsInUse has another program's rule match a set: the set cannot go, and so nothing does.
func TestLiveSetsInUse(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		h := newHolding(t, flavour, interception.IPv4)
		h.load(t, flavour, "*raw\n-A OUTPUT -m set --match-set mesh-test_pods_4a dst -j ACCEPT\nCOMMIT\n")
		before := h.rules(t)
		err := h.Remove(t.Context(), h.Netns, "mesh-test")
		if !errors.Is(err, ipset.ErrInUse) || !strings.Contains(err.Error(), "mesh-test_pods_4a") {
			t.Errorf("got %v, want ErrInUse about the set", err)
		}
		if diff := cmp.Diff(before, h.rules(t)); diff != "" {
			t.Errorf("the rules have changed (-before +after):\n%s", diff)
		}
		if sets := h.sets(t); !slices.Equal(sets, []string{"mesh-test_nets_4p", "mesh-test_pods_4a"}) {
			t.Errorf("got the sets %v, want all", sets)
		}
		h.load(t, flavour, "*raw\n-D OUTPUT 1\nCOMMIT\n")
		if err := h.Remove(t.Context(), h.Netns, "mesh-test"); err != nil || len(h.sets(t)) > 0 {
			t.Errorf("once the rule is gone: got %v and the sets %v", err, h.sets(t))
		}
	})
}

// TestLiveSetsTampering has another program change the owner's sets while no rule matches them.
func TestLiveSetsTampering(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", func(b *interception.Builder) { b.LiveAddresses("pods", interception.IPv4, "addresses come and go") })
	create := func(name string, of ipset.Type, family interception.Family) func(*holding, *ipset.Socket) error {
		return func(_ *holding, s *ipset.Socket) error {
			return errors.Join(s.Destroy(name), s.Create(name, of, family))
		}
	}
	const set = "mesh-test_pods_4a"
	for name, change := range map[string]func(*holding, *ipset.Socket) error{
		"a set that is gone": func(_ *holding, s *ipset.Socket) error { return s.Destroy(set) },
		"another type":       create(set, ipset.OfNetworks, interception.IPv4),
		"another family":     create(set, ipset.OfAddresses, interception.IPv6),
		"no comments": func(h *holding, s *ipset.Socket) error {
			return errors.Join(s.Destroy(set), namespace.Run(h.Namespace.File(), func() error {
				return netlink.IpsetCreate(set, string(ipset.OfAddresses), netlink.IpsetCreateOptions{})
			}))
		},
		"a set more": create("mesh-test_more_6a", ipset.OfAddresses, interception.IPv6),
	} {
		h := &holding{newPod(t), dataplane(t, iptables.Options{}), plan}
		h.apply(t)
		h.onSets(t, func(s *ipset.Socket) error { return change(h, s) })
		if drift := interception.Diff(plan, h.observe(t)); drift == nil {
			t.Errorf("%s: no drift", name)
		}
		h.apply(t)
		if drift := interception.Diff(plan, h.observe(t)); drift != nil {
			t.Errorf("%s: Apply leaves %v", name, drift)
		}
		if sets := h.sets(t); !slices.Equal(sets, []string{set}) {
			t.Errorf("%s: Apply leaves the sets %v", name, sets)
		}
		if err := h.Remove(t.Context(), h.Netns, "mesh-test"); err != nil || len(h.sets(t)) > 0 {
			t.Errorf("%s: Remove: %v, and there are %v", name, err, h.sets(t))
		}
	}
}

// TestLiveSetsUnsupported has kernels without ipset or a type of set, and names that are too long.
func TestLiveSetsUnsupported(t *testing.T) {
	t.Parallel()
	plan := livePlan(t, interception.IPv4)
	pod := newPod(t)
	lacking := dataplane(t, iptables.Options{}).Through(func(in *os.File) kernel.Namespace {
		return kerneltest.Interfere(kernel.Of(in), func(c kerneltest.Call, do func() error) error {
			if len(c.Kinds) == 1 && c.Kinds[0]>>8 == unix.NFNL_SUBSYS_IPSET {
				return unix.EINVAL
			}
			return do()
		})
	})
	err := lacking.Apply(t.Context(), pod.Netns, plan)
	if !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), "ip_set") || !strings.Contains(err.Error(), "(networks)") {
		t.Errorf("without ipset: got %v, want ErrUnsupported about a set of the plan", err)
	}
	if rules := pod.rules(t); rules != "" {
		t.Errorf("without ipset there are rules: %s", rules)
	}
	long := build(t, "another-mesh", func(b *interception.Builder) {
		b.LiveAddresses("addresses-of-pods-of-a-node", interception.IPv4, "addresses come and go")
	})
	if err := dataplane(t, iptables.Options{}).Supports(long); !errors.Is(err, interception.ErrUnsupported) ||
		!strings.Contains(err.Error(), "addresses-of-pods-of-a-node (addresses come and go)") {
		t.Errorf("a long name: got %v", err)
	}
}
