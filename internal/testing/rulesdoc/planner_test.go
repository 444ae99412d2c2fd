// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// owner is the owner of the plans that the document shows.
const owner interception.Owner = "istio-cni"

// planner returns the content of the plan of a point, and caches it.
type planner struct {
	sample.Space
	// makePlan returns the plan of a point, nil if what it asks for contradicts itself.
	makePlan func(sample.Point) *interception.Plan
	known    map[string]answer
}

// answer is the content of a plan.
type answer struct {
	// Whether there is a plan: a redirect that contradicts itself has no plan.
	valid bool
	ids   []interception.RuleID // of its parts, in order
}

// part is a rule, an entry or another object of a plan.
type part struct {
	id    interception.RuleID // for a set, its name after '@'
	place place
	text  func() string // match and action, or the object
	why   string
	from  []interception.Source
}

// place is the location of a part. Objects other than rules and entries have only the kind.
type place struct {
	kind  string // "rule", "entry", or that of the object
	table interception.TableKind
	hook  interception.Hook
	chain interception.ChainName
}

// newPlanner returns the planner of sidecars.
func newPlanner() *planner {
	space := sample.NewSpace()
	return &planner{space, func(at sample.Point) *interception.Plan {
		in := space.Input(at)
		plan, err := sidecar.Plan(in.Redirect, in.Facts, owner)
		if err != nil {
			return nil
		}
		return plan
	}, map[string]answer{}}
}

// ask returns the content of the plan of a point.
func (p *planner) ask(at sample.Point) answer {
	key := keyOf(at)
	if a, ok := p.known[key]; ok {
		return a
	}
	a := answer{}
	if plan := p.makePlan(at); plan != nil {
		a.valid = true
		for _, x := range partsOf(plan) {
			a.ids = append(a.ids, x.id)
		}
	}
	p.known[key] = a
	return a
}

func keyOf(at sample.Point) string {
	key := make([]byte, len(at))
	for i, value := range at {
		key[i] = byte(value)
	}
	return string(key)
}

// has reports whether a plan has a part of that id.
func (a answer) has(id interception.RuleID) bool { return slices.Contains(a.ids, id) }

// part returns the part with that id in the plan of a point that has it.
func (p *planner) part(at sample.Point, id interception.RuleID) part {
	parts := partsOf(p.makePlan(at))
	return parts[slices.IndexFunc(parts, func(x part) bool { return x.id == id })]
}

// partsOf lists the content of a plan, in the order of the plan.
func partsOf(plan *interception.Plan) []part {
	var parts []part
	for _, object := range plan.Objects {
		switch o := object.(type) {
		case interception.Link:
			parts = append(parts, part{o.ID, place{kind: "link"}, func() string { return linkText(o) }, o.Why, o.From})
		case interception.Sysctl:
			text := func() string { return fmt.Sprintf("%s = %d", o.Key, o.Value) }
			parts = append(parts, part{o.ID, place{kind: "sysctl"}, text, o.Why, o.From})
		case interception.Address:
			text := func() string { return fmt.Sprintf("%s dev %s", o.Prefix, o.Device) }
			parts = append(parts, part{o.ID, place{kind: "address"}, text, o.Why, o.From})
		case interception.Route:
			parts = append(parts, part{o.ID, place{kind: "route"}, func() string { return routeText(o) }, o.Why, o.From})
		case interception.PolicyRule:
			parts = append(parts, part{o.ID, place{kind: "policy rule"}, func() string { return policyText(o) }, o.Why, o.From})
		case interception.Set:
			parts = append(parts, part{interception.RuleID("@" + o.Name), place{kind: "set"}, o.Members.String, o.Why, o.From})
		case interception.Table:
			parts = append(parts, partsOfTable(o)...)
		default:
			panic(fmt.Sprintf("a plan has a %T: teach rulesdoc what that is", object))
		}
	}
	return parts
}

func routeText(r interception.Route) string {
	text := fmt.Sprintf("%s %s dev %s", r.Type, r.Destination, r.Device)
	if r.Gateway.IsValid() {
		text += " via " + r.Gateway.String()
	}
	return fmt.Sprintf("%s table %d", text, r.Table)
}

