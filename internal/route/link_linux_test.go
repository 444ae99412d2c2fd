// SPDX-License-Identifier: Apache-2.0

package route

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// TestAddLinkTakesBack makes each call fail by which a link is made: the link is removed.
func TestAddLinkTakesBack(t *testing.T) {
	t.Parallel()
	p, made := newPair(t), false
	for at := 0; !made; at++ {
		c, err := prepare(p.here, p.link)
		if err != nil {
			t.Fatal(err)
		}
		fault := &kerneltest.Fault{Kind: kerneltest.Refused, At: at}
		through := *p.here
		through.namespace = fault.In(p.here.namespace)
		c.socket, c.found.others[0].Namespace = &through, fault.In(p.there.namespace)
		err = c.addLink(p.link)
		if made = len(fault.Calls()) <= at; made {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if err == nil {
			t.Errorf("%s: no error", fault)
		}
		if left, err := c.linkNamed("mesh0"); !errors.Is(err, unix.ENODEV) {
			t.Fatalf("%s: left behind: %v, %v", fault, left, err)
		}
	}
	if far := kernelLink(t, p.there, "peer0"); !isUp(far) {
		t.Errorf("got %+v", far)
	}
}

// TestNewLink checks what the library gets for a link of each kind that plans have.
func TestNewLink(t *testing.T) {
	t.Parallel()
	owner := Owner{Name: "mesh-test", Protocol: 200}
	for _, remote := range []string{"10.0.0.1", "fd00::1"} {
		far := netip.MustParseAddr(remote)
		all := []interception.Link{
			{Name: "mesh0"},
			{Name: "mesh0", MTU: 1400, Geneve: &interception.Geneve{VNI: 1000, Remote: far, Port: 6081}},
			{Name: "mesh0", HardwareAddr: "02:00:00:00:00:01", VXLAN: &interception.VXLAN{VNI: 1000, Remote: far, Port: 4789}},
		}
		for i, l := range all {
			made := owner.newLink(l)
			if a := made.Attrs(); made.Type() != kindOf(l) || a.Group != owner.group() || a.MTU != l.MTU || hardwareAddrOf(made) != l.HardwareAddr {
				t.Errorf("%s: got %s %+v", kindOf(l), made.Type(), made)
			}
			if got, more := (found{}).link(made); !reflect.DeepEqual(got, l) || more != nil {
				t.Errorf("%s: reads back as %+v, %v", kindOf(l), got, more)
			}
			for j, other := range all {
				if fixed := (found{}).fixed(made, other); (fixed == "") != (i == j) {
					t.Errorf("%s as %s: got %q", kindOf(l), kindOf(other), fixed)
				}
			}
		}
	}
}

// attribute encodes an attribute of a message, with padding.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func geneveMessage() []byte {
	data := attribute(unix.IFLA_GENEVE_ID, binary.NativeEndian.AppendUint32(nil, 1000)...)
	data = append(data, attribute(unix.IFLA_GENEVE_REMOTE, 10, 0, 0, 1)...)
	data = append(data, attribute(unix.IFLA_GENEVE_PORT, 0x17, 0xc1)...)
	info := append(attribute(unix.IFLA_INFO_KIND, []byte("geneve\x00")...), attribute(unix.IFLA_INFO_DATA, data...)...)
	m := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(m[4:], 7)
	binary.NativeEndian.PutUint32(m[8:], unix.IFF_UP)
	m = append(m, attribute(unix.IFLA_IFNAME, []byte("mesh0\x00")...)...)
	m = append(m, attribute(unix.IFLA_IFALIAS, []byte("meshcni mesh-test\x00")...)...)
	return append(m, attribute(unix.IFLA_LINKINFO, info...)...)
}

func TestDecodeLink(t *testing.T) {
	t.Parallel()
	l, err := decodeLink(geneveMessage())
	if err != nil {
		t.Fatal(err)
	}
	want := interception.Link{Name: "mesh0", Geneve: &interception.Geneve{VNI: 1000, Remote: netip.MustParseAddr("10.0.0.1"), Port: 6081}}
	if got, more := (found{}).link(l); !reflect.DeepEqual(got, want) || more != nil || l.Attrs().Index != 7 || !isUp(l) || !(Owner{Name: "mesh-test"}).owns(l) {
		t.Errorf("got %+v", l)
	}
}

// TestDecodeLinkOfAnySize has messages in which the library reads past the end of a value.
func TestDecodeLinkOfAnySize(t *testing.T) {
	t.Parallel()
	header := make([]byte, unix.SizeofIfInfomsg)
	for name, m := range map[string][]byte{
		"no header":        {1, 2, 3},
		"a name of 0":      append(header, attribute(unix.IFLA_IFNAME)...),
		"a group of 1":     slices.Clip(append(header, 5, 0, unix.IFLA_GROUP, 0, 1)),
		"a kind of 0":      append(header, attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND)...)...),
		"attributes cut":   append(header, 200, 0, 3, 0),
		"part of a geneve": geneveMessage()[:len(geneveMessage())-6],
	} {
		if l, err := decodeLink(m); err == nil {
			t.Errorf("%s: got %+v, want an error", name, l)
		}
	}
}

