// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/interception"
)

// The sets of the law.
const (
	editedSet = interception.SetName("edited")
	otherSet  = interception.SetName("edited-too")
)

// editing is a trial with a live set of addresses, and what its members should be.
type editing struct {
	*trial
	family interception.Family

	want map[netip.Addr]string
}

func (x *trial) sets() {
	plan := x.setPlan(interception.IPv4, 1)
	if err := x.New(x.T).Supports(plan); err != nil {
		x.Logf("without live sets: %v", err)
		return
	}
	for name, test := range map[string]func(*editing){
		"owners": (*editing).owners, "apply": (*editing).applied, "parallel": (*editing).parallel, "many": (*editing).many,
		"refused": (*editing).refused, "killed": (*editing).killed,
	} {
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			x.run(fmt.Sprint(name, " ", family), func(x *trial) {
				x.apply(x.setPlan(family, 1))
				test(&editing{trial: x, family: family, want: map[netip.Addr]string{}})
			})
		}
	}
}

// setPlan returns a plan of two live sets of addresses, and as many rules as are asked for.
func (x *trial) setPlan(family interception.Family, rules int) *interception.Plan {
	plan, err := interception.Build(caseOwner, func(b *interception.Builder) {
		b.LiveAddresses(otherSet, family, "a set that is not edited")
		set := b.LiveAddresses(editedSet, family, "a set that is edited")
		c := b.Mangle("sets")
		c.Entry(interception.Prerouting, interception.Match{}, "all packets")
		for i := range rules {
			c.Do(interception.RuleID(fmt.Sprintf("sets.%d", i)), interception.Match{DstSet: interception.Is(set)},
				interception.SetMark{Mark: interception.MarkBits{Value: 1 << i, Mask: 1 << i}}, "a rule of the set")
		}
	})
	if err != nil {
		x.Fatal(err)
	}
	return plan
}

