// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func dial(t testing.TB) (*Socket, *sandboxtest.Pod) {
	t.Helper()
	pod := sandboxtest.NewPod(t)
	s, err := Dial(kernel.Of(pod.File()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // nothing was written
	return s, pod
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func member(prefix, comment string) Member { return Member{netip.MustParsePrefix(prefix), comment} }

func read(t testing.TB, s *Socket, name string) Set {
	t.Helper()
	set, err := s.Read(name)
	must(t, err)
	slices.SortFunc(set.Members, func(a, b Member) int { return strings.Compare(a.Prefix.String(), b.Prefix.String()) })
	return set
}

// TestSet changes and reads a set of each type and family.
func TestSet(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Set{
		"a4": {OfAddresses, interception.IPv4, []Member{member("10.0.0.1/32", "one"), member("10.0.0.2/32", strings.Repeat("~", 128))}},
		"a6": {OfAddresses, interception.IPv6, []Member{member("fd00::1/128", "one"), member("fd00::2/128", "")}},
		"n4": {OfNetworks, interception.IPv4, []Member{member("10.0.0.0/8", "one"), member("10.0.0.2/32", "two")}},
		"n6": {OfNetworks, interception.IPv6, []Member{member("fd00::/64", "one"), member("fd01::2/128", "two")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := dial(t)
			must(t, s.Create(name, want.Type, want.Family))
			if err := s.Create(name, want.Type, want.Family); !errors.Is(err, fs.ErrExist) {
				t.Errorf("create it again: %v, want fs.ErrExist", err)
			}
			must(t, s.Add(name, want.Members...))
			if got := read(t, s, name); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			header := Header{Type: want.Type, Family: want.Family, Comments: true, Members: 2}
			if got, err := s.Header(name); err != nil || got != header {
				t.Errorf("its header is %v, %v, want %v", got, err, header)
			}
			if is, of, err := s.Form(name); err != nil || is != want.Type || of != want.Family {
				t.Errorf("its form is %v, %v, %v", is, of, err)
			}
			other := Member{want.Members[0].Prefix, "another"}
			must(t, s.Add(name, other))
			must(t, s.Delete(name, want.Members[1]))
			must(t, s.Delete(name, want.Members[1]))
			if got := read(t, s, name).Members; !slices.Equal(got, []Member{other}) {
				t.Errorf("after the changes it has %v, want %v", got, other)
			}
			must(t, s.Create("other", want.Type, want.Family))
			must(t, s.Swap(name, "other"))
			if got := read(t, s, "other").Members; !slices.Equal(got, []Member{other}) {
				t.Errorf("after the swap the other one has %v, want %v", got, other)
			}
			names, err := s.Names()
			if slices.Sort(names); err != nil || !slices.Equal(names, []string{name, "other"}) {
				t.Errorf("the sets are %q, %v", names, err)
			}
			must(t, s.Destroy(name))
			must(t, s.Destroy(name))
			if _, err := s.Read(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("read it afterwards: %v, want fs.ErrNotExist", err)
			}
			if _, err := s.Header(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its header afterwards: %v, want fs.ErrNotExist", err)
			}
			if _, _, err := s.Form(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its form afterwards: %v, want fs.ErrNotExist", err)
			}
		})
	}
}

// TestMany has more members than a message.
func TestMany(t *testing.T) {
	t.Parallel()
	s, _ := dial(t)
	must(t, s.Create("many", OfAddresses, interception.IPv4))
	want := map[netip.Addr]string{}
	var members []Member
	for i := range 10_000 {
		m := member(fmt.Sprintf("10.1.%d.%d/32", i>>8, i&0xff), fmt.Sprint("owner-", i))
		want[m.Prefix.Addr()], members = m.Comment, append(members, m)
	}
	must(t, s.Add("many", members...))
	got := map[netip.Addr]string{}
	for _, m := range read(t, s, "many").Members {
		got[m.Prefix.Addr()] = m.Comment
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it has %d members, want %d", len(got), len(want))
	}
}

// TestRefusals covers sets that rules use, and what the kernel does not have.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s, pod := dial(t)
	must(t, s.Create("used", OfAddresses, interception.IPv4))
	pod.Run(t, "", "iptables-legacy", "-A", "OUTPUT", "-m", "set", "--match-set", "used", "dst")
	if err := s.Destroy("used"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "used") {
		t.Errorf("remove a set that a rule uses: %v, want ErrInUse", err)
	}
	if h, err := s.Header("used"); err != nil || h.References != 1 {
		t.Errorf("got %v and %v, want one reference", h, err)
	}
	if err := s.Create("strange", "hash:strange", interception.IPv4); !errors.Is(err, interception.ErrUnsupported) {
		t.Errorf("a type that no kernel has: %v, want ErrUnsupported", err)
	}
	if err := s.Create(strings.Repeat("x", MaxName+1), OfAddresses, interception.IPv4); err == nil {
		t.Error("a name that is too long is no error")
	}
	if err := s.Add("absent", member("10.0.0.1/32", "one")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("add to a set that is not there: %v, want fs.ErrNotExist", err)
	}
	if err := s.Add("used", member("fd00::1/128", "one")); err == nil {
		t.Error("an address of the other family is no error")
	}
	if err := missing(unix.EINVAL); !errors.Is(err, interception.ErrUnsupported) {
		t.Errorf("a kernel without ipsets: %v, want ErrUnsupported", err)
	}
}

// TestStrangeMembers reads a set of networks with an exception, which no plan can say.
func TestStrangeMembers(t *testing.T) {
	t.Parallel()
	s, _ := dial(t)
	must(t, s.Create("strange", OfNetworks, interception.IPv4))
	must(t, s.change(nl.IPSET_CMD_ADD, 0, "strange", func(a *nfnetlink.Attributes) {
		a.Nest(nl.IPSET_ATTR_DATA, func() {
			member("10.0.0.0/8", "").encode(a)
			a.Uint32(nl.IPSET_ATTR_CADT_FLAGS|unix.NLA_F_NET_BYTEORDER, 1<<2) // IPSET_FLAG_NOMATCH
		})
	}))
	if set, err := s.Read("strange"); err == nil || !strings.Contains(err.Error(), "strange") {
		t.Errorf("got %v and %v, want an error about the set", set, err)
	}
}

// FuzzRead reads messages of any form.
func FuzzRead(f *testing.F) {
	f.Add([]byte{8, 0, nl.IPSET_ATTR_TYPENAME, 0, 'a', 'b', 'c', 0})
	f.Add([]byte{24, 0, nl.IPSET_ATTR_ADT, 0x80, 20, 0, nl.IPSET_ATTR_DATA, 0x80, 12, 0, nl.IPSET_ATTR_IP, 0x80, 8, 0, 1, 0x40, 10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, message []byte) {
		var set Set
		var h Header
		if err := errors.Join(set.add(message), nfnetlink.Decode(message, h.add)); err != nil {
			return
		}
		for _, m := range set.Members {
			if !m.Prefix.IsValid() {
				t.Errorf("%x: a member that is no network", message)
			}
		}
	})
}
