// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"testing"
)

func TestMTUOver(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for name, c := range map[string]struct {
		link Link
		want int
	}{
		"GENEVE over IPv4": {Link{Geneve: &Geneve{Remote: v4}}, 1450},
		"GENEVE over IPv6": {Link{Geneve: &Geneve{Remote: v6}}, 1430},
		"VXLAN over IPv4":  {Link{VXLAN: &VXLAN{Remote: v4}}, 1450},
		"VXLAN over IPv6":  {Link{VXLAN: &VXLAN{Remote: v6}}, 1430},
		"a pair":           {Link{Veth: &Veth{}}, 1500},
		"a dummy":          {Link{}, 1500},
	} {
		if got := c.link.MTUOver(1500); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// TestDiffOfLinks compares only the parameters that the plan sets.
func TestDiffOfLinks(t *testing.T) {
	t.Parallel()
	plan := func(l Link) *Plan { return &Plan{Owner: "test-mesh", Objects: []Object{l}} }
	far := &VXLAN{VNI: 7, Remote: netip.MustParseAddr("10.0.0.1"), Port: 4789}
	seen := Link{Name: "tun0", VXLAN: far, MTU: 1500, HardwareAddr: "02:00:00:00:00:01"}
	for name, c := range map[string]struct {
		wanted Link
		got    []string
	}{
		"nothing":              {Link{Name: "tun0", VXLAN: far}, nil},
		"the same":             {seen, nil},
		"another MTU":          {Link{Name: "tun0", VXLAN: far, MTU: 1450}, []string{"tun0 vxlan vni 7 remote 10.0.0.1:4789 mtu 1500"}},
		"another address":      {Link{Name: "tun0", VXLAN: far, HardwareAddr: "02:00:00:00:00:00"}, []string{"tun0 vxlan vni 7 remote 10.0.0.1:4789 hardware address 02:00:00:00:00:01"}},
		"another kind of link": {Link{Name: "tun0"}, []string{"tun0 vxlan vni 7 remote 10.0.0.1:4789"}},
	} {
		var got []string
		for _, d := range Diff(plan(c.wanted), State{Objects: []Object{seen}}) {
			if d.Kind != DriftChanged {
				t.Errorf("%s: got %v", name, d)
			}
			got = append(got, d.Got)
		}
		for i := range c.got {
			c.got[i] = "link " + c.got[i]
		}
		if !slices.Equal(got, c.got) {
			t.Errorf("%s: got %q, want %q", name, got, c.got)
		}
		deviating := State{Deviations: []Deviation{{At: "links", Object: seen, Got: "down"}}}
		if drifts := Diff(plan(c.wanted), deviating); len(drifts) != 1 || drifts[0].Kind != DriftChanged {
			t.Errorf("%s, down: got %v", name, drifts)
		}
	}
}

func TestNetnsWith(t *testing.T) {
	t.Parallel()
	here, there := StandInNetns("here", NetnsID{Inode: 1}), StandInNetns("there", NetnsID{Inode: 2})
	closed := StandInNetns("closed", NetnsID{Inode: 3})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	plan := &Plan{Objects: []Object{Link{ID: "a.link", Name: "in0", Veth: &Veth{Peer: "in1", Namespace: "proxy"}, Why: "a link"}}}
	both := here.With("proxy", there).With("another", closed)
	for name, c := range map[string]struct {
		ns   *Netns
		want error
	}{
		"labelled":       {both, nil},
		"not labelled":   {here, ErrNotNetns},
		"another label":  {here.With("another", there), ErrNotNetns},
		"closed":         {here.With("proxy", closed), os.ErrClosed},
		"no namespace":   {here.With("proxy", nil), ErrNotNetns},
		"its own":        {here.With("proxy", here), ErrNotNetns},
		"replaced":       {both.With("proxy", closed), fs.ErrClosed},
		"not by a later": {both, nil},
	} {
		err := c.ns.CheckLabels(plan)
		var about *ApplyError
		if !errors.Is(err, c.want) || c.want != nil && (!errors.As(err, &about) || about.At != "a.link") {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	var labels []string
	for label := range both.Labelled() {
		labels = append(labels, label)
	}
	if !slices.Equal(labels, []string{"another", "proxy"}) {
		t.Errorf("got the labels %q", labels)
	}
	if both.ID() != here.ID() || (*Netns)(nil).With("proxy", there) != nil {
		t.Error("a handle stands for another namespace")
	}
}
