// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
)

// meshOwner is the owner of the links of these tests.
func meshOwner() Owner { return Owner{Name: "mesh-test", Protocol: 200} }

// pair is two namespaces, the second one labelled "proxy", and a link between them.
type pair struct {
	here, there *Socket
	link        interception.Link
}

func newPair(t *testing.T) *pair {
	t.Helper()
	far := newNamespace(t)
	there := kernel.Of(far)
	return &pair{
		here:  dialed(t, kernel.Of(newNamespace(t)), Other{Label: "proxy", File: far, Namespace: there}),
		there: dialed(t, there),
		link:  interception.Link{ID: "a.link", Name: "mesh0", Veth: &interception.Veth{Peer: "peer0", Namespace: "proxy"}, Why: "a link"},
	}
}

func dialed(t *testing.T, in kernel.Namespace, others ...Other) *Socket {
	t.Helper()
	s, err := Dial(in, others...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// prepare prepares a change to a plan of some links.
func prepare(s *Socket, links ...interception.Link) (*Change, error) {
	plan := &interception.Plan{Owner: "mesh-test"}
	for _, l := range links {
		plan.Objects = append(plan.Objects, l)
	}
	return s.Prepare(plan, meshOwner(), Options{})
}

// apply brings the namespace to a plan of some links, and checks that they are there.
func apply(t *testing.T, s *Socket, links ...interception.Link) {
	t.Helper()
	c, err := prepare(s, links...)
	if err == nil {
		err = c.Do(t.Context())
	}
	if err == nil {
		err = c.Settle(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	plan := &interception.Plan{Owner: "mesh-test"}
	for _, l := range links {
		plan.Objects = append(plan.Objects, l)
	}
	if drifts := drifts(t, s, plan); drifts != nil {
		t.Errorf("after Apply: got %v", drifts)
	}
	if again, err := prepare(s, links...); err != nil || len(again.steps)+len(again.stale) > 0 {
		t.Errorf("a second time: got %d steps and %v", len(again.steps)+len(again.stale), err)
	}
}

func drifts(t *testing.T, s *Socket, plan *interception.Plan) []interception.Drift {
	t.Helper()
	objects, deviations, err := s.Observe(meshOwner(), Record{})
	if err != nil {
		t.Fatal(err)
	}
	return interception.Diff(plan, interception.State{Owner: plan.Owner, Objects: objects, Deviations: deviations})
}

func vxlan(remote string) interception.Link {
	return interception.Link{
		ID: "a.link", Name: "mesh0", VXLAN: &interception.VXLAN{VNI: 1000, Remote: netip.MustParseAddr(remote), Port: 4789}, Why: "a link",
	}
}

// hasLinks skips nothing: it reports whether this kernel makes links of the kind, and logs if not.
func hasLinks(t *testing.T, l interception.Link) bool {
	t.Helper()
	err := newSocket(t).hasKind(l)
	if err != nil && !errors.Is(err, interception.ErrUnsupported) {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("not tested, as this kernel cannot do it: %v", err)
	}
	return err == nil
}

// TestTunnel makes a VXLAN tunnel of each family, changes all that the kernel can change, and
// removes it.
func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, ends := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		t.Run(ends[0], func(t *testing.T) {
			t.Parallel()
			first, second := vxlan(ends[0]), vxlan(ends[1])
			if !hasLinks(t, first) {
				return
			}
			s := newSocket(t)
			first.MTU = first.MTUOver(1500)
			apply(t, s, first)
			made := kernelLink(t, s, "mesh0")
			tunnel, is := made.(*netlink.Vxlan)
			if !is || tunnel.VxlanId != 1000 || !tunnel.Group.Equal(net.ParseIP(ends[0])) || tunnel.Port != 4789 || tunnel.Learning ||
				tunnel.Alias != "meshcni mesh-test" || tunnel.Group == nil || !isUp(made) || tunnel.MTU != first.MTU {
				t.Errorf("got %+v", made)
			}
			second.MTU, second.HardwareAddr = 1300, "02:00:00:00:00:09"
			apply(t, s, second)
			changed := kernelLink(t, s, "mesh0")
			if changed.Attrs().Index != made.Attrs().Index {
				t.Error("the link was made again")
			}
			if got, more := (found{}).link(changed); got.VXLAN.Remote != second.VXLAN.Remote || got.MTU != 1300 || got.HardwareAddr != second.HardwareAddr || more != nil {
				t.Errorf("got %+v, %v", got, more)
			}
			apply(t, s)
			if left := linkOf(list(t, s), "mesh0"); left != nil {
				t.Errorf("left behind: %+v", left)
			}
		})
	}
}

func list(t *testing.T, s *Socket) []netlink.Link {
	t.Helper()
	links, err := s.listLinks()
	if err != nil {
		t.Fatal(err)
	}
	return links
}

func kernelLink(t *testing.T, s *Socket, name interception.Interface) netlink.Link {
	t.Helper()
	l := linkOf(list(t, s), name)
	if l == nil {
		t.Fatalf("there is no link %s", name)
	}
	return l
}

// TestLearningIsStopped has another program switch learning on.
func TestLearningIsStopped(t *testing.T) {
	t.Parallel()
	l := vxlan("10.0.0.1")
	if !hasLinks(t, l) {
		return
	}
	s := newSocket(t)
	apply(t, s, l)
	if err := s.changeTunnel(kernelLink(t, s, "mesh0").Attrs().Index, l, true); err != nil {
		t.Fatal(err)
	}
	if got := drifts(t, s, &interception.Plan{Objects: []interception.Object{l}}); len(got) != 1 || !strings.HasSuffix(got[0].Got, "that learns addresses") {
		t.Errorf("got %v", got)
	}
	apply(t, s, l)
}

// TestUndoneTunnel undoes every change of a tunnel.
func TestUndoneTunnel(t *testing.T) {
	t.Parallel()
	first, second := vxlan("10.0.0.1"), vxlan("10.0.0.2")
	if !hasLinks(t, first) {
		return
	}
	s := newSocket(t)
	first.MTU, first.HardwareAddr = 1400, "02:00:00:00:00:01"
	second.MTU, second.HardwareAddr = 1300, "02:00:00:00:00:02"
	apply(t, s, first)
	c, err := prepare(s, second)
	if err == nil {
		err = c.Do(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(c.undo) != 3 {
		t.Errorf("%d changes, want those of MTU, address and remote end", len(c.undo))
	}
	if err := c.Undo(); err != nil {
		t.Fatal(err)
	}
	if got := drifts(t, s, &interception.Plan{Objects: []interception.Object{first}}); got != nil {
		t.Errorf("got %v", got)
	}
}

// TestFixedParameters has differences that the kernel cannot remove: nothing is written, and the
// error says what differs.
func TestFixedParameters(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	change := func(do func(l *interception.Link)) interception.Link {
		l := vxlan("10.0.0.1")
		do(&l)
		return l
	}
	if hasLinks(t, vxlan("10.0.0.1")) {
		apply(t, p.here, vxlan("10.0.0.1"))
		for want, l := range map[string]interception.Link{
			"its VNI is 1000, and the plan wants 7":                             change(func(l *interception.Link) { l.VXLAN.VNI = 7 }),
			"its port is 4789, and the plan wants 7":                            change(func(l *interception.Link) { l.VXLAN.Port = 7 }),
			"its remote end is 10.0.0.1, and fd00::1 of the plan is of another": vxlan("fd00::1"),
			"it is of type vxlan, and the plan wants type veth":                 p.link,
		} {
			refused(t, p.here, l, want)
		}
		apply(t, p.here)
	}
	apply(t, p.here, p.link)
	renamed := p.link
	renamed.Veth = &interception.Veth{Peer: "peer1", Namespace: "proxy"}
	refused(t, p.here, renamed, `its other end is peer0 in the namespace labelled "proxy", and the plan wants peer1 in "proxy"`)
}

// refused checks that a link cannot be prepared, and why.
func refused(t *testing.T, s *Socket, l interception.Link, want string) {
	t.Helper()
	_, err := prepare(s, l)
	var why *interception.ApplyError
	if !errors.As(err, &why) || why.At != "a.link" || !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "another name") {
		t.Errorf("got %v, want EEXIST about the link with %q", err, want)
	}
}

// TestVeth makes a pair into another namespace, repairs what others change, and removes it.
func TestVeth(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.link.MTU = 1400
	apply(t, p.here, p.link)
	near, far := kernelLink(t, p.here, "mesh0"), kernelLink(t, p.there, "peer0")
	if !isUp(near) || !isUp(far) || near.Attrs().MTU != 1400 || far.Attrs().MTU != 1400 || near.Attrs().ParentIndex != far.Attrs().Index {
		t.Errorf("got %+v and %+v", near, far)
	}
	for _, c := range []struct {
		want string
		do   func() error
	}{
		{"whose other end is down", func() error { return netlink.LinkSetDown(far) }},
		{"whose other end has the MTU 1300", func() error { return netlink.LinkSetMTU(far, 1300) }},
	} {
		p.changeThere(t, c.do)
		if got := drifts(t, p.here, p.plan()); len(got) != 1 || got[0].Kind != interception.DriftChanged || !strings.Contains(got[0].Got, c.want) {
			t.Errorf("got %v, want %s", got, c.want)
		}
		apply(t, p.here, p.link)
	}
	apply(t, p.here)
	if left := linkOf(list(t, p.there), "peer0"); left != nil {
		t.Errorf("left behind: %+v", left)
	}
}

func (p *pair) plan() *interception.Plan {
	return &interception.Plan{Owner: "mesh-test", Objects: []interception.Object{p.link}}
}

// changeThere changes something in the other namespace, as another program.
func (p *pair) changeThere(t *testing.T, do func() error) {
	t.Helper()
	if err := p.there.namespace.Change("a test", do); err != nil {
		t.Fatal(err)
	}
}

// TestVethRenamed has the other end renamed: only a new pair has the right name.
func TestVethRenamed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	apply(t, p.here, p.link)
	far := kernelLink(t, p.there, "peer0")
	p.changeThere(t, func() error { return netlink.LinkSetDown(far) })
	p.changeThere(t, func() error { return netlink.LinkSetName(far, "moved") })
	if got := drifts(t, p.here, p.plan()); len(got) != 1 || !strings.Contains(got[0].Got, "veth peer moved in proxy") {
		t.Errorf("got %v", got)
	}
	refused(t, p.here, p.link, "its other end is moved")
}

// TestVethAway looks at a pair whose other end is in a namespace that has no label.
func TestVethAway(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	apply(t, p.here, p.link)
	unlabelled := dialed(t, p.here.namespace)
	got := drifts(t, unlabelled, &interception.Plan{Objects: []interception.Object{p.link}})
	if len(got) != 1 || got[0].Got != "link mesh0 veth, whose other end is in no namespace that the caller has labelled" {
		t.Errorf("got %v", got)
	}
	if _, err := prepare(unlabelled, p.link); !errors.Is(err, unix.EEXIST) {
		t.Errorf("got %v, want EEXIST", err)
	}
	other := newPair(t)
	elsewhere := dialed(t, p.here.namespace, other.here.others...)
	if _, err := prepare(elsewhere, p.link); !errors.Is(err, unix.EEXIST) {
		t.Errorf("another namespace: got %v, want EEXIST", err)
	}
}

// TestVethNameIsTaken has an interface of that name in the other namespace.
func TestVethNameIsTaken(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.changeThere(t, func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "peer0"}}) })
	refused(t, p.here, p.link, `interface peer0 is there in the namespace labelled "proxy"`)
}

// TestMissingKind prepares a link of a kind that this kernel may lack: then the error names it, and
// nothing has been made, as nothing has if the kernel has the kind.
func TestMissingKind(t *testing.T) {
	t.Parallel()
	for _, l := range []interception.Link{
		{ID: "a.link", Name: "mesh0"},
		{ID: "a.link", Name: "mesh0", Geneve: &interception.Geneve{VNI: 1, Remote: netip.MustParseAddr("10.0.0.1"), Port: 6081}},
		vxlan("10.0.0.1"),
	} {
		s := newSocket(t)
		c, err := prepare(s, l)
		created := s.namespace.Change("a test", func() error { return netlink.LinkAdd(meshOwner().newLink(l)) })
		switch {
		case errors.Is(created, unix.EOPNOTSUPP):
			var why *interception.ApplyError
			if !errors.As(err, &why) || why.At != "a.link" || !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), kindOf(l)) {
				t.Errorf("%s: got %v, want ErrUnsupported with the kind", kindOf(l), err)
			}
		case created != nil || err != nil || len(c.found.links) != 1:
			t.Errorf("%s: got %v and %v", kindOf(l), err, created)
		}
	}
}
