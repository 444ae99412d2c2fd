// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/talk"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// readers are dataplanes that read what other programs have.
func readers(t testing.TB) []agent.ForeignDataplane {
	t.Helper()
	native, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	programs, err := iptables.New(iptables.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	return []agent.ForeignDataplane{programs, native, withoutPrograms{native}}
}

// withoutPrograms is a dataplane whose programs are not installed.
type withoutPrograms struct{ agent.ForeignDataplane }

func (withoutPrograms) Observe(context.Context, *interception.Netns, interception.Owner) (interception.State, error) {
	return interception.State{}, interception.ErrUnsupported
}

// former describes a node on which Istio's own agent captures pods for a proxy.
func (n *node) former(release upstream.NodeRelease, by upstream.Program, proxy ambient.Pod, pods ...ambient.Pod) upstreamtest.Node {
	n.t.Helper()
	place := n.places[proxy.UID]
	_, link := place.Peer("eth0")
	members := map[netip.Addr]string{}
	for _, pod := range pods {
		members[pod.Addresses[0]] = pod.UID
	}
	return upstreamtest.Node{
		Release: release, Program: by, Host: n.made.Host.Netns.File(), Proxy: place.Netns.File(), Link: link,
		Address: place.Addresses[0], HostAddress: place.Addresses[0].Prev(), Pods: members,
	}
}

// ofFormer reports whether the host has anything of Istio's own agent.
func (n *node) ofFormer() bool {
	n.t.Helper()
	dump := n.dump()
	return strings.Contains(dump, "ztunnel") || strings.Contains(dump, "istio") || strings.Contains(dump, "goto 32766") ||
		strings.Contains(dump, "table 10")
}

// wantFormerWay tests how connections of a pod go over IPv4, and to it: Istio's agent knows no
// other family.
func (n *node) wantFormerWay(pod ambient.Pod, proxy *nodes.Proxy) {
	n.t.Helper()
	own := ipv4(n.places[pod.UID])
	for _, ends := range [][2]*nodes.Place{{own, ipv4(n.remote)}, {n.remote, own}} {
		if got, err := n.connect(ends[0], ends[1], proxy); err != nil || got != captured {
			n.t.Errorf("%s to %s goes the way %d, %v, want that Istio's agent captures it", ends[0].Name, ends[1].Name, got, err)
		}
	}
}

// TestTakeOver takes over a node on which the agent of Istio 1.18 to 1.20 captures, under load, and
// gives it back. Connections that were there go on. Its tunnels are of VXLAN: GENEVE, which it
// uses, is not in every kernel, and makes no difference to the rules. Where both agents use
// iptables, they have proxies of their own: Istio's flushes the chains of its proxy's namespace
// when it starts.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		backend string
		release upstream.NodeRelease
		by      upstream.Program
		newer   bool // proxy than the former agent's
	}{
		{"nftables", upstream.NodeRelease120, upstream.ProgramIPTablesNFT, false},
		{"nftables", upstream.NodeRelease119, upstream.ProgramIPTablesLegacy, true},
		{"iptables-nft", upstream.NodeRelease120, upstream.ProgramIPTablesNFT, true},
		{"iptables-legacy", upstream.NodeRelease118, upstream.ProgramIPTablesLegacy, true},
	} {
		name := of.backend + " after " + string(of.release) + " by " + string(of.by)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)[of.backend])
			n.options.Numbers, n.options.TakeOver = ambient.BesideIstioNodeNumbers(), readers(t)
			n.options.DrainTimeout = time.Minute
			web, peer := n.pod(), n.pod()
			formerPod, formerProxy := n.proxy()
			pod, proxy := formerPod, formerProxy
			if of.newer {
				pod, proxy = n.proxy()
			}
			theirs := n.former(of.release, of.by, formerPod, web, peer)
			upstreamtest.InstallNode(t, theirs)
			stood := n.dump()
			n.wantFormerWay(web, formerProxy)
			n.wantFormerWay(peer, formerProxy)
			talk.Echo(t, n.remote)
			talk.Echo(t, n.places[web.UID])
			talk.Echo(t, n.places[peer.UID])
			old := []net.Conn{
				talk.Call(t, n.places[web.UID], n.remote.Addresses[0]), talk.Call(t, n.remote, web.Addresses[0]),
				talk.Call(t, n.places[web.UID], peer.Addresses[0]),
			}
			n.wantTalk("before", old)
			_, end := n.load(web)
			a, _ := n.run()
			n.feed <- told(pod, web, peer)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.awaitStatus(peer.UID, ambient.StatusEnabled)
			n.wantWay(peer, proxy, captured)
			n.wantTalk("beside", old)
			if !n.ofFormer() {
				t.Error("nothing is left of Istio's agent, and a connection needs it")
			}
			for _, conn := range old {
				_ = conn.Close()
			}
			n.eventually("nothing is left of Istio's agent", func() bool { return !n.ofFormer() })
			n.wantWay(peer, proxy, captured)
			own := []net.Conn{talk.Call(t, n.places[web.UID], n.remote.Addresses[0]), talk.Call(t, n.remote, web.Addresses[1])}
			end() // Istio's agent resets connections with packets under way when it starts
			theirs.UninstallProxy(t)
			upstreamtest.InstallNode(t, theirs)
			n.eventually("the plan has regard for Istio's agent", n.hasRegard)
			_, end = n.load(web)
			n.wantWay(peer, proxy, captured)
			n.wantTalk("while both stand again", own)
			withdrawn := make(chan error, 1)
			go func() { withdrawn <- a.Withdraw(t.Context(), func(agent.Pod) {}) }()
			n.awaitStatus(web.UID, ambient.NoStatus)
			n.awaitStatus(peer.UID, ambient.NoStatus)
			n.wantFormerWay(web, formerProxy)
			n.wantTalk("withdrawn", own)
			for _, conn := range own {
				_ = conn.Close()
			}
			end()
			if err := <-withdrawn; err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(stood, n.dump()); diff != "" {
				t.Errorf("the host (-before +given back):\n%s", diff)
			}
			n.wantFormerWay(web, formerProxy)
		})
	}
}