func linkText(l interception.Link) string {
	if l.VXLAN != nil {
		return fmt.Sprintf("%s vxlan %d to %s port %d", l.Name, l.VXLAN.VNI, l.VXLAN.Remote, l.VXLAN.Port)
	}
	return fmt.Sprintf("%s veth %s", l.Name, l.Veth.Peer)
}

func policyText(r interception.PolicyRule) string {
	text := fmt.Sprintf("%s priority %d", r.Family, r.Priority)
	if r.Destination.IsValid() {
		text += " to " + r.Destination.String()
	}
	if r.In != "" {
		text += " in " + string(r.In)
	}
	if !r.Mark.IsEmpty() {
		text += " mark " + r.Mark.String()
	}
	if r.Table == 0 {
		return text + " table main"
	}
	return fmt.Sprintf("%s table %d", text, r.Table)
}

func partsOfTable(t interception.Table) []part {
	var parts []part
	for _, chain := range t.Chains {
		for _, e := range t.Entries {
			if e.Chain == chain.Name {
				text := func() string { return line(e.Match, interception.Jump{Chain: e.Chain}) }
				parts = append(parts, part{e.ID, place{"entry", t.Kind, e.Hook, e.Chain}, text, e.Why, nil})
			}
		}
		for _, r := range chain.Rules {
			text := func() string { return line(r.Match, r.Action) }
			parts = append(parts, part{r.ID, place{"rule", t.Kind, 0, chain.Name}, text, r.Why, r.From})
		}
	}
	return parts
}

func line(m interception.Match, a interception.Action) string {
	if m.IsZero() {
		return "any -> " + a.String()
	}
	return m.String() + " -> " + a.String()
}

// sample returns points with a plan: many random ones, and all that differ in at most two
// parameters from the default, from one that captures nothing, or from either with TPROXY mode or
// DNS capture.
func (p *planner) sample(random int) []sample.Point {
	nothing := p.with(p.with(p.Default(), "Inbound.Include", sample.Empty), "Outbound.Include", sample.Empty)
	var points []sample.Point
	for _, origin := range []sample.Point{p.Default(), nothing} {
		for _, from := range []sample.Point{origin, p.with(origin, "Mode", "TPROXY"), p.with(origin, "DNS.Port", "15053")} {
			points = append(points, from)
			for _, near := range p.neighbours(from) {
				points = append(append(points, near), p.neighbours(near)...)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 0))
	for range random / 2 {
		points = append(points, p.Random(r), p.wild(r))
	}
	slices.SortStableFunc(points, slices.Compare)
	points = slices.CompactFunc(points, slices.Equal)
	return slices.DeleteFunc(points, func(at sample.Point) bool { return !p.ask(at).valid })
}

// wild returns a point with any values, often with little capture.
func (p *planner) wild(r *rand.Rand) sample.Point {
	at := p.Default()
	for i, parameter := range p.Parameters {
		at[i] = r.IntN(len(parameter.Values))
	}
	for _, field := range []string{"Inbound.Include", "Outbound.Include", "Outbound.IncludePorts"} {
		if r.IntN(2) == 0 {
			at = p.with(at, field, sample.Empty)
		}
	}
	return at
}

// with returns the point with another value of one parameter, by their names.
func (p *planner) with(at sample.Point, field, value string) sample.Point {
	i := slices.IndexFunc(p.Parameters, func(x sample.Parameter) bool { return x.Field == field })
	return at.With(i, slices.IndexFunc(p.Parameters[i].Values, func(x sample.Value) bool { return x.Name == value }))
}

// neighbours returns the points that differ from a point in one parameter.
func (p *planner) neighbours(of sample.Point) []sample.Point {
	var points []sample.Point
	for i, parameter := range p.Parameters {
		for value := range parameter.Values {
			if value != of[i] {
				points = append(points, of.With(i, value))
			}
		}
	}
	return points
}

// nearest moves a point with all of the ids towards the default, one parameter after another, as
// far as it keeps them.
func (p *planner) nearest(at sample.Point, ids ...interception.RuleID) sample.Point {
	for i := range at {
		if at[i] == 0 {
			continue
		}
		near := at.With(i, 0)
		if a := p.ask(near); a.valid && !slices.ContainsFunc(ids, func(id interception.RuleID) bool { return !a.has(id) }) {
			at = near
		}
	}
	return at
}
