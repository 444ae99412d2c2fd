// SPDX-License-Identifier: Apache-2.0

package markprobe_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/markprobe"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

const owner interception.Owner = "test-ambient"

// host is a namespace with the rules of a node that has no proxy, and its prober.
type host struct {
	*sandbox.Namespace
	*markprobe.Prober

	t     *testing.T
	netns *interception.Netns
	rules *nftables.Dataplane
}

// member is a pod of the mesh, other is another one, and own is the node's address.
type addresses struct{ member, other, own netip.Addr }

func families() map[interception.Family]addresses {
	of := netip.MustParseAddr
	return map[interception.Family]addresses{
		interception.IPv4: {of("10.244.0.5"), of("10.244.0.6"), of("192.0.2.1")},
		interception.IPv6: {of("fd00:10:244::5"), of("fd00:10:244::6"), of("2001:db8::1")},
	}
}

func newHost(t *testing.T) *host {
	t.Helper()
	space, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = space.Close() })
	h := &host{Namespace: space, t: t}
	h.netns, err = interception.OpenNetns(space.Path(), interception.NetnsOptions{})
	h.must(err)
	t.Cleanup(func() { _ = h.netns.Close() })
	h.rules, err = nftables.New(nftables.Options{})
	h.must(err)
	plan, err := ambient.NodePlan(ambient.NodeProxy{}, ambient.IstioNodeNumbers(), interception.Facts{IPv6: true}, owner)
	h.must(err)
	h.must(h.rules.Apply(t.Context(), h.netns, plan))
	for family, of := range families() {
		h.must(space.AddAddress(t.Context(), "lo", netip.PrefixFrom(of.own, of.own.BitLen())))
		h.edit(family, interception.SetEdit{Add: map[netip.Addr]string{of.member: "7c1e"}})
	}
	h.Prober, err = markprobe.Open(h.netns)
	h.must(err)
	t.Cleanup(func() { _ = h.Prober.Close() })
	return h
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) edit(family interception.Family, edit interception.SetEdit) {
	h.t.Helper()
	h.must(h.rules.UpdateSet(h.t.Context(), h.netns, owner, ambient.MeshedSet(family), edit))
}

func (h *host) marked(from, to netip.Addr) bool {
	h.t.Helper()
	marked, err := h.Marked(from, to, ambient.IstioNodeNumbers().Outbound.Mark)
	h.must(err)
	return marked
}

// TestMarked asks the kernel what it does with connections of a pod of the mesh and of another one.
func TestMarked(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for family, of := range families() {
		if !h.marked(of.member, of.own) {
			t.Errorf("%s: connections of a pod of the mesh are not marked", family)
		}
		if h.marked(of.other, of.own) {
			t.Errorf("%s: connections of another pod are marked", family)
		}
		h.edit(family, interception.SetEdit{Remove: map[netip.Addr]string{of.member: "7c1e"}})
		if h.marked(of.member, of.own) {
			t.Errorf("%s: connections of a pod that has left are marked", family)
		}
	}
}

// TestOtherRules has another program take the mark away after the mesh has set it.
func TestOtherRules(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	plan, err := interception.Build("test-other", func(b *interception.Builder) {
		c := b.Mangle("other")
		c.EntryAt(interception.Prerouting, 100, interception.Match{}, "later than the mesh")
		c.Do("unmark", interception.Match{}, interception.SetMark{Mark: interception.WholeMark(0)}, "takes marks away")
	})
	h.must(err)
	h.must(h.rules.Apply(t.Context(), h.netns, plan))
	for family, of := range families() {
		if h.marked(of.member, of.own) {
			t.Errorf("%s: the mark is seen though other rules have taken it away", family)
		}
	}
}

// TestNothingIsLeft looks for what might be left of a packet: an answer, an error, or a connection
// that goes on being tracked.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	before := h.statistics()
	for _, of := range families() {
		for range 10 {
			h.marked(of.member, of.own)
		}
	}
	if after := h.statistics(); after != before {
		t.Errorf("TCP or ICMP has taken notice of the packets:\n%s\nbefore:\n%s", after, before)
	}
	h.must(h.Do(func() error {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			all, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil || len(all) > 0 {
				return fmt.Errorf("the kernel goes on tracking %v, %w", all, err)
			}
		}
		return nil
	}))
}

// statistics returns what the kernel counts of TCP and of ICMP messages that it sends.
func (h *host) statistics() string {
	h.t.Helper()
	var text []byte
	for _, name := range []string{"snmp", "snmp6"} {
		h.must(h.Do(func() error {
			more, err := os.ReadFile("/proc/thread-self/net/" + name)
			text = append(text, more...)
			return err
		}))
	}
	var kept []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Tcp:") || strings.HasPrefix(line, "Icmp:") || strings.HasPrefix(line, "Icmp6OutErrors") ||
			strings.HasPrefix(line, "Icmp6OutDestUnreachs") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestUnseen has the kernel drop the packet before any socket.
func TestUnseen(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.must(h.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0) }))
	of := families()[interception.IPv4]
	if marked, err := h.Marked(of.member, of.own, ambient.IstioNodeNumbers().Outbound.Mark); marked || !errors.Is(err, markprobe.ErrUnseen) {
		t.Errorf("with rp_filter=1: marked is %v, with the error %v", marked, err)
	}
}

// TestUntracked has another program exclude lo from tracking.
func TestUntracked(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for family, command := range map[interception.Family]string{interception.IPv4: "iptables-nft", interception.IPv6: "ip6tables-nft"} {
		sandboxtest.Run(t, h.netns.File(), "", append([]string{command}, strings.Fields("-t raw -A PREROUTING -i lo -j CT --notrack")...)...)
		of := families()[family]
		if marked, err := h.Marked(of.member, of.own, ambient.IstioNodeNumbers().Outbound.Mark); marked || !errors.Is(err, markprobe.ErrUntracked) {
			t.Errorf("%s: marked is %v, with the error %v", family, marked, err)
		}
	}
}
