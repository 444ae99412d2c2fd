// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(RunTests(m)) }

// Ports of the pods in these tests.
const (
	outbound = 15001
	inbound  = 15006
	dns      = 15053
	app      = 8080
)

// proxy is the proxy's user.
const proxy = 1337

func newPod(t *testing.T) *Pod {
	t.Helper()
	return NewPod(t, PodOptions{Ports: []uint16{outbound, inbound, dns, app}})
}

// program loads an nft script into the pod.
func (p *Pod) program(t *testing.T, script string) {
	t.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skipf("the harness is tested with rules of another tool's: %v; run: sudo apt-get install nftables", err)
	}
	if err := p.Do(func() error {
		command := exec.CommandContext(t.Context(), nft, "-f", "-")
		command.Stdin = strings.NewReader(script)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Logf("nft: %s", output)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// expectation is a probe and its expected result. Peer is compared only if set, and without its
// port.
type expectation struct {
	name  string
	probe Probe
	want  Observation
}

// check sends all probes at once. If there is a single id, a probe of another user has to be
// refused.
func (p *Pod) check(t *testing.T, expectations []expectation) {
	t.Helper()
	info, err := sandbox.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	defer group.Wait()
	for _, e := range expectations {
		group.Go(func() {
			got, err := p.Send(t.Context(), e.probe)
			if info.SingleID && (e.probe.UID != 0 || e.probe.GID != 0) {
				if !errors.Is(err, ErrNeedsSecondUID) {
					t.Errorf("%s: %s: %v, %v, want %v", e.name, e.probe, got, err, ErrNeedsSecondUID)
				}
				return
			}
			if !e.want.Peer.IsValid() {
				got.Peer = netip.AddrPort{}
			} else {
				got.Peer = netip.AddrPortFrom(got.Peer.Addr(), 0)
			}
			if got != e.want || err != nil {
				t.Errorf("%s: %s\ngot  %v, %v\nwant %v", e.name, e.probe, got, err, e.want)
			}
		})
	}
}

// acceptedAt expects a listener to see the probe as local.
func acceptedAt(place Place, local string) Observation {
	address := netip.MustParseAddrPort(local)
	return Observation{Verdict: Accepted, At: place, Port: address.Port(), LocalAddr: address, Answered: true}
}

// redirected expects a listener in the pod to see the probe as local, and to learn where it was
// going.
func redirected(local, original string) Observation {
	o := acceptedAt(InPod, local)
	o.OriginalDst = netip.MustParseAddrPort(original)
	return o
}

func from(o Observation, peer string) Observation {
	o.Peer = netip.AddrPortFrom(netip.MustParseAddr(peer), 0)
	return o
}

func to(address string) Probe { return Probe{Dst: netip.MustParseAddrPort(address)} }

func (p Probe) by(uid, gid uint32) Probe { p.UID, p.GID = uid, gid; return p }

func (p Probe) at(src string) Probe { p.Src = netip.MustParseAddr(src); return p }

func (p Probe) outside() Probe { p.From = Elsewhere; return p }

func (p Probe) udp() Probe { p.Protocol = UDP; return p }
