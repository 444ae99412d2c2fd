// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

var kills = flag.Int("kills", 8, "how many agents are killed during a change of proxies by nftables, and a quarter of it by each flavour of iptables")

// life is what an agent that is killed is told.
type life struct {
	Backend, State string
	Roots          podnetns.Roots
	Feed           ambient.Change
	Refuses        bool // the kernel refuses a proxy's plan
}

// TestKilled kills agents (SIGKILL) at random instants: in odd rounds of a change of proxies, in
// even ones after the former proxy's pod has gone. New connections then go to one of both proxies,
// and the agent that follows finishes what was begun.
func TestKilled(t *testing.T) {
	t.Parallel()
	if task, is := victim.Task(); is {
		beKilled(t, task)
		return
	}
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds, longest := *kills, 100*time.Millisecond
			if strings.HasPrefix(name, "iptables") { // and programs run
				rounds, longest = *kills/4, time.Second
			}
			n := newNode(t, dataplane)
			web := n.pod()
			var pods [2]ambient.Pod
			var proxies [2]*nodes.Proxy
			for i := range pods {
				pods[i], proxies[i] = n.proxy()
			}
			created := pods[1].Created
			newest := func(round int) int { return (round + 1) / 2 % 2 }
			turn := func(round int) ambient.Change {
				pods[newest(round)].Created = created.Add(time.Duration(round+1) * time.Second)
				if round%2 == 0 {
					return told(pods[newest(round)], web)
				}
				return told(pods[0], pods[1], web)
			}
			n.follow(turn(0), web, proxies[0], 1)
			for round := 1; round <= rounds; round++ {
				n.kill(life{Backend: name, State: n.options.State, Roots: n.made.Roots(), Feed: turn(round)}, time.Duration(rand.Int64N(int64(longest))))
				for _, to := range families {
					if by := n.takers(web, to, proxies[:]...); by != 1 {
						t.Errorf("round %d: %d proxies have taken a connection over %s, want one", round, by, to)
					}
				}
				stays := round%2 == 1
				n.follow(turn(round), web, proxies[newest(round)], map[bool]int{false: 1, true: 2}[stays])
				if stays && !n.hasRules(pods[1-newest(round)]) {
					t.Errorf("round %d: the former proxy has no rules, and may have connections", round)
				}
			}
		})
	}
}

// TestKilledWhileAProxyIsRefused kills agents (SIGKILL) at random instants while they introduce a
// proxy, which cannot have its rules, and take it back. The former proxy takes new connections, and
// once the refused one has gone, the next agent leaves the host as it was. Until rules are applied
// again, the owner's record may list settings of links that are gone.
func TestKilledWhileAProxyIsRefused(t *testing.T) {
	t.Parallel()
	if task, is := victim.Task(); is {
		beKilled(t, task)
		return
	}
	const rounds, longest = 10, 200 * time.Millisecond
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	former, proxy := n.proxy()
	next, _ := n.proxy()
	n.follow(told(former, web), web, proxy, 1)
	noted := regexp.MustCompile(`(, )?0x[0-9a-f]{8} comment "sysctl [^"]*"`)
	dump := func() string { return noted.ReplaceAllString(n.dump(), "") }
	stood := dump()
	for round := range rounds {
		n.kill(life{Backend: "nftables", State: n.options.State, Roots: n.made.Roots(), Feed: told(former, next, web), Refuses: true},
			time.Duration(rand.Int64N(int64(longest))))
		for _, to := range families {
			if n.takers(web, to, proxy) != 1 {
				t.Errorf("round %d: the former proxy has not taken a connection over %s", round, to)
			}
		}
		_, end := n.run()
		n.feed <- told(former, web)
		n.eventually("the host is as it was", func() bool { return dump() == stood })
		n.wantWay(web, proxy, captured)
		end()
	}
}

// takers makes a connection and returns how many of the proxies have taken it; 0 if it fails.
func (n *node) takers(from ambient.Pod, family interception.Family, proxies ...*nodes.Proxy) (takers int) {
	for _, proxy := range proxies {
		proxy.Takings() // forget
	}
	to := *n.remote
	to.Addresses = nil
	for _, address := range n.remote.Addresses {
		if interception.FamilyOf(address) == family {
			to.Addresses = append(to.Addresses, address)
		}
	}
	if got, err := n.connect(n.places[from.UID], &to, nil); err != nil || got == refused {
		n.t.Errorf("a connection: way %d, %v", got, err)
		return 0
	}
	for _, proxy := range proxies {
		takers += len(proxy.Takings())
	}
	return takers
}

// follow runs an agent until a proxy takes new connections, and that many proxies have interfaces.
func (n *node) follow(feed ambient.Change, web ambient.Pod, proxy *nodes.Proxy, wired int) {
	n.t.Helper()
	a, end := n.run()
	defer end()
	n.feed <- feed
	n.eventually("the newer proxy takes connections", n.holds(web, proxy, captured))
	n.eventually("as many proxies as should have interfaces", func() bool {
		return strings.Count(n.dump(), "link istio") == 2*wired && a.Status().Proxy.Connections == 1
	})
}

// kill starts an agent and kills it.
func (n *node) kill(l life, instant time.Duration) {
	n.t.Helper()
	task, err := json.Marshal(l)
	if err != nil {
		n.t.Fatal(err)
	}
	process, err := victim.Start(n.t.Context(), n.t.Name(), string(task))
	if err != nil {
		n.t.Fatal(err)
	}
	end, err := process.Run(victim.Ending{When: victim.After(instant)})
	if err != nil || !end.Killed {
		n.t.Fatalf("killed after %s: %+v, %v", instant, end, err)
	}
}

// beKilled runs an agent.
func beKilled(t *testing.T, task string) {
	t.Helper()
	var l life
	if err := json.Unmarshal([]byte(task), &l); err != nil {
		t.Fatal(err)
	}
	host, err := interception.HostNetns(interception.NetnsOptions{ProcRoot: l.Roots.Proc})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, feed: make(chan ambient.Change), changed: make(chan struct{}), statuses: map[string][]ambient.Status{}}
	dataplane := backends(t)[l.Backend]
	if l.Refuses {
		refuses := &meddled{backend: dataplane, meddle: obstacles()["a kernel without TPROXY"].meddle(n)}
		refuses.armed.Store(true)
		dataplane = refuses
	}
	n.options = n.settings(dataplane, l.Roots, host)
	n.options.State = l.State
	if err := victim.Serve(func() error {
		a, err := nodemode.New(n.options)
		if err != nil {
			return err
		}
		go func() { n.feed <- l.Feed }()
		return a.Run(context.Background())
	}); err != nil {
		t.Fatal(err)
	}
}
