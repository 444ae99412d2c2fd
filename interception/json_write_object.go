// SPDX-License-Identifier: Apache-2.0

package interception

import "net/netip"

func (w *jsonWriter) plan(p wirePlan) {
	w.open('{')
	w.string("owner", string(p.Owner))
	w.key("objects")
	w.open('[')
	for _, object := range p.Objects {
		w.next()
		w.open('{')
		w.object(object)
		w.close('}')
	}
	w.close(']')
	w.close('}')
}

// object writes the one that is there, under the name of its kind.
func (w *jsonWriter) object(o wireObject) {
	begin := func(kind string) {
		w.key(kind)
		w.open('{')
	}
	switch {
	case o.Link != nil:
		begin("link")
		w.link(*o.Link)
	case o.Address != nil:
		begin("address")
		w.string("id", string(o.Address.ID))
		w.string("device", string(o.Address.Device))
		w.string("prefix", prefixText(o.Address.Prefix))
		w.reason(o.Address.Why, o.Address.From)
	case o.Sysctl != nil:
		begin("sysctl")
		w.string("id", string(o.Sysctl.ID))
		w.string("key", o.Sysctl.Key)
		w.number("value", int64(o.Sysctl.Value))
		w.reason(o.Sysctl.Why, o.Sysctl.From)
	case o.Route != nil:
		begin("route")
		w.route(*o.Route)
	case o.PolicyRule != nil:
		begin("policyRule")
		w.policyRule(*o.PolicyRule)
	case o.Set != nil:
		begin("set")
		w.set(*o.Set)
	case o.Table != nil:
		begin("table")
		w.table(*o.Table)
	}
}

func (w *jsonWriter) link(l wireLink) {
	w.string("id", string(l.ID))
	w.string("name", string(l.Name))
	if l.Geneve != nil {
		w.key("geneve")
		w.open('{')
		w.number("vni", int64(l.Geneve.VNI))
		w.string("remote", addressText(l.Geneve.Remote))
		w.number("port", int64(l.Geneve.Port))
		w.close('}')
	}
	w.reason(l.Why, l.From)
}

func (w *jsonWriter) route(r wireRoute) {
	w.string("id", string(r.ID))
	w.string("type", r.Type)
	w.string("destination", prefixText(r.Destination))
	w.string("device", string(r.Device))
	w.strings("gateway", addressText(r.Gateway))
	w.positive("table", uint32(r.Table))
	w.reason(r.Why, r.From)
}

func (w *jsonWriter) policyRule(r wirePolicyRule) {
	w.string("id", string(r.ID))
	w.string("family", r.Family)
	w.string("mark", r.Mark)
	w.number("table", int64(r.Table))
	w.number("priority", int64(r.Priority))
	w.reason(r.Why, r.From)
}

func (w *jsonWriter) set(s wireSet) {
	w.string("name", string(s.Name))
	w.string("family", s.Family)
	if s.Live {
		w.key("live")
		w.text = append(w.text, "true"...)
	}
	listOf(w, "members", s.Members, func(member netip.Prefix) {
		w.text = append(member.AppendTo(append(w.text, '"')), '"')
	})
	w.reason(s.Why, s.From)
}

func (w *jsonWriter) table(t wireTable) {
	w.string("kind", t.Kind)
	listOf(w, "entries", t.Entries, func(e wireEntry) {
		w.open('{')
		w.string("id", string(e.ID))
		w.string("hook", e.Hook)
		if e.Offset != 0 {
			w.number("offset", int64(e.Offset))
		}
		w.match(e.Match)
		w.string("chain", string(e.Chain))
		w.reason(e.Why, nil)
	})
	listOf(w, "chains", t.Chains, func(c wireChain) {
		w.open('{')
		w.string("name", string(c.Name))
		listOf(w, "rules", c.Rules, func(r wireRule) {
			w.open('{')
			w.string("id", string(r.ID))
			w.match(r.Match)
			w.action(r.Action)
			w.reason(r.Why, r.From)
		})
		w.close('}')
	})
	w.close('}')
}

func (w *jsonWriter) match(m wireMatch) {
	if m == (wireMatch{}) {
		return
	}
	w.key("match")
	w.open('{')
	w.strings(
		"family", m.Family, "in", m.In, "out", m.Out, "src", m.Src, "dst", m.Dst, "srcSet", m.SrcSet, "dstSet", m.DstSet,
		"protocol", m.Protocol, "sport", m.SrcPort, "dport", m.DstPort, "flags", m.Flags, "uid", m.UID, "gid", m.GID,
		"mark", m.Mark, "connmark", m.ConnMark, "state", m.State, "direction", m.Direction,
	)
	w.close('}')
}

func (w *jsonWriter) action(a wireAction) {
	w.key("action")
	w.open('{')
	w.string("do", a.Do)
	w.positive("port", uint32(a.Port))
	w.strings("addr", addressText(a.Addr), "mark", a.Mark)
	w.positive("mask", uint32(a.Mask))
	w.positive("zone", uint32(a.Zone))
	w.strings("text", a.Text, "chain", string(a.Chain))
	w.close('}')
}
