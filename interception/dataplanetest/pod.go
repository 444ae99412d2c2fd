// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// eth0 is the interface at both ends of the wire.
const eth0 = "eth0"

// PodOptions describe a pod. The zero value is a pod of both families without listeners.
type PodOptions struct {
	// Addresses are eth0's, each a host route of its own, as many CNI plugins do: 10.244.1.10 and
	// fd00:10:244:1::a when empty.
	Addresses []netip.Addr
	// Ports are those on which the pod listens, TCP and UDP, at all addresses of both families.
	// Their listeners belong to root.
	Ports []uint16
	// ProxyPorts are ports whose listeners belong to the proxy's user and group, ProxyUID and
	// ProxyGID: the owner of a socket may decide about the way of its answers. They are
	// transparent, as TPROXY requires.
	ProxyPorts         []uint16
	ProxyUID, ProxyGID uint32
	// ProxyMark is the mark of the proxy's listeners and so of what they answer, also on the
	// connections that they accept (socket(7), SO_MARK).
	ProxyMark uint32
	// MachineLink names a further link of the pod, which leads to a machine with the addresses of
	// [Machine]. The pod forwards between it and eth0. If it is empty, there is no machine.
	MachineLink string
	// OwnUsers makes a user namespace for the pod, to which its network namespace belongs, as the
	// runtime does for a pod with hostUsers: false.
	OwnUsers bool
	// DropAfter is how long a sender waits before it checks in the kernel whether packets are still
	// on their way ([Pod.Settle]); zero means 750ms. If there are none, the probe counts as
	// dropped, so that a short time is as good as a long one unless a process of the dataplane
	// answers. TCP repeats an unanswered SYN after a second: a longer time could hide the loss of
	// the first one.
	DropAfter time.Duration
	// RelayedWithin is how long a process between sender and listener, such as a proxy that relays,
	// may take until what it was given over TCP arrives; DropAfter if that is longer. The kernel does
	// not know what such a process holds. A SYN without an answer is as lost as without it.
	RelayedWithin time.Duration
}

// Machine returns the addresses of the machine at [PodOptions].MachineLink, to which elsewhere has
// routes. The link's own addresses are next to them.
func Machine() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.0.2.2/24"), netip.MustParsePrefix("fd10:0:2::2/64")}
}

// Pod is a network namespace that represents a pod. Its methods are safe for concurrent use.
type Pod struct {
	network *network
	options PodOptions
}

