// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

func onePort(t testing.TB, owner interception.Owner, to interception.Port) *interception.Plan {
	t.Helper()
	return build(t, owner, func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.capture", interception.Match{L4: interception.TCP().To(interception.Ports(80))},
			interception.RedirectTo{Port: to}, "to the proxy")
	})
}

// foreign is a ruleset of another program, including tables with an owner's name in other families.
const foreign = `
table ip mesh-test {
	chain output { type nat hook output priority -100; tcp dport 8080 redirect to :1; }
}
table ip6 mesh-test {
	set things { type inet_service; elements = { 1, 2 }; }
}
table inet other {
	chain mesh-test { drop; }
}
`

func TestApplyTwice(t *testing.T) {
	t.Parallel()
	ns, plan := newPod(t), sidecarPlan(t, prefixes("10.0.0.0/8", "192.168.0.0/16", "fc00::/7"))
	ns.apply(t, plan)
	once := ns.ruleset(t)
	ns.apply(t, plan)
	if diff := cmp.Diff(once, ns.ruleset(t)); diff != "" {
		t.Errorf("the second time changed the rules (-once +twice):\n%s", diff)
	}
}

func TestApplyReplaces(t *testing.T) {
	t.Parallel()
	ns, other := newPod(t), newPod(t)
	old := build(t, "mesh-test", func(b *interception.Builder) {
		set := b.Set("old-set", prefixes("10.0.0.0/8"), "old")
		b.Raw("old").Entry(interception.Output, interception.Match{DstSet: interception.Is(set)}, "old")
		drops := interception.Match{Dst: interception.Not(prefixes("fc00::/7", "fe80::/10"))}
		b.Filter("drops").Do("old.drop", drops, interception.Drop{}, "old")
	})
	ns.apply(t, old)
	ns.nft(t, "", "add", "chain", "inet", "mesh-test", "stray")
	ns.apply(t, onePort(t, "mesh-test", 15001))
	other.apply(t, onePort(t, "mesh-test", 15001))
	if diff := cmp.Diff(other.ruleset(t), ns.ruleset(t)); diff != "" {
		t.Errorf("not what a fresh namespace would have (-fresh +replaced):\n%s", diff)
	}
}

func TestOthersUntouched(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	ns.load(t, foreign)
	before := ns.ruleset(t)
	ns.apply(t, onePort(t, "mesh-test", 15001))
	ns.apply(t, onePort(t, "mesh-test", 15002))
	if err := dataplane(t).Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, ns.ruleset(t)); diff != "" {
		t.Errorf("other tables changed (-before +after):\n%s", diff)
	}
}