// wantTalk tests that connections are open.
func (n *node) wantTalk(when string, open []net.Conn) {
	n.t.Helper()
	for i, conn := range open {
		if err := talk.Say(conn, when); err != nil {
			n.t.Errorf("connection %d, %s: %v", i, when, err)
		}
	}
}

// hasRegard reports whether the host's plan lets what its proxy sends pass another capture.
func (n *node) hasRegard() bool {
	n.t.Helper()
	state, err := n.options.Dataplane.Observe(n.t.Context(), n.options.Host, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Contains((&interception.Plan{Owner: owner, Objects: state.Objects}).String(), "set mark 0x200/0x200")
}

// TestTakeOverOfChangedRules leaves rules that some program has changed, and says what differs.
func TestTakeOverOfChangedRules(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.Numbers, n.options.TakeOver = ambient.BesideIstioNodeNumbers(), readers(t)
	web := n.pod()
	proxyPod, proxy := n.proxy()
	theirs := n.former(upstream.NodeRelease120, upstream.ProgramIPTablesNFT, proxyPod, web)
	upstreamtest.InstallNode(t, theirs)
	sandboxtest.Run(t, theirs.Host, "", "iptables-nft", "-t", "mangle", "-A", "ztunnel-FORWARD", "-j", "ACCEPT")
	stood := n.dump()
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	n.hostErrorIs("another rule, v4 -> accept")
	for line := range strings.Lines(stood) {
		if !strings.Contains(n.dump(), line) {
			t.Errorf("missing %s", line)
		}
	}
}

// TestNumbersInUse captures nothing where something else uses the numbers of the plan, says what
// that is, and leaves that as it is (E20).
func TestNumbersInUse(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ command, want string }{
		"table":    {"ip route add 192.0.2.0/24 dev lo table 101", "table 101 is used by route unicast 192.0.2.0/24 dev lo"},
		"priority": {"ip rule add priority 101 fwmark 0x10000 table 7", "priority 101 is used by policy rule v4"},
		"mark":     {"iptables-nft -t mangle -A PREROUTING -j MARK --set-mark 0x100/0x100", "packet mark 0x100/0x120 is used by ip mangle/PREROUTING"},
		"link":     {"ip link add istioin type veth peer name other", "link istioin is used by an interface of that name"},
		"pattern":  {"ip link add istioin-x type veth peer name other", "the pattern istioin* is used by interface istioin-x"},
		"subnet":   {"ip address add 192.168.0.1/16 dev lo", "subnet 192.168.126.0/30 is used by address 192.168.0.1/16"},
		"port":     {"ip link add tunnel type vxlan id 7 remote 192.0.2.1 dstport 6081", "UDP port 6081 is used by a socket or a tunnel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			n.options.Way, n.options.TakeOver = ambient.WayVXLAN, readers(t)
			web := n.pod()
			proxyPod, _ := n.proxy()
			command := strings.Fields(of.command)
			sandboxtest.Run(t, n.made.Host.Netns.File(), "", command...)
			if name == "port" { // a tunnel has its socket while it is up
				sandboxtest.Run(t, n.made.Host.Netns.File(), "", "ip", "link", "set", "tunnel", "up")
			}
			before := n.dump()
			n.run()
			n.feed <- told(proxyPod, web)
			n.hostErrorIs(of.want)
			n.wantMembers()
			n.mu.Lock()
			err := n.host
			n.mu.Unlock()
			if !errors.Is(err, nodemode.ErrClash) || !strings.HasSuffix(err.Error(), " or capture the pods in their own namespaces (ambient-mode in-pod)") {
				t.Errorf("%v, want ErrClash that ends with what to do", err)
			}
			after := n.dump()
			for line := range strings.Lines(before) {
				if !strings.Contains(after, line) {
					t.Errorf("missing %s", line)
				}
			}
			if strings.Contains(after, "istioout") || strings.Contains(after, "table 102") {
				t.Errorf("the host has parts of the plan with wires:\n%s", after)
			}
		})
	}
}

