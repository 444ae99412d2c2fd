// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// TestAddressesOfAnEvent has the feed go on to tell of a former sandbox, then that this has no
// address any more, and then of the present one.
func TestAddressesOfAnEvent(t *testing.T) {
	t.Parallel()
	former, given, next := netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("10.244.1.3"), netip.MustParseAddr("10.244.1.4")
	e := newEntry("web")
	e.pod.Addresses = []netip.Addr{former}
	e.begin(&event{pod: podnetns.Pod{IPs: []netip.Addr{given}}})
	for _, step := range []struct {
		told []netip.Addr
		want netip.Addr
	}{{[]netip.Addr{former}, given}, {nil, given}, {[]netip.Addr{given}, given}, {[]netip.Addr{next}, next}} {
		e.pod.Addresses = step.told
		if got := e.addresses(); !slices.Equal(got, []netip.Addr{step.want}) {
			t.Errorf("told %v: %v, want %s", step.told, got, step.want)
		}
	}
}

// TestSettingsOfAFormerProxy has another program change a setting in the namespace of a proxy, time
// and again, which is then forgotten. A proxy that follows under the same key begins anew.
func TestSettingsOfAFormerProxy(t *testing.T) {
	t.Parallel()
	var s settings
	drifts := []interception.Drift{{At: "sysctls"}}
	for round, want := range []bool{true, false} {
		if may := s.mayHeal("proxy-1", drifts, false, time.Hour); may != want || (s.err() == nil) != want {
			t.Errorf("round %d: may heal %t, %v, want %t", round, may, s.err(), want)
		}
	}
	s.forget("proxy-1")
	if err := s.err(); err != nil {
		t.Errorf("after the proxy: %v", err)
	}
	if !s.mayHeal("proxy-1", drifts, false, time.Hour) {
		t.Error("the settings of the next proxy wait for the former one's round")
	}
}

// wrote tells when an annotation is written.
type wrote chan time.Time

func (w wrote) Annotate(interception.Pod, ambient.Status) { w <- time.Now() }

// TestStatusOfNewPod has a status written at once, and 25 ms later while the plugin waits for the
// pod.
func TestStatusOfNewPod(t *testing.T) {
	t.Parallel()
	for want, waiting := range map[time.Duration][]*event{0: nil, 25 * time.Millisecond: {{}}} {
		synctest.Test(t, func(t *testing.T) {
			written := make(wrote, 2)
			a, e := &Agent{options: Options{Annotator: written}}, newEntry("web")
			e.waiting = waiting
			begin := time.Now()
			a.annotate(e, ambient.StatusEnabled)
			<-time.After(time.Minute)
			if after := (<-written).Sub(begin); after != want || len(written) > 0 {
				t.Errorf("written after %s, want %s, and %d times more", after, want, len(written))
			}
		})
	}
}

// TestWithoutProbes has an agent that cannot send packets, since it has no namespace, and one that
// does not, since it retires.
func TestWithoutProbes(t *testing.T) {
	t.Parallel()
	for retiring, want := range map[bool]int{false: 1, true: 0} {
		told := 0
		a := &Agent{options: Options{Retiring: retiring, WithoutProbes: func(error) { told++ }}}
		a.host.o, a.host.proxies = &a.options, []*proxy{{}}
		a.openProbes()
		if _, _, seen := a.host.marked(netip.MustParseAddr("10.244.0.5")); told != want || seen || a.host.probes.close() != nil {
			t.Errorf("retiring %t: without probes, of which the agent tells %d times, marks are seen: %t", retiring, told, seen)
		}
	}
}
