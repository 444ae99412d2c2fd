// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// passage carries threads through one plan's tables of one kind in a hook.
type passage struct {
	*engine
	hook interception.Hook
	// accepted ends a plan's evaluation at one priority, translated the nat tables of all plans.
	accepted, translated threads
}

// do performs a rule's action, except Jump: threads that continue with the next rule go into on,
// those that return into returned.
func (p *passage) do(r *rule, t thread, on, returned *threads) {
	switch action := r.Action.(type) {
	case interception.Accept:
		p.add(&p.accepted, p.decided(r, t))
	case interception.Return:
		p.add(returned, p.decided(r, t))
	case interception.Drop:
		p.stop(t, ending{verdict: trace.Dropped}, r)
	case interception.Reject:
		p.stop(t, ending{verdict: trace.Rejected}, r)
	case interception.Opaque:
		p.stop(t, ending{verdict: trace.Unknown}, r)
	case interception.TProxyTo:
		p.tproxy(r, t, action)
	case interception.RedirectTo, interception.DNATTo, interception.SNATTo:
		p.translate(r, t)
	case interception.SetZone, interception.NoTrack:
		p.add(on, classified(t, action))
	default:
		p.writeMark(r, t, on)
	}
}

// decided notes that the rule ended the evaluation of its chain or table.
func (p *passage) decided(r *rule, t thread) thread {
	if p.explaining {
		t.why.ends = r.number
		if r.kind == interception.NAT {
			t.why.endNAT = r.number
		}
	}
	return t
}

// redirecting notes that the rule chose the packet's target.
func (p *passage) redirecting(r *rule, t thread) thread {
	if p.explaining {
		t.why.redirect = r.number
	}
	return t
}

// classified performs the actions on connection tracking.
func classified(t thread, action interception.Action) thread {
	if t.flow.kind != noFlow || t.flow.zoned {
		return t
	}
	switch action := action.(type) {
	case interception.SetZone:
		t.flow.zone, t.flow.zoned, t.flow.untracked = action, true, false
	case interception.NoTrack:
		t.flow.untracked = true
	}
	return t
}

// writeMark performs the actions on marks: substitutions. Those on a flow's mark do nothing to a
// packet that has no flow. A mask of 0 means all bits.
func (p *passage) writeMark(r *rule, t thread, on *threads) {
	before := t.mark
	switch action := r.Action.(type) {
	case interception.SetMark:
		t.mark = t.mark.write(givenMark(action.Mark.Value), action.Mark.Mask)
	case interception.SaveMark:
		if t.flow.kind != noFlow {
			t.flow.mark = t.flow.mark.write(t.mark, cmp.Or(action.Mask, ^interception.Mark(0)))
		}
	case interception.RestoreMark:
		if t.flow.kind != noFlow {
			t.mark = t.mark.write(t.flow.mark, cmp.Or(action.Mask, ^interception.Mark(0)))
		}
	case interception.SetConnMark:
		if t.flow.kind != noFlow {
			t.flow.mark = t.flow.mark.write(givenMark(action.Mark.Value), action.Mark.Mask)
		}
	}
	if p.explaining && p.hook == interception.Output && t.mark != before {
		same, changed := p.split(t, p.sameMark(before, t.mark))
		changed.why.changed = r.number
		p.add(on, same, changed)
		return
	}
	p.add(on, t)
}

// translate performs the actions of nat.
func (p *passage) translate(r *rule, t thread) {
	if p.explaining && p.hook == interception.Output {
		t.why.changed = r.number
	}
	switch action := r.Action.(type) {
	case interception.RedirectTo:
		p.redirect(r, t, action.Port)
	case interception.DNATTo:
		t.dst = translated(t.dst, action.Addr, action.Port)
		p.add(&p.translated, p.redirecting(r, t))
	case interception.SNATTo:
		if !action.Keep {
			t.src = translated(t.src, action.Addr, action.Port)
		}
		p.add(&p.translated, t)
	}
}

func translated(e endpoint, addr netip.Addr, to interception.Port) endpoint {
	e.address = address{given, addr}
	if to != 0 {
		e.port = port{given, uint16(to)}
	}
	return e
}

// redirect sends packets to a port of the namespace.
func (p *passage) redirect(r *rule, t thread, to interception.Port) {
	choices := []choice[address]{
		{address{given, netip.AddrFrom4([4]byte{127, 0, 0, 1})}, p.ofFamily(interception.IPv4)},
		{address{given, netip.IPv6Loopback()}, p.ofFamily(interception.IPv6)},
	}
	// Without a world, the address means nothing.
	if l := p.net.link(t.in); p.hook == interception.Prerouting && l != nil {
		choices = p.redirected(l, t.dst.address)
	}
	for _, c := range choices {
		chosen, rest := p.split(t, c.where)
		chosen.dst = endpoint{c.value, port{given, uint16(to)}}
		p.add(&p.translated, p.redirecting(r, chosen))
		t = rest
	}
	if t.where != never {
		p.stop(t, ending{verdict: trace.Dropped}, r)
	}
}
