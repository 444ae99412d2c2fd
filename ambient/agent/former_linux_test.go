// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// preferring returns a dataplane that writes by one backend, and finds what the other has written,
// as a node's program makes it.
func preferring(t *testing.T, name string, flavour iptables.Flavour) *choice.Dataplane {
	t.Helper()
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{Flavour: flavour})
	if err != nil {
		t.Fatal(err)
	}
	if candidates[0].Name != name {
		slices.Reverse(candidates)
	}
	chosen, err := choice.New(candidates...)
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

// TestChangeOfBackend has the node prefer another backend than when a pod was enrolled. The next
// agent writes the rules anew, in the pod and on the host, and none of the former stay. Meanwhile
// new connections are opened, each of which is captured, and older ones live on (E11).
func TestChangeOfBackend(t *testing.T) {
	t.Parallel()
	for _, flavour := range []iptables.Flavour{iptables.NFT, iptables.Legacy} {
		for _, names := range [][2]string{{choice.NFTables, choice.IPTables}, {choice.IPTables, choice.NFTables}} {
			t.Run(fmt.Sprintf("%s to %s (%s)", names[0], names[1], flavour), func(t *testing.T) {
				t.Parallel()
				want := map[string]string{choice.NFTables: "nftables", choice.IPTables: "iptables-" + string(flavour)}[names[1]]
				changeBackend(t, preferring(t, names[0], flavour), preferring(t, names[1], flavour), want)
			})
		}
	}
}

func changeBackend(t *testing.T, former, latter hostDataplane, want string) {
	t.Helper()
	n := newNode(t)
	pod := n.patient("a")
	use := func(d hostDataplane) (a *Agent, end func()) {
		n.dataplane, n.options.Dataplane, n.options.Sets = d, d, d
		return n.run()
	}
	a, end := use(former)
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitSelection(a, "a")
	living, before := n.open(pod), n.members()
	end() // the proxy goes on
	made := n.call(map[string]*dataplanetest.Pod{"a": pod}, 1)
	a, _ = use(latter)
	n.feed <- told(object("a"))
	n.awaitSelection(a, "a")
	inside, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	for name, in := range map[string]*interception.Netns{"the pod": inside, "the host": n.options.Host} {
		eventually(t, func() error {
			if has := standing(t, in); !slices.Equal(has, []string{want}) {
				return fmt.Errorf("in %s are rules by %q, want those by %s alone", name, has, want)
			}
			return nil
		})
	}
	if made() == 0 {
		t.Error("no connection was made")
	}
	n.exchange(living)
	if differs(n.recorded("a").Plan, n.state(pod)) {
		t.Error("the pod has not the rules of its plan")
	}
	if diff := cmp.Diff(before, n.members()); diff != "" {
		t.Errorf("members of the host's sets (-before +after):\n%s", diff)
	}
	if err := living.Close(); err != nil { // else the pod would wait for its end
		t.Error(err)
	}
	n.feed <- told(optedOut("a"))
	n.awaitRest(a)
	if has := standing(t, inside); has != nil {
		t.Errorf("left by %q", has)
	}
}

// standing returns the backends by which the owner has rules in a namespace, as programs list them.
func standing(t *testing.T, in *interception.Netns) (names []string) {
	t.Helper()
	for _, flavour := range []string{"iptables-legacy", "iptables-nft"} {
		for _, program := range []string{flavour + "-save", strings.Replace(flavour, "ip", "ip6", 1) + "-save"} {
			if strings.Contains(sandboxtest.Run(t, in.File(), "", program), "TEST-AMBIENT_") && !slices.Contains(names, flavour) {
				names = append(names, flavour)
			}
		}
	}
	if strings.Contains(sandboxtest.Run(t, in.File(), "", "nft", "list", "tables"), "inet "+string(owner)) {
		names = append(names, "nftables")
	}
	return names
}