// TestNumbersOfTheProxyInUse has another program use in the proxy's namespace, or in the host's for
// the next proxy, what the plans need: nothing is written for that proxy (E20).
func TestNumbersOfTheProxyInUse(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		command, want string
		onHost        bool
	}{
		"table of the next proxy": {"ip route add 192.0.2.0/24 dev lo table 104", "table 104 is used by route unicast 192.0.2.0/24 dev lo", true},
		"link of the next proxy":  {"ip link add istioout1 type veth peer name other", "link istioout1 is used by an interface of that name", true},
		"mark":                    {"iptables-nft -t mangle -A OUTPUT -j MARK --set-mark 0x400/0x400", "packet mark 0x400/0xfff is used by", false},
		"route":                   {"ip route add 192.0.2.0/24 dev lo table 100", "table 100 is used by route unicast 192.0.2.0/24 dev lo", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			n.options.TakeOver = readers(t)
			web := n.pod()
			proxyPod, _ := n.proxy()
			in := n.options.Host.File()
			if !of.onHost {
				in = n.places[proxyPod.UID].Netns.File()
			}
			sandboxtest.Run(t, in, "", strings.Fields(of.command)...)
			n.run()
			n.feed <- told(proxyPod, web)
			n.hostErrorIs(of.want)
			n.mu.Lock()
			if !errors.Is(n.host, nodemode.ErrClash) || !errors.Is(n.host, nodemode.ErrProxy) {
				t.Errorf("%v, want ErrClash about the proxy", n.host)
			}
			n.mu.Unlock()
			if after := n.dump(); strings.Contains(after, "istioin") || n.hasRules(proxyPod) {
				t.Errorf("the proxy has rules, or the host has parts of the plan with wires:\n%s", after)
			}
			n.wantMembers()
		})
	}
}

// TestTableIsFilled has another program add a route to a table of the mesh that stands. The agent
// says so, and leaves it alone, and captured pods go on.
func TestTableIsFilled(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	proxyPod, proxy := n.proxy()
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	for _, place := range []struct {
		in    *nodes.Place
		table string
	}{{n.made.Host, "101"}, {n.places[proxyPod.UID], "100"}} {
		route := func(what string) {
			sandboxtest.Run(t, place.in.Netns.File(), "", "ip", "route", what, "198.51.100.0/24", "dev", "lo", "table", place.table)
		}
		route("add")
		n.hostErrorIs("another program has added to a routing table of the mesh: route unicast 198.51.100.0/24 dev lo table " + place.table)
		n.mu.Lock()
		if !errors.Is(n.host, nodemode.ErrClash) {
			t.Errorf("%v, want ErrClash", n.host)
		}
		n.mu.Unlock()
		n.wantWay(web, proxy, captured)
		route("del")
		n.await("no error about the host", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.host == nil
		})
	}
}

// TestClashBesideAProxy has another program use numbers of the mesh while a proxy serves, and its
// successor comes: that takes its place, and the clash is reported until it is over.
func TestClashBesideAProxy(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clashBesideAProxy(t, dataplane)
		})
	}
}

func clashBesideAProxy(t *testing.T, dataplane backend) {
	t.Helper()
	n := newNode(t, dataplane)
	n.options.TakeOver, n.options.SettingsRound = readers(t), 100*time.Millisecond
	web := n.pod()
	former, proxy := n.proxy()
	n.run()
	n.feed <- told(former, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	theirs := func(edit string) {
		sandboxtest.Run(t, n.options.Host.File(), "", "iptables-nft", "-t", "mangle", edit, "OUTPUT", "-j", "MARK", "--set-mark", "0x20/0x20")
	}
	theirs("-A")
	// Before Linux 5.18 the kernel does not remember whose an address is.
	const anew = "address del 192.168.126.1/30 dev istioin\naddress add 192.168.126.1/30 dev istioin\n"
	sandboxtest.Run(t, n.options.Host.File(), anew, "ip", "-batch", "-")
	next, successor := n.proxy()
	n.feed <- ambient.Change{Pods: []ambient.Pod{next}}
	n.eventually("the successor takes connections", n.holds(web, successor, captured))
	n.hostErrorIs("packet mark 0x100/0x120 is used by")
	n.feed <- ambient.Change{Gone: []string{former.UID}}
	theirs("-D")
	n.await("no error about the host", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.host == nil
	})
	n.wantWay(web, successor, captured)
}
