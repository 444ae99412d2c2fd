// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// tcp matches every TCP connection.
func tcp() interception.Match { return interception.Match{L4: interception.TCP()} }

// capture returns a plan with rules of several kinds, two of them of the same kind.
func capture(t testing.TB, more ...func(*interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("mesh-test", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, tcp(), "what the pod connects to")
		output.Do("output.http", interception.Match{L4: interception.TCP().To(interception.Ports(80))}, interception.RedirectTo{Port: 15001}, "to the proxy")
		output.Do("output.https", interception.Match{L4: interception.TCP().To(interception.Ports(443))}, interception.RedirectTo{Port: 15001}, "to the proxy")
		divert := b.Mangle("divert")
		divert.Entry(interception.Prerouting, tcp(), "what comes to the pod")
		divert.Do("divert.tunnel", interception.Match{L4: interception.TCP().To(interception.Ports(15008))}, interception.Return{}, "tunnels are left alone")
		divert.Do("divert.proxy", tcp(), interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(1337)}, "to the proxy")
		for _, fill := range more {
			fill(b)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// lacking refuses rules with certain actions one at a time, as a kernel does.
func lacking(what string, actions ...string) func(fake.Call) error {
	return func(c fake.Call) error {
		if c.Plan == nil {
			return nil
		}
		for _, r := range c.Plan.Rules() {
			for _, action := range actions {
				if strings.HasPrefix(r.Action.String(), action) {
					return &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf("%s %s: %w", what, action, interception.ErrUnsupported)}
				}
			}
		}
		return nil
	}
}

// bench has fake dataplanes and the namespaces of their trials.
type bench struct {
	candidates []choice.Candidate
	dataplanes []*fake.Dataplane
	scratch    []*interception.Netns
}

func newBench(all ...fake.Options) *bench {
	var b bench
	for i, o := range all {
		d := fake.New(o)
		b.dataplanes = append(b.dataplanes, d)
		b.candidates = append(b.candidates, choice.Candidate{Name: []string{"first", "second"}[i], Dataplane: d})
	}
	return &b
}

func (b *bench) options() choice.Options {
	return choice.Options{Scratch: func() (*interception.Netns, error) {
		ns := b.dataplanes[0].Netns(fmt.Sprintf("scratch %d", len(b.scratch)))
		b.scratch = append(b.scratch, ns)
		return ns, nil
	}}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		candidates []fake.Options
		want, text string
	}{
		"the first can": {[]fake.Options{{}, {}}, "first", "first: the kernel has all that the plan needs"},
		"the kernel lacks two features": {
			[]fake.Options{{Before: lacking("module for", "redirect", "tproxy")}, {}},
			"second",
			"second: the kernel has all that the plan needs; not first: " +
				"kernel refused output.http (to the proxy): module for redirect: not supported; " +
				"kernel refused divert.proxy (to the proxy): module for tproxy: not supported",
		},
		"the dataplane lacks one": {
			[]fake.Options{{Refuse: fake.Lacks[interception.TProxyTo]}, {}},
			"second",
			"second: the kernel has all that the plan needs; not first: " +
				"mangle/divert[1] divert.proxy: not supported: this dataplane has no interception.TProxyTo",
		},
		"nothing of it is there": {
			[]fake.Options{{Before: func(fake.Call) error { return interception.ErrUnsupported }}, {}},
			"second",
			"second: the kernel has all that the plan needs; not first: apply plan of mesh-test to scratch 0 (stands in for net:[1]): not supported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(test.candidates...)
			got, err := choice.Choose(t.Context(), capture(t), b.options(), b.candidates...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.want, test.text}, []string{got.Name, got.String()}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, ns := range b.scratch {
				if err := ns.Check(); !errors.Is(err, os.ErrClosed) {
					t.Errorf("%s was left: %v", ns, err)
				}
			}
		})
	}
}

// TestChooseNone lists what each candidate lacks. A forced choice is a list of one.
func TestChooseNone(t *testing.T) {
	t.Parallel()
	b := newBench(fake.Options{Before: lacking("this kernel's", "tproxy")}, fake.Options{Before: lacking("that kernel's", "redirect")})
	_, err := choice.Choose(t.Context(), capture(t), b.options(), b.candidates...)
	const want = `no dataplane can apply the plan of mesh-test here
first: kernel refused divert.proxy (to the proxy): this kernel's tproxy: not supported
second: kernel refused output.http (to the proxy): that kernel's redirect: not supported
install or load what is named here, choose a kernel that has it, or allow another dataplane`
	if !errors.Is(err, interception.ErrUnsupported) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	var none *choice.Error
	forced := newBench(fake.Options{Before: lacking("this kernel's", "tproxy")}, fake.Options{})
	if _, err := choice.Choose(t.Context(), capture(t), forced.options(), forced.candidates[0]); !errors.As(err, &none) || len(none.Rejections) != 1 {
		t.Errorf("got %v", err)
	}
	if calls := forced.dataplanes[1].Calls(); calls != nil {
		t.Errorf("another candidate was asked: %v", calls)
	}
}

// TestChooseKnowsNothing has errors that are not about features and end the search.
func TestChooseKnowsNothing(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	for name, test := range map[string]struct {
		ctx  context.Context
		plan *interception.Plan
		o    fake.Options
		want string
	}{
		"privileges": {t.Context(), capture(t), fake.Options{Before: func(fake.Call) error { return os.ErrPermission }}, "permission denied"},
		"context":    {ended, capture(t), fake.Options{}, "context canceled"},
		"no plan":    {t.Context(), nil, fake.Options{}, "plan: it is nil"},
		"bad plan":   {t.Context(), &interception.Plan{Owner: "x"}, fake.Options{}, "invalid"},
	} {
		b := newBench(test.o, fake.Options{})
		_, err := choice.Choose(test.ctx, test.plan, b.options(), b.candidates...)
		if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, interception.ErrUnsupported) {
			t.Errorf("%s: got %v", name, err)
		}
		if calls := b.dataplanes[1].Calls(); calls != nil {
			t.Errorf("%s: another candidate was asked: %v", name, calls)
		}
	}
}

// TestCandidates refuses candidates without a dataplane or a unique name.
func TestCandidates(t *testing.T) {
	t.Parallel()
	d := fake.New(fake.Options{})
	for _, candidates := range [][]choice.Candidate{nil, {{"", d}}, {{"a", nil}}, {{"a", d}, {"a", d}}} {
		if _, err := choice.Choose(t.Context(), capture(t), choice.Options{}, candidates...); err == nil {
			t.Errorf("%v was taken", candidates)
		}
		if _, err := choice.New(candidates...); err == nil {
			t.Errorf("%v was taken", candidates)
		}
	}
}