func TestOwnersSideBySide(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	ns.apply(t, onePort(t, "mesh-one", 15001))
	alone := ns.ruleset(t)
	ns.apply(t, onePort(t, "mesh-two", 15002))
	ns.apply(t, onePort(t, "mesh-two", 15003))
	if both := ns.ruleset(t); !strings.HasPrefix(both, alone) || !strings.Contains(both, "redirect to :15003") {
		t.Errorf("want both owners' rules:\n%s", both)
	}
	if err := dataplane(t).Remove(t.Context(), ns.Netns, "mesh-two"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(alone, ns.ruleset(t)); diff != "" {
		t.Errorf("the first owner's rules changed (-before +after):\n%s", diff)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	dp, nothing := dataplane(t), build(t, "mesh-test", func(*interception.Builder) {})
	for name, remove := range map[string]func(context.Context, *interception.Netns) error{
		"Remove":           func(ctx context.Context, ns *interception.Netns) error { return dp.Remove(ctx, ns, "mesh-test") },
		"Apply of nothing": func(ctx context.Context, ns *interception.Netns) error { return dp.Apply(ctx, ns, nothing) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			if err := remove(t.Context(), ns.Netns); err != nil {
				t.Errorf("with nothing there: %v", err)
			}
			ns.apply(t, sidecarPlan(t, prefixes("10.0.0.0/8")))
			if err := remove(t.Context(), ns.Netns); err != nil {
				t.Errorf("with a plan there: %v", err)
			}
			if left := ns.ruleset(t); left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

func TestRefusedInput(t *testing.T) {
	t.Parallel()
	ns, plan := newPod(t), onePort(t, "mesh-test", 15001)
	closed, err := interception.OpenNetns(ns.Namespace.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	invalid := *plan
	invalid.Owner = "redirect"
	dp := dataplane(t)
	for name, test := range map[string]struct {
		ns   *interception.Netns
		plan *interception.Plan
		want error // nil for any error
	}{
		"nil namespace":    {nil, plan, interception.ErrNotNetns},
		"zero namespace":   {&interception.Netns{}, plan, interception.ErrNotNetns},
		"closed namespace": {closed, plan, nil},
		"nil plan":         {ns.Netns, nil, nil},
		"invalid plan":     {ns.Netns, &invalid, interception.ErrPlan},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := dp.Apply(t.Context(), test.ns, test.plan); err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("Apply: got %v, want %v", err, test.want)
			}
			if test.plan == nil {
				return
			}
			if err := dp.Remove(t.Context(), test.ns, test.plan.Owner); err == nil {
				t.Error("Remove: no error")
			}
		})
	}
	if _, err := interception.OpenNetns("/proc/1/ns/net", interception.NetnsOptions{}); !errors.Is(err, interception.ErrHostNetns) {
		t.Errorf("the host's namespace: got %v, want ErrHostNetns", err)
	}
}

// endsAfter is a context that ends after a number of calls.
type endsAfter struct {
	context.Context
	looks *int
}

func (c endsAfter) Err() error {
	if *c.looks == 0 {
		return context.Canceled
	}
	*c.looks--
	return nil
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ns, dp, old := newPod(t), dataplane(t), onePort(t, "mesh-test", 15001)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := dp.Apply(cancelled, ns.Netns, old); !errors.Is(err, context.Canceled) || ns.ruleset(t) != "" {
		t.Errorf("before the first transaction: got %v and\n%s", err, ns.ruleset(t))
	}
	ns.apply(t, old)
	before, looks := ns.ruleset(t), 1
	if err := dp.Apply(endsAfter{t.Context(), &looks}, ns.Netns, onePort(t, "mesh-test", 15002)); !errors.Is(err, context.Canceled) {
		t.Errorf("before the second transaction: got %v", err)
	}
	if err := dp.Remove(cancelled, ns.Netns, "mesh-test"); !errors.Is(err, context.Canceled) {
		t.Errorf("Remove: got %v", err)
	}
	if diff := cmp.Diff(before, ns.ruleset(t)); diff != "" {
		t.Errorf("cancelled calls changed the rules:\n%s", diff)
	}
}

// TestTableOfAnother has another socket own the owner's table exclusively (NFT_TABLE_F_OWNER): the
// kernel refuses, and the error names the table.
func TestTableOfAnother(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	socket, err := nfnetlink.Open(ns.File())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	batch := nfnetlink.NewBatch(unix.NFNL_SUBSYS_NFTABLES)
	batch.Message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_INET)
	batch.Text(unix.NFTA_TABLE_NAME, "mesh-test")
	batch.Uint32(unix.NFTA_TABLE_FLAGS, 2) // NFT_TABLE_F_OWNER
	if err := socket.Commit(batch); err != nil {
		t.Fatal(err)
	}
	before := ns.ruleset(t)
	err = dataplane(t).Apply(t.Context(), ns.Netns, onePort(t, "mesh-test", 15001))
	var refused *interception.ApplyError
	if !errors.As(err, &refused) || refused.At != "table inet mesh-test" || !errors.Is(err, unix.EPERM) {
		t.Errorf("Apply: got %v, want EPERM about the table", err)
	}
	if err := dataplane(t).Remove(t.Context(), ns.Netns, "mesh-test"); !errors.Is(err, unix.EPERM) {
		t.Errorf("Remove: got %v, want EPERM", err)
	}
	if diff := cmp.Diff(before, ns.ruleset(t)); diff != "" {
		t.Errorf("the table changed:\n%s", diff)
	}
}

// TestUnprivileged gives up CAP_NET_ADMIN on one thread, which ends with the test.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	ns, plan := newPod(t), onePort(t, "mesh-test", 15001)
	dp := dataplane(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := errors.Join(err, unix.Capset(&header, &data[0])); err != nil {
			done <- err
			return
		}
		done <- dp.Apply(t.Context(), ns.Netns, plan)
	}()
	err := <-done
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("got %v, want EPERM and the capability's name", err)
	}
	if left := ns.ruleset(t); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

func TestConcurrentNamespaces(t *testing.T) {
	t.Parallel()
	dp, plan := dataplane(t), sidecarPlan(t, prefixes("10.0.0.0/8", "fc00::/7"))
	var pods []*pod
	for range 20 {
		pods = append(pods, newPod(t))
	}
	var group sync.WaitGroup
	for _, ns := range pods {
		group.Go(func() {
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	want := pods[0].ruleset(t)
	for _, ns := range pods[1:] {
		if diff := cmp.Diff(want, ns.ruleset(t)); diff != "" || want == "" {
			t.Errorf("the namespaces differ:\n%s", diff)
		}
	}
}

// TestConcurrentApply has many callers at one namespace: all succeed, and one plan is in place.
func TestConcurrentApply(t *testing.T) {
	t.Parallel()
	ns, dp := newPod(t), dataplane(t)
	var group sync.WaitGroup
	for port := range interception.Port(8) {
		plan := onePort(t, "mesh-test", 15001+port)
		group.Go(func() {
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := ns.ruleset(t); strings.Count(got, "redirect to") != 1 {
		t.Errorf("want the rules of one plan:\n%s", got)
	}
}
