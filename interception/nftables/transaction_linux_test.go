// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func newSocket(t *testing.T) *nfnetlink.Socket {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	socket, err := nfnetlink.Open(namespace.File())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// TestRefusedRule has the kernel refuse one rule among others. No valid plan causes that here, so
// the plan is not validated: the rule's comment is longer than the kernel allows.
func TestRefusedRule(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	rule := func(id interception.RuleID, why string) interception.Rule {
		return interception.Rule{ID: id, Why: why, Action: interception.Return{}}
	}
	tooLong := strings.Repeat("too long ", 30)
	plan := &interception.Plan{Owner: "mesh-test", Objects: []interception.Object{
		interception.Set{
			Name: "members", Family: interception.IPv4, Why: "a set",
			Members: interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8")),
		},
		interception.Table{Kind: interception.NAT, Chains: []interception.Chain{
			{Name: "output", Rules: []interception.Rule{rule("rule.one", "good"), rule("rule.two", tooLong), rule("rule.three", "good")}},
		}},
	}}
	old := &interception.Plan{Owner: "mesh-test", Objects: []interception.Object{interception.Table{Kind: interception.Raw}}}

	check := func(when string, err error) {
		t.Helper()
		var refused *interception.ApplyError
		if !errors.As(err, &refused) || refused.At != "rule.two" || refused.Why != tooLong || !errors.Is(err, unix.ERANGE) {
			t.Errorf("%s: got %v, want ERANGE about rule.two", when, err)
		}
		if errors.Is(err, interception.ErrUnsupported) {
			t.Errorf("%s: %v is not about what the kernel has", when, err)
		}
	}
	check("in an empty namespace", newTransaction("mesh-test").create(plan).commit(socket))
	if err := newTransaction("mesh-test").delete().commit(socket); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the refused transaction left a table behind: deleting it says %v", err)
	}
	if err := newTransaction("mesh-test").create(old).commit(socket); err != nil {
		t.Fatal(err)
	}
	check("replacing", newTransaction("mesh-test").replace(plan).commit(socket))
	if err := newTransaction("mesh-test").create(old).commit(socket); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the refused replacement took the old table away: adding it says %v", err)
	}
}

// TestUnknownAction has an action that the dataplane does not know: the error names it.
func TestUnknownAction(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	plan := &interception.Plan{Owner: "mesh-test", Objects: []interception.Object{
		interception.Table{Kind: interception.NAT, Chains: []interception.Chain{
			{Name: "output", Rules: []interception.Rule{{ID: "rule.one", Why: "unknown"}}},
		}},
	}}
	err := newTransaction("mesh-test").create(plan).commit(socket)
	if !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), "rule.one (unknown)") {
		t.Errorf("got %v, want ErrUnsupported about rule.one", err)
	}
	if err := newTransaction("mesh-test").delete().commit(socket); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the transaction was sent: deleting its table says %v", err)
	}
}

// TestMissingFeatures covers the answers of kernels that the tests do not run on.
func TestMissingFeatures(t *testing.T) {
	t.Parallel()
	plan, err := interception.Build("mesh-test", func(b *interception.Builder) {
		set := b.Set("members", interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8")), "a set")
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{}, "an entry")
		output.Do("rule.redirect", interception.Match{DstSet: interception.Is(set), L4: interception.TCP()},
			interception.RedirectTo{Port: 15001}, "redirects")
		chain := b.Mangle("chain")
		chain.Entry(interception.Output, interception.Match{}, "an entry")
		chain.Do("rule.save", interception.Match{}, interception.SaveMark{Mask: 1}, "saves")
		fixed := interception.Match{ConnMark: interception.Is(interception.MarkBits{Value: 1, Mask: 3})}
		chain.Do("rule.restore", fixed, interception.RestoreMark{Mask: 1}, "restores")
		arriving := b.Mangle("arriving")
		arriving.Entry(interception.Prerouting, interception.Match{}, "an entry")
		arriving.Do("rule.tproxy", interception.Match{L4: interception.TCP()}, interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(1)}, "delivers")
	})
	if err != nil {
		t.Fatal(err)
	}
	parts := newTransaction("mesh-test").create(plan).parts
	for _, test := range []struct {
		at, why string
		errno   syscall.Errno
		want    string
	}{
		{"table inet mesh-test", "", unix.EAFNOSUPPORT, "family inet"},
		{"members", "a set", unix.EOPNOTSUPP, "sets of address intervals"},
		{"nat", "chain hook.nat.output", unix.ENOENT, "nft_chain_nat"},
		{"nat", "chain nat-output", unix.EAFNOSUPPORT, "family inet"},
		{"mangle", "chain hook.mangle.output", unix.ENOENT, "route chains"},
		{"rule.redirect", "redirects", unix.ENOENT, "nft_redir"},
		{"nat.output.output", "an entry", unix.ENOENT, "an expression"},
		{"rule.save", "saves", unix.EOPNOTSUPP, "Linux 6.13"},
		{"rule.save", "saves", unix.EINVAL, "Linux 6.13"},
		{"rule.restore", "restores", unix.ENOENT, "connection tracking with marks"},
		{"rule.tproxy", "delivers", unix.ENOENT, "nft_tproxy"},
	} {
		part, ok := find(parts, test.at, test.why)
		if !ok {
			t.Errorf("no message is about %s (%s): %v", test.at, test.why, parts)
			continue
		}
		err := part.error(&nfnetlink.RefusedError{RefusedError: kernel.RefusedError{Errno: test.errno}})
		var refused *interception.ApplyError
		if !errors.As(err, &refused) || refused.At != test.at || !errors.Is(err, test.errno) {
			t.Errorf("%s: got %v", test.at, err)
		}
		if !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %q, want ErrUnsupported with %q", test.at, err, test.want)
		}
	}
}

func find(parts []part, at, why string) (part, bool) {
	for _, p := range parts {
		if p.at == at && p.why == why {
			return p, true
		}
	}
	return part{}, false
}

func TestBatchErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		errno       syscall.Errno
		want        string
		unsupported bool
	}{
		{unix.EPERM, "CAP_NET_ADMIN", false},
		{unix.EOPNOTSUPP, "module nf_tables", true},
		{unix.ENOMEM, "nf_tables transaction", false},
	} {
		err := batchError(&nfnetlink.RefusedError{Message: -1, RefusedError: kernel.RefusedError{Errno: test.errno}})
		if !errors.Is(err, test.errno) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %q, want it to say %q", test.errno, err, test.want)
		}
		if got := errors.Is(err, interception.ErrUnsupported); got != test.unsupported {
			t.Errorf("%v: unsupported: %t, want %t", test.errno, got, test.unsupported)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	plan, err := interception.Build("mesh-test", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		for i := range 20 {
			id := interception.RuleID("output.rule-" + string(rune('a'+i)))
			m := interception.Match{L4: interception.TCP().To(interception.Ports(80)), UID: interception.Is(interception.UIDs(1337))}
			output.Do(id, m, interception.RedirectTo{Port: 15001}, "to the proxy")
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if t := newTransaction(plan.Owner).create(plan); t.err != nil {
			b.Fatal(t.err)
		}
	}
}
