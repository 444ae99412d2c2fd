// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// Observe reads what the owner has, in the order of plans: links, addresses, sysctls, routes and
// policy rules. Marks in the kernel and the record show the owner. What plans cannot express is a
// deviation.
func (s *Socket) Observe(owner Owner, r Record) ([]interception.Object, []interception.Deviation, error) {
	found, err := s.scan()
	if err != nil {
		return nil, nil, err
	}
	o := observation{owner: owner, found: found, foreign: slices.Clone(r.FoundObjects)}
	o.links()
	o.addresses(r)
	if err := o.sysctls(s, r); err != nil {
		return nil, nil, err
	}
	o.routes()
	o.rules()
	return o.objects, o.deviations, nil
}

type observation struct {
	owner      Owner
	found      found
	foreign    []string // objects of other programs that the plan uses, until they are seen
	objects    []interception.Object
	deviations []interception.Deviation
}

// see adds an object, and a deviation for what it has beyond a plan's object.
func (o *observation) see(at string, object interception.Object, more []string) {
	if len(more) == 0 {
		o.objects = append(o.objects, object)
		return
	}
	o.deviations = append(o.deviations, interception.Deviation{At: at, Object: object, Got: strings.Join(more, ", ")})
}

func (o *observation) links() {
	for _, l := range o.found.links {
		if !o.owner.owns(l) {
			continue
		}
		link, more := o.found.seen(l)
		o.see("links", link, more)
	}
}

func (o *observation) addresses(r Record) {
	for _, a := range o.found.addresses {
		entry := AddressRecord{o.found.deviceName(a.index), a.prefix}
		if a.protocol == o.owner.Protocol || slices.Contains(r.Addresses, entry) || slices.Contains(r.Found, entry) {
			o.see("addresses", interception.Address{Device: entry.Device, Prefix: entry.Prefix}, nil)
		}
	}
}

func (o *observation) sysctls(s *Socket, r Record) error {
	for i, record := range r.Sysctls {
		if slices.ContainsFunc(r.Sysctls[:i], func(earlier SysctlRecord) bool { return earlier.Key == record.Key }) {
			continue
		}
		value, err := s.readSysctl(record.Key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		o.see("sysctls", interception.Sysctl{Key: record.Key, Value: value}, nil)
	}
	return nil
}

// uses reports whether an object of another program serves the plan. Of several that are the same
// it takes the first.
func (o *observation) uses(object interception.Object, more []string) bool {
	if len(o.foreign) == 0 || len(more) > 0 {
		return false
	}
	i := slices.Index(o.foreign, textOf(object))
	if i >= 0 {
		o.foreign = slices.Delete(o.foreign, i, i+1)
	}
	return i >= 0
}

// routes notes the owner's routes and, in the tables that are its own, those of other programs.
func (o *observation) routes() {
	own, others := map[familyTable]bool{}, []route(nil)
	for _, have := range o.found.routes {
		r, more := o.route(have.route)
		if have.protocol == o.owner.Protocol || o.uses(r, more) {
			own[tableFor(have.route)] = true
			o.see("routes", r, more)
		} else if !sharedTable(have.table) {
			others = append(others, have.route)
		}
	}
	for _, have := range others {
		if !own[tableFor(have)] {
			continue
		}
		r, more := o.route(have)
		text := strings.Join(append([]string{textOf(r)}, more...), ", ")
		o.deviations = append(o.deviations, interception.Deviation{
			At: "routes", Got: fmt.Sprintf("%s (protocol %d)", text, have.protocol), Foreign: true,
		})
	}
}

func tableFor(r route) familyTable { return familyTable{r.table, r.destination.Addr().Is4()} }

// familyTable is the routing table of one family.
type familyTable struct {
	number uint32
	four   bool
}

// route returns a route in the form of plans, and what it has beyond that.
func (o *observation) route(have route) (r interception.Route, more []string) {
	r = interception.Route{
		Destination: have.destination, Device: o.found.deviceName(have.index), Gateway: have.gateway, Table: tableOf(have.table),
	}
	known := false
	for kind, number := range routeKinds() {
		if number == have.kind {
			r.Type, known = interception.RouteType(kind), true
		}
	}
	if !known {
		more = append(more, fmt.Sprintf("type %d", have.kind))
	}
	if have.metric != r.EffectiveMetric() {
		r.Metric = have.metric
		if r.EffectiveMetric() != have.metric { // no route of a plan has metric 0 for IPv6
			more = append(more, fmt.Sprintf("metric %d", have.metric))
		}
	}
	if r.Source = have.source; r.Source.IsValid() && r.Type != interception.RouteUnicast {
		r.Source, more = netip.Addr{}, append(more, "src "+have.source.String())
	}
	if r.OnLink = have.onLink && r.Gateway.IsValid(); r.OnLink != have.onLink {
		more = append(more, "onlink")
	}
	if have.tos != 0 {
		more = append(more, fmt.Sprintf("tos %d", have.tos))
	}
	if have.more != "" {
		more = append(more, string(have.more))
	}
	return r, more
}

func (o *observation) rules() {
	for _, have := range o.found.rules {
		r, more := o.rule(have)
		if have.protocol == o.owner.Protocol || o.uses(r, more) {
			o.see("policy rules", r, more)
		}
	}
}

// rule returns a policy rule in the form of plans, and what it has beyond that.
func (o *observation) rule(have foundRule) (r interception.PolicyRule, more []string) {
	r = interception.PolicyRule{
		Family: interception.IPv4, Source: have.source, Destination: have.destination, In: interception.Interface(have.in),
		Mark:  interception.MarkBits{Value: interception.Mark(have.mark), Mask: interception.Mark(have.mask)},
		Table: tableOf(have.table), Goto: have.target, Priority: have.priority,
	}
	r.Any = !r.Source.IsValid() && !r.Destination.IsValid() && r.In == "" && r.Mark.IsEmpty()
	if have.family == unix.AF_INET6 {
		r.Family = interception.IPv6
	}
	if have.more != "" {
		more = append(more, string(have.more))
	}
	if have.nowhere {
		more = append(more, "which no rule has")
	}
	return r, more
}

// tableOf returns the table of a number. Plans have their own number for the main table.
func tableOf(number uint32) interception.RoutingTable {
	if number == unix.RT_TABLE_MAIN {
		return 0
	}
	return interception.RoutingTable(number)
}