// NewPod creates a pod for a test, and removes it at the test's end. It fails the test if it cannot
// create one, most often for lack of privileges: call [RunTests] from TestMain. It skips the test
// on systems other than Linux, and if the proxy's user does not exist ([ErrNeedsSecondUID]).
func NewPod(t testing.TB, o PodOptions) *Pod {
	t.Helper()
	p, err := openPod(t.Context(), t.TempDir(), o)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skipf("real packets need Linux: %v", err)
	case errors.Is(err, ErrNeedsSecondUID):
		t.Skip(err)
	case err != nil:
		t.Fatalf("%v; does TestMain call dataplanetest.RunTests?", err)
	}
	t.Cleanup(func() {
		if err := p.network.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// openPod creates a pod, with its two namespaces mounted in directory.
func openPod(ctx context.Context, directory string, o PodOptions) (*Pod, error) {
	if len(o.Addresses) == 0 {
		o.Addresses = []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::a")}
	}
	o.DropAfter = cmp.Or(o.DropAfter, 750*time.Millisecond)
	n, err := openNetwork(ctx, directory, o)
	if err != nil {
		return nil, fmt.Errorf("make pod: %w", err)
	}
	return &Pod{network: n, options: o}, nil
}

// Path returns where the pod's network namespace is mounted, like the CNI_NETNS of a real pod.
func (p *Pod) Path() string { return p.network.path() }

// File returns the pod's network namespace, open. The pod closes it.
func (p *Pod) File() *os.File { return p.network.file() }

// Do runs f on a thread inside the pod's network namespace: sockets and processes that f opens and
// starts belong to the pod. Goroutines that f starts do not run there.
func (p *Pod) Do(f func() error) error { return p.network.do(f) }

// AddAddress adds an address to an interface of the pod, "lo" or "eth0", such as ::6/128 on lo. The
// address is usable when it returns.
func (p *Pod) AddAddress(ctx context.Context, name string, address netip.Prefix) error {
	return p.network.addAddress(ctx, name, address)
}

// Apply makes a dataplane apply a plan to the pod, and waits until the plan's addresses are usable,
// which takes a moment for IPv6.
func (p *Pod) Apply(ctx context.Context, d interception.Dataplane, plan *interception.Plan) (err error) {
	ns, err := interception.OpenNetns(p.Path(), interception.NetnsOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	if err := d.Apply(ctx, ns, plan); err != nil {
		return err
	}
	for address := range interception.ObjectsOf[interception.Address](plan) {
		if err := p.network.awaitAddress(ctx, address.Prefix.Addr()); err != nil {
			return fmt.Errorf("wait for address %s: %w", address.Prefix, err)
		}
	}
	return nil
}

// links returns the pod's interfaces, with their addresses in the kernel's order.
func (p *Pod) links() ([]trace.Link, error) {
	links := []trace.Link{{Name: "lo"}, {Name: eth0}}
	if name := p.options.MachineLink; name != "" {
		links = append(links, trace.Link{Name: interception.Interface(name)})
	}
	err := p.Do(func() error {
		for i, link := range links {
			found, err := net.InterfaceByName(string(link.Name))
			if err != nil {
				return err
			}
			addresses, err := found.Addrs()
			if err != nil {
				return err
			}
			for _, address := range addresses {
				prefix, err := netip.ParsePrefix(address.String())
				if err != nil {
					return err
				}
				links[i].Addresses = append(links[i].Addresses, prefix)
			}
		}
		return nil
	})
	return links, err
}

// Send sends one probe and observes where it ends. The fate of the probe is never an error; errors
// are [ErrProbe], [ErrNeedsSecondUID], the context's, and failures of the harness itself.
func (p *Pod) Send(ctx context.Context, probe Probe) (Observation, error) {
	return p.send(ctx, probe, p.options.DropAfter)
}

func (p *Pod) send(ctx context.Context, probe Probe, silence time.Duration) (Observation, error) {
	err := probe.validate()
	if err != nil {
		return Observation{}, err
	}
	o, err := p.network.send(ctx, probe, silence)
	if err != nil {
		return Observation{}, fmt.Errorf("send probe: %s: %w", probe, err)
	}
	return o, nil
}

// RunTests runs a package's tests in namespaces of their own, where pods need no root and the host
// is out of reach, and returns the exit code for os.Exit:
//
//	func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }
//
// If the system forbids that to its users, it fails and prints the setting's name and the command
// that changes it. On systems other than Linux the tests run directly, and [NewPod] skips.
func RunTests(m *testing.M) int { return sandbox.RunTests(m) }

// Inject sends one raw packet, with any flags and from any port, and returns its source. It belongs
// to no connection: its receiver may answer, but no socket gets the answer. The pod's rules and
// listeners show where it ends. Packets from elsewhere go to the pod, whatever their destination.
//
// The fate of the packet is never an error, unless no packet leaves at all, for lack of a route or
// a source: that is a syscall.Errno. Other errors are [ErrProbe], for a packet with a flow, and
// [ErrNeedsSecondUID].
func (p *Pod) Inject(packet trace.Packet) (src netip.AddrPort, err error) {
	if packet.Flow != nil {
		return src, fmt.Errorf("inject packet: %w: %s has a flow; send what leaves one", ErrProbe, packet)
	}
	if src, err = p.network.inject(packet); err != nil {
		err = fmt.Errorf("inject packet: %s: %w", packet, err)
	}
	return src, err
}

// Settle waits until the kernel has delivered every packet that was sent before the call, and the
// kernel's own answers to them. A packet that has not arrived by then was dropped. Settle takes no
// fixed time: after each packet on its way it sends one that must arrive, and waits for that.
//
// It does not wait for answers that a process has yet to write, for retransmissions of TCP, and for
// packets that a dataplane holds outside of the kernel's own queues.
func (p *Pod) Settle(ctx context.Context) error {
	if err := p.network.settle(ctx); err != nil {
		return fmt.Errorf("wait for packets on their way: %w", err)
	}
	return nil
}

var (
	// ErrNeedsSecondUID means that a probe's user or group id does not exist here: the tests run in
	// a user namespace with a single id, because their user has no subordinate ids (subuid(5)) or
	// newuidmap(1) is not installed.
	ErrNeedsSecondUID = errors.New("needs a second uid: give this user subordinate ids in /etc/subuid and /etc/subgid, " +
		"and install newuidmap (package uidmap)")
	// ErrProbe means that a [Probe] makes no sense.
	ErrProbe = errors.New("invalid probe")
)
