// SPDX-License-Identifier: Apache-2.0

package look

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

// TestNetwork has a namespace as each of the complaints leaves the host's, and the conclusions.
func TestNetwork(t *testing.T) {
	t.Parallel()
	in := sandboxtest.NewPod(t).Netns
	probe := netip.MustParseAddr("169.254.7.127")
	err := namespace.Run(in.File(), func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "bpfin.cali"}, PeerName: "bpfout.cali"}
		err := netlink.LinkAdd(link)
		address, parseErr := netlink.ParseAddr(probe.String() + "/32")
		if err = errors.Join(err, parseErr); err == nil {
			err = netlink.AddrAdd(link, address)
		}
		branch, own := netlink.NewRule(), netlink.NewRule()
		branch.Priority, branch.IifName, branch.Table = 10, "vlan1a2b3c", 101
		own.Priority, own.Table = 512, 7
		return errors.Join(err, netlink.RuleAdd(branch), netlink.RuleAdd(own), os.WriteFile("/proc/sys/net/ipv4/tcp_early_demux", []byte("1"), 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	var v preflight.View
	if err := within(in, &v); err != nil {
		t.Fatal(err)
	}
	var codes []preflight.Code
	for _, f := range preflight.Findings(v, ambient.IstioNumbers()) {
		codes = append(codes, f.Code)
	}
	want := []preflight.Code{preflight.CalicoEBPF, preflight.BranchENI, preflight.ForeignPriority, preflight.ForeignAddress}
	if !slices.Equal(codes, want) || !v.EarlyDemux {
		t.Errorf("the findings are %q, want %q, of %+v", codes, want, v)
	}
}

// TestNode looks at the test's own host, in whose place there is another namespace.
func TestNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"10-a.conflist": `{"plugins":[]}`, "05-b.conflist.cilium_bak": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v := Node(t.Context(), Options{NetDir: dir})
	if len(v.Configs) != 2 || len(v.Links) == 0 || len(v.Missing) > 0 || len(v.Unknown) > 0 || v.ByIPTables {
		t.Errorf("the view is %+v", v)
	}
	v = Node(t.Context(), Options{NetDir: dir, Settings: ambientconf.Config{Dataplane: choice.IPTables}})
	if !v.ByIPTables || len(v.Missing) > 0 || len(v.Unknown) > 0 {
		t.Errorf("with iptables, the view is %+v", v)
	}
}

// TestUnknown has nothing to look at, and a kernel that refuses the trial for another reason than a
// missing feature.
func TestUnknown(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none")
	v := Node(t.Context(), Options{NetDir: missing, Proc: missing, Candidates: []choice.Candidate{{Name: "none"}}})
	if len(v.Unknown) != 3 || !strings.Contains(strings.Join(v.Unknown, "\n"), missing) {
		t.Errorf("unknown are %q, want each of three", v.Unknown)
	}
}

// old is a dataplane that can apply no plan.
type old struct{ interception.Dataplane }

func (old) Supports(*interception.Plan) error {
	return fmt.Errorf("%w: sets with owners", interception.ErrUnsupported)
}

func TestMissing(t *testing.T) {
	t.Parallel()
	v := Node(t.Context(), Options{NetDir: t.TempDir(), Candidates: []choice.Candidate{{Name: "old", Dataplane: old{}}}})
	if len(v.Missing) == 0 || !strings.HasPrefix(v.Missing[0], "old: ") || len(v.Unknown) > 0 {
		t.Errorf("missing are %q, unknown %q", v.Missing, v.Unknown)
	}
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	candidates = append(candidates, choice.Candidate{Name: "old", Dataplane: old{}})
	v = Node(t.Context(), Options{NetDir: t.TempDir(), Candidates: candidates, Settings: ambientconf.Config{Dataplane: "old"}})
	if len(v.Missing) == 0 {
		t.Error("a dataplane is tried that the settings exclude")
	}
}