// address returns the n-th address of a family.
func address(f interception.Family, n int) netip.Addr {
	if f == interception.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

func (e *editing) editor() setEditor {
	return e.New(e.T).(setEditor) //nolint:forcetypeassert,errcheck // a guard is one
}

func (e *editing) update(edit interception.SetEdit) error {
	return e.editor().UpdateSet(e.Context(), e.ns, caseOwner, editedSet, edit)
}

// do makes an edit, after which the set should have these members.
func (e *editing) do(edit interception.SetEdit, want map[netip.Addr]string) {
	if err := e.update(edit); err != nil {
		e.broken("edit %v: %v", edit, err)
	}
	e.want = want
	e.check(fmt.Sprintf("after the edit %.200v", edit))
}

// check compares the members with what they should be.
func (e *editing) check(when string) {
	state := e.observe(caseOwner)
	if got := state.Owners[editedSet]; !maps.Equal(got, e.want) {
		e.broken("%s: %d members, %.500v, want %d, %.500v", when, len(got), got, len(e.want), e.want)
	}
	if others := state.Owners[otherSet]; len(others) > 0 {
		e.broken("%s: another set has the members %v", when, others)
	}
	for _, o := range state.Objects {
		if s, ok := o.(interception.Set); ok && s.Name == editedSet {
			for a := range e.want {
				if !s.Members.Contains(a) {
					e.broken("%s: the observed set lacks %s", when, a)
				}
			}
		}
	}
}

type members = map[netip.Addr]string

func (e *editing) owners() {
	f := e.family
	a, b, c := address(f, 1), address(f, 2), address(f, 3)
	longest := strings.Repeat("~", 128)
	e.do(interception.SetEdit{}, members{})
	e.do(interception.SetEdit{Add: members{a: "one", b: longest}}, members{a: "one", b: longest})
	e.do(interception.SetEdit{Add: members{a: "one"}}, members{a: "one", b: longest})
	e.do(interception.SetEdit{Remove: members{a: "two", c: "one"}}, members{a: "one", b: longest})
	e.do(interception.SetEdit{Remove: members{a: "", c: ""}}, members{a: "one", b: longest})
	e.do(interception.SetEdit{Add: members{a: "two", c: "three"}, Remove: members{b: longest}}, members{a: "two", c: "three"})
	e.do(interception.SetEdit{Remove: members{a: "one"}}, members{a: "two", c: "three"})
	e.do(interception.SetEdit{Remove: members{a: "two"}}, members{c: "three"})
}

// applied applies the same plan, and others with the set and without it.
func (e *editing) applied() {
	f := e.family
	want := members{address(f, 1): "one", address(f, 2): "two"}
	e.do(interception.SetEdit{Add: want}, want)
	for _, rules := range []int{1, 3, 2} {
		e.apply(e.setPlan(f, rules))
		e.check(fmt.Sprintf("after Apply of a plan with %d rules", rules))
		e.holds(e.setPlan(f, rules))
	}
	other := interception.IPv4 + interception.IPv6 - f
	e.apply(e.setPlan(other, 1))
	e.want = members{}
	e.check("after Apply of a plan whose set has the other family")
	e.remove(caseOwner)
	if err := e.update(interception.SetEdit{Add: members{address(other, 1): "one"}}); !errors.Is(err, fs.ErrNotExist) {
		e.broken("an edit after Remove: %v, want fs.ErrNotExist", err)
	}
}

// parallel has several editors, and Apply beside them.
func (e *editing) parallel() {
	f := e.family
	const editors, edits = 8, 20
	var group sync.WaitGroup
	for editor := range editors {
		group.Go(func() {
			for i := range edits {
				mine, shared := address(f, 1000*editor+i+1), address(f, 1_000_000)
				owner := fmt.Sprint("editor-", editor)
				err := e.update(interception.SetEdit{Add: members{mine: owner, shared: owner}})
				if err == nil && i > 0 {
					err = e.update(interception.SetEdit{Remove: members{address(f, 1000*editor+i): owner}})
				}
				if err != nil {
					e.Errorf("law %q: editor %d: %v", string(e.law), editor, err)
					return
				}
			}
		})
	}
	for rules := range 3 {
		e.apply(e.setPlan(f, rules+1))
	}
	group.Wait()
	got := e.observe(caseOwner).Owners[editedSet]
	e.want = members{address(f, 1_000_000): got[address(f, 1_000_000)]}
	for editor := range editors {
		e.want[address(f, 1000*editor+edits)] = fmt.Sprint("editor-", editor)
	}
	if !strings.HasPrefix(e.want[address(f, 1_000_000)], "editor-") {
		e.broken("the address that all editors take belongs to %q", e.want[address(f, 1_000_000)])
	}
	e.check("after edits from all sides")
}

func (e *editing) many() {
	f, want := e.family, members{}
	for i := range 10_000 {
		want[address(f, i+1)] = fmt.Sprintf("0b5ab3f0-6b1c-4a8e-9b57-%012d", i)
	}
	e.do(interception.SetEdit{Add: want}, want)
	e.apply(e.setPlan(f, 2))
	e.check("after Apply")
	e.do(interception.SetEdit{Remove: want}, members{})
}

// refused makes edits that change nothing.
func (e *editing) refused() {
	f := e.family
	good := address(f, 1)
	want := members{good: "one"}
	e.do(interception.SetEdit{Add: want}, want)
	other := address(interception.IPv4+interception.IPv6-f, 1)
	for what, edit := range map[string]interception.SetEdit{
		"another family": {Add: members{other: "one", address(f, 2): "one"}},
		"no address":     {Remove: members{{}: "one", good: "one"}},
		"no owner":       {Add: members{good: ""}},
		"a long owner":   {Add: members{good: strings.Repeat("x", 129)}},
		"a line break":   {Add: members{good: "a\nb"}},
		"a quote":        {Add: members{good: `a"b`}},
		"both at once":   {Add: want, Remove: want},
	} {
		if err := e.update(edit); err == nil {
			e.broken("%s: the edit %v is no error", what, edit)
		}
		e.check("after an edit with " + what)
	}
	ended, end := context.WithCancel(e.Context())
	end()
	editor := e.editor()
	edit := interception.SetEdit{Add: members{address(f, 2): "one"}}
	if err := editor.UpdateSet(ended, e.ns, caseOwner, editedSet, edit); !errors.Is(err, context.Canceled) {
		e.broken("with a context that has ended: %v, want context.Canceled", err)
	}
	for what, err := range map[string]error{
		"another owner": editor.UpdateSet(e.Context(), e.ns, otherOwner, editedSet, edit),
		"another set":   editor.UpdateSet(e.Context(), e.ns, caseOwner, "absent", edit),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			e.broken("%s: %v, want fs.ErrNotExist", what, err)
		}
	}
	if err := editor.UpdateSet(e.Context(), nil, caseOwner, editedSet, edit); !errors.Is(err, interception.ErrNotNetns) {
		e.broken("without a namespace: %v, want ErrNotNetns", err)
	}
	e.check("after edits that cannot be made")
}
