// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// unruled is the way from a node without any rule.
func unruled(b *testing.B) journey {
	b.Helper()
	both := nodes.New(b)
	return newJourney(b, noRules, both[0].NewPod("0002", interception.IPv4), both[1].NewPod("0003", interception.IPv4))
}

// trackedOnly is the way from a node that tracks connections, and none of whose rules asks more.
func trackedOnly(b *testing.B, backend hostBackend) journey {
	b.Helper()
	return besideOthers(b, backend, tracked, filterInvalid)
}

// translatedOnly is the way from a node that tracks connections and may translate them, as
// kube-proxy's does.
func translatedOnly(b *testing.B, backend hostBackend) journey {
	b.Helper()
	return besideOthers(b, backend, translated, translations)
}

// routedOnly is the way from a node with a policy rule for a mark that no packet has: the kernel
// then walks all policy rules for each route, and looks into the local table and the main one.
func routedOnly(b *testing.B, backend hostBackend) journey {
	b.Helper()
	return besideOthers(b, backend, routed, unusedPolicyRule)
}

// neededOnly is the way from a node that has all three, and captures nothing.
func neededOnly(b *testing.B, backend hostBackend) journey {
	b.Helper()
	return besideOthers(b, backend, needed, func(b *interception.Builder) {
		unusedPolicyRule(b)
		translations(b)
	})
}

func unusedPolicyRule(b *interception.Builder) {
	b.PolicyRule(interception.PolicyRule{
		ID: "rule", Family: interception.IPv4, Mark: interception.WholeMark(7), Table: 7, Priority: 7, Why: "for no packet",
	})
}

func translations(b *interception.Builder) {
	filterInvalid(b)
	for _, hook := range []interception.Hook{interception.Prerouting, interception.Postrouting} {
		nat := b.NAT(interception.ChainName(hook.String()))
		nat.Entry(hook, interception.Match{}, "translations")
		service := interception.Match{Dst: interception.Is(interception.Prefixes(netip.MustParsePrefix("10.96.0.0/16")))}
		nat.Do(interception.RuleID(hook.String()), service, interception.Accept{}, "the addresses of services")
	}
}

func filterInvalid(b *interception.Builder) {
	filter := b.Filter("filter")
	filter.Entry(interception.Forward, interception.Match{}, "what is forwarded")
	filter.Do("invalid", interception.Match{State: interception.Is(interception.StateInvalid)}, interception.Drop{}, "of no connection")
}

// besideOthers is the way from a node that has rules of other programs alone.
func besideOthers(b *testing.B, backend hostBackend, name string, rules func(*interception.Builder)) journey {
	b.Helper()
	both := nodes.New(b)
	plan, err := interception.Build("test-others", rules)
	if err != nil {
		b.Fatal(err)
	}
	install(b, backend, both[0].Host.Netns, plan)
	return newJourney(b, name, both[0].NewPod("0002", interception.IPv4), both[1].NewPod("0003", interception.IPv4))
}

// captured are the ways from a node that captures for a proxy in a pod of its own: of a pod of the
// mesh and, over veth, of another.
func captured(b *testing.B, backend hostBackend, way ambient.Way, size int) []journey {
	b.Helper()
	both := nodes.New(b)
	pod := func(node int, uid string) *nodes.Place { return both[node].NewPod(uid, interception.IPv4) }
	proxy, meshed, other, remote, host := pod(0, "0001"), pod(0, "0002"), pod(0, "0003"), pod(1, "0004"), both[0].Host
	roomForPorts(b, proxy, 40000)
	proxy.StartProxy(b)
	where, numbers, facts := proxyAt(proxy, way), ambient.IstioNodeNumbers(), interception.Facts{}
	onNode, err := ambient.NodePlan(where, numbers, facts, "test-ambient")
	if err != nil {
		b.Fatal(err)
	}
	ofProxy, err := ambient.ProxyPlan(where, numbers, facts, "test-ambient")
	if err != nil {
		b.Fatal(err)
	}
	install(b, backend, host.Netns.With("first", proxy.Netns), onNode)
	install(b, backend, proxy.Netns, ofProxy)
	fill(b, backend, host, ambient.MeshedSet(interception.IPv4), meshed, size)
	if way == ambient.WayVXLAN {
		return []journey{newJourney(b, sized(overVXLAN, size), meshed, remote)}
	}
	return []journey{newJourney(b, sized(overVeth, size), meshed, remote), newJourney(b, sized(notMeshed, size), other, pod(1, "0005"))}
}