// TestStanding has a namespace in which other programs use what the capture on the node needs, and
// what the agent itself has there.
func TestStanding(t *testing.T) {
	t.Parallel()
	in := sandboxtest.NewPod(t).Netns
	for _, command := range []string{
		"ip link add cni0 type bridge", "ip link add veth0 type veth peer name veth1", "ip link set veth0 master cni0 up", "ip link set veth1 up",
		"ip address add 192.168.126.7/24 dev veth1", "ip route add 198.51.100.0/24 dev veth1 table 101", "ip rule add fwmark 0x200/0xf00 table 2004 priority 9",
		"ip link add vx0 type vxlan id 7 dstport 6081 remote 192.0.2.9", "nft add table inet firewall",
		"nft add chain inet firewall pre { type filter hook prerouting priority raw ; }",
		"nft add rule inet firewall pre meta nfproto ipv6 fib saddr . mark . iif oif missing drop",
	} {
		sandboxtest.Run(t, in.File(), "", strings.Fields(command)...)
	}
	settings := ambientconf.Config{Mode: ambientconf.ModeNode, Way: "vxlan", ProxyNamespace: "mesh"}
	proc := procOf(t, in.File())
	v := Node(t.Context(), Options{NetDir: t.TempDir(), Proc: proc, Settings: settings})
	found, err := preflight.NodeFindings(v, ambient.IstioNodeNumbers(), ambient.WayVXLAN)
	if err != nil || len(v.Missing)+len(v.Unknown) > 0 {
		t.Errorf("missing are %q, unknown %q, %v", v.Missing, v.Unknown, err)
	}
	seen := map[preflight.Code]string{}
	for _, f := range found {
		seen[f.Code] += f.Seen + "\n"
	}
	for code, wants := range map[preflight.Code][]string{
		preflight.BridgedPods: {"the link veth0 is a port of the bridge cni0"},
		preflight.ForeignNumbers: {
			"subnet 192.168.126.0/30 is used by address 192.168.126.7/24", "table 101 is used by route", "is used by policy rule v4 priority 9 mark 0x200/0xf00",
			"UDP port 6081",
		},
		preflight.SourceCheck: {"chain pre of table inet firewall"},
	} {
		for _, want := range wants {
			if !strings.Contains(seen[code], want) {
				t.Errorf("%s lacks %q:\n%s", code, want, seen[code])
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the findings are %v, want three kinds", seen)
	}
}

// TestStandingHasNotTheAgentsOwn applies the plan of the node, by tunnels, with each dataplane:
// nothing is found then.
func TestStandingHasNotTheAgentsOwn(t *testing.T) {
	t.Parallel()
	plan, err := ambient.NodePlan(ambient.NodeProxy{
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Way: ambient.WayVXLAN, Node: netip.MustParseAddr("192.0.2.2"), Generation: 1,
	}, ambient.IstioNodeNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, ambientconf.NodeOwner)
	if err != nil {
		t.Fatal(err)
	}
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range candidates {
		in := sandboxtest.NewPod(t).Netns
		if err := c.Dataplane.Apply(t.Context(), in, plan); err != nil {
			t.Fatal(err)
		}
		settings := ambientconf.Config{Mode: ambientconf.ModeNode, Way: "vxlan", ProxyNamespace: "mesh"}
		v := Node(t.Context(), Options{NetDir: t.TempDir(), Proc: procOf(t, in.File()), Settings: settings})
		found, err := preflight.NodeFindings(v, ambient.IstioNodeNumbers(), ambient.WayVXLAN)
		if err != nil || len(found) > 0 {
			t.Errorf("%s: the findings are %+v, %v", c.Name, found, err)
		}
	}
}

// procOf returns a proc file system whose process 1 is in a network namespace.
func procOf(t *testing.T, namespace *os.File) string {
	t.Helper()
	proc := t.TempDir()
	ns := filepath.Join(proc, "1", "ns")
	err := os.MkdirAll(ns, 0o755)
	if err == nil {
		err = os.Symlink(fmt.Sprintf("/proc/self/fd/%d", namespace.Fd()), filepath.Join(ns, "net"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return proc
}
