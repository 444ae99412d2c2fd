// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// newNamespace makes a network namespace with a veth pair a and b, up, without addresses.
func newNamespace(t *testing.T) (*sandbox.Namespace, *interception.Netns) {
	t.Helper()
	n, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "a"
	if err := n.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "b"}); err != nil {
		t.Fatal(err)
	}
	ns, err := interception.OpenNetns(n.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return n, ns
}

// write sets sysctls in the namespace, in order.
func write(t *testing.T, n *sandbox.Namespace, settings ...[2]string) {
	t.Helper()
	if err := n.Do(func() error {
		for _, s := range settings {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+s[0]+"/disable_ipv6", []byte(s[1]), 0o600); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestReadIPv6(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		settings [][2]string
		want     interception.Facts
	}{
		{"as it is made", nil, interception.Facts{IPv6: true, LoopbackIPv6: true}},
		{"disabled everywhere", [][2]string{{"all", "1"}}, interception.Facts{}},
		{"enabled on one interface", [][2]string{{"all", "1"}, {"b", "0"}}, interception.Facts{IPv6: true}},
		{"enabled for new interfaces", [][2]string{{"all", "1"}, {"default", "0"}}, interception.Facts{IPv6: true}},
		{"disabled on lo", [][2]string{{"lo", "1"}}, interception.Facts{IPv6: true}},
		{"enabled on lo", [][2]string{{"all", "1"}, {"lo", "0"}}, interception.Facts{IPv6: true, LoopbackIPv6: true}},
		{"all says more than is so", [][2]string{{"all", "0"}, {"default", "1"}, {"lo", "1"}, {"a", "1"}, {"b", "1"}}, interception.Facts{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n, ns := newNamespace(t)
			write(t, n, test.settings...)
			facts, err := Read(ns)
			if err != nil {
				t.Fatal(err)
			}
			if facts != test.want {
				t.Errorf("got %+v, want %+v", facts, test.want)
			}
		})
	}
}

func TestReadOfAnInterfaceThatComesAndGoes(t *testing.T) {
	t.Parallel()
	n, ns := newNamespace(t)
	write(t, n, [2]string{"all", "1"})
	done := make(chan error)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			attributes := netlink.NewLinkAttrs()
			attributes.Name = "c"
			link := &netlink.Dummy{LinkAttrs: attributes}
			if err := errors.Join(n.Netlink().LinkAdd(link), n.Netlink().LinkDel(link)); err != nil {
				<-stop
				done <- err
				return
			}
		}
	}()
	for range 200 {
		if facts, err := Read(ns); err != nil || facts.IPv6 {
			t.Errorf("got %+v, %v", facts, err)
			break
		}
	}
	close(stop)
	if err := <-done; errors.Is(err, errors.ErrUnsupported) {
		t.Log("this kernel has no dummy interfaces:", err)
	} else if err != nil {
		t.Error(err)
	}
}

func TestIPv6OfAKernelWithoutIt(t *testing.T) {
	t.Parallel()
	without := fstest.MapFS{"ipv4/ip_forward": {Data: []byte("0\n")}}
	if got, err := ipv6(without); got || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := ipv6(fstest.MapFS{}); err == nil {
		t.Error("a /proc without sysctls says nothing, and must be an error")
	}
}

func TestIPv6OfNewInterfacesIsReadAlone(t *testing.T) {
	t.Parallel()
	unreadable := fstest.MapFS{ // a directory where a file belongs
		"ipv6/conf/default/disable_ipv6":  {Data: []byte("0\n")},
		"ipv6/conf/a/disable_ipv6/is/not": {Data: []byte("a file")},
	}
	if got, err := ipv6(unreadable); !got || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestReadOfNoNamespace(t *testing.T) {
	t.Parallel()
	for _, ns := range []*interception.Netns{nil, {}} {
		if _, err := Read(ns); !errors.Is(err, interception.ErrNotNetns) {
			t.Errorf("got error %v", err)
		}
	}
}