// redirected is the way from a pod whose proxy listens in the pod's own namespace.
func redirected(b *testing.B, backend hostBackend, size int) journey {
	b.Helper()
	both := nodes.New(b)
	pod, remote := both[0].NewPod("0002", interception.IPv4), both[1].NewPod("0003", interception.IPv4)
	numbers := ambient.IstioNumbers()
	inPodPlan, err := ambient.PodPlan(ambient.DefaultOverrides(false), numbers, interception.Facts{}, "test-ambient")
	if err != nil {
		b.Fatal(err)
	}
	onHost, err := ambient.HostPlan(numbers, interception.Facts{}, "test-ambient")
	if err != nil {
		b.Fatal(err)
	}
	install(b, backend, pod.Netns, inPodPlan)
	install(b, backend, both[0].Host.Netns, onHost)
	fill(b, backend, both[0].Host, ambient.ProbeSet(interception.IPv4), pod, size)
	relayRedirected(b, pod, numbers)
	return newJourney(b, sized(inPod, size), pod, remote)
}

// fill enters a pod in a live set, and as many others as are missing.
func fill(b *testing.B, backend hostBackend, host *nodes.Place, set interception.SetName, pod *nodes.Place, size int) {
	b.Helper()
	members := map[netip.Addr]string{pod.Addresses[0]: "7c1e"}
	for address := netip.MustParseAddr("10.1.0.1"); len(members) < size; address = address.Next() {
		members[address] = "7c1e"
	}
	if err := backend.UpdateSet(b.Context(), host.Netns, "test-ambient", set, interception.SetEdit{Add: members}); err != nil {
		b.Fatal(err)
	}
}

// roomForPorts gives a place 20,000 ports for connections, which no other place of the way uses.
func roomForPorts(b *testing.B, place *nodes.Place, from int) {
	b.Helper()
	if err := namespace.Run(place.Netns.File(), func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", from, from+19999), 0)
	}); err != nil {
		b.Fatal(err)
	}
}

// relayRedirected runs a proxy in a pod, to which rules redirect: it connects to the original
// destination (SO_ORIGINAL_DST) with the proxy's mark.
func relayRedirected(b *testing.B, pod *nodes.Place, numbers ambient.Numbers) {
	b.Helper()
	marked := func(_, _ string, conn syscall.RawConn) error {
		var refused error
		err := conn.Control(func(fd uintptr) {
			refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(numbers.ProxyMark.Value))
		})
		return errors.Join(err, refused)
	}
	accept(b, pod, int(numbers.OutboundPort), &net.ListenConfig{Control: marked}, func(from net.Conn) {
		to, err := originalDestination(from)
		if err != nil {
			return // the client notices
		}
		var onward net.Conn
		if err := namespace.Run(pod.Netns.File(), func() (err error) {
			onward, err = (&net.Dialer{Control: marked}).DialContext(b.Context(), "tcp4", to.String())
			return err
		}); err != nil {
			return // likewise
		}
		defer onward.Close()
		defer context.AfterFunc(b.Context(), func() { _ = errors.Join(onward.Close(), from.Close()) })()
		go func() {
			_, _ = io.Copy(onward, from) // likewise
			if tcp, is := onward.(*net.TCPConn); is {
				_ = tcp.CloseWrite() // likewise
			}
		}()
		_, _ = io.Copy(from, onward) // likewise
	})
}

func originalDestination(conn net.Conn) (to netip.AddrPort, err error) {
	tcp, is := conn.(*net.TCPConn)
	if !is {
		return to, fmt.Errorf("a connection of %s", conn.RemoteAddr().Network())
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return to, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var address *unix.IPv6Mreq // as large as a sockaddr_in
		if address, failed = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); failed == nil {
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(address.Multiaddr[4:8])), binary.BigEndian.Uint16(address.Multiaddr[2:]))
		}
	})
	return to, errors.Join(err, failed)
}