// TestUnreadableLink has a link whose kind-specific part the library cannot parse: another
// program's link is in no object's way, and the owner's link differs.
func TestUnreadableLink(t *testing.T) {
	t.Parallel()
	none := attribute(unix.IFLA_INFO_KIND)
	m := bytes.Replace(geneveMessage(), attribute(unix.IFLA_INFO_KIND, []byte("geneve\x00")...), slices.Concat(none, none, none), 1)
	if _, err := decodeWhole(m); err == nil {
		t.Fatal("the library reads it")
	}
	s, err := Dial(kerneltest.Answering(func(datagram []byte) [][]byte {
		if binary.NativeEndian.Uint16(datagram[4:]) == unix.RTM_GETLINK {
			return kerneltest.Messages(datagram, unix.RTM_NEWLINK, m)
		}
		return kerneltest.Messages(datagram, unix.NLMSG_NOOP)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := func(name interception.Interface) *interception.Plan {
		return &interception.Plan{Objects: []interception.Object{
			interception.Link{ID: "a.link", Name: name, Geneve: &interception.Geneve{VNI: 1000, Remote: netip.MustParseAddr("10.0.0.1"), Port: 6081}},
		}}
	}
	other, owner := Owner{Name: "another"}, Owner{Name: "mesh-test"}
	if c, err := s.Prepare(plan("mesh1"), other, Options{}); err != nil || len(c.stale) > 0 || c.found.deviceName(7) != "mesh0" {
		t.Errorf("another's, of another name: got %+v and %v", c, err)
	}
	if _, err := s.Prepare(plan("mesh0"), other, Options{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("another's, of the same name: got %v, want EEXIST", err)
	}
	if _, err := s.Prepare(plan("mesh0"), owner, Options{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the owner's: got %v, want EEXIST, as its parameters are not known", err)
	}
	if objects, deviations, err := s.Observe(other, Record{}); err != nil || len(objects)+len(deviations) > 0 {
		t.Errorf("another's, observed: got %v, %v and %v", objects, deviations, err)
	}
	if _, deviations, err := s.Observe(owner, Record{}); err != nil || len(deviations) != 1 || deviations[0].Got != `of type "unreadable"` {
		t.Errorf("the owner's, observed: got %v and %v", deviations, err)
	}
}

// TestEveryKindOfLink makes a link of each kind that this kernel makes without further parts, as
// the owner of a pod might: all are listed.
func TestEveryKindOfLink(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	made := 1 // lo
	for _, kind := range []string{
		"bareudp", "bond", "bridge", "can", "dummy", "geneve", "gre", "gretap", "gtp", "ifb", "ip6gre", "ip6gretap", "ip6tnl", "ipip", "ipvlan",
		"macvlan", "netdevsim", "netkit", "nlmon", "sit", "team", "vcan", "veth", "vrf", "vti", "vti6", "vxcan", "vxlan", "wireguard", "xfrm",
	} {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "a-" + kind
		err := s.namespace.Change("add link", func() error {
			return netlink.LinkAdd(&netlink.GenericLink{LinkAttrs: attributes, LinkType: kind})
		})
		if err == nil {
			made++
		}
		t.Logf("%s: %v", kind, err)
	}
	links, err := s.listLinks()
	if err != nil {
		t.Fatal(err)
	}
	if len(links) < made || made < 2 {
		t.Errorf("%d links are listed, and at least %d were made", len(links), made)
	}
}

// TestRequestForLinks checks that the answer is shorter than that to a plain request, and that the
// links decode alike but for their counters.
func TestRequestForLinks(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	request, err := requestForLinks()
	if err != nil {
		t.Fatal(err)
	}
	told := func(request []byte) (links []netlink.Link, size int) {
		messages, err := p.here.list(unix.RTM_GETLINK, request)
		if err != nil || len(messages) == 0 {
			t.Fatalf("got %d links, %v", len(messages), err)
		}
		for _, m := range messages { // a new namespace may have fallback tunnels, too
			l, err := decodeLink(m)
			if err != nil {
				t.Fatal(err)
			}
			l.Attrs().Statistics = nil // newer kernels leave them out
			links, size = append(links, l), size+len(m)
		}
		return links, size
	}
	short, size := told(request)
	whole, sizeOfAll := told(make([]byte, unix.SizeofIfInfomsg))
	if size >= sizeOfAll || !reflect.DeepEqual(short, whole) {
		t.Errorf("got %d of %d bytes, and\n%+v, want fewer, and\n%+v", size, sizeOfAll, short, whole)
	}
}
