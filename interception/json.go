// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// MarshalJSON writes the plan as an object with its owner and its objects, each under the name of
// its kind. A condition is the text of its set, after a "!" for [Not]. Nothing is lost:
// [Plan.UnmarshalJSON] reads it back to an equal plan. A condition with an empty set, which
// [Plan.Validate] refuses, is an error that wraps [ErrPlan].
func (p *Plan) MarshalJSON() ([]byte, error) {
	w := jsonWriter{bytes: make([]byte, 0, 4<<10)}
	w.open("", '{')
	w.text("owner", string(p.Owner))
	w.open("objects", '[')
	for _, object := range p.Objects {
		if t, is := object.(Table); is {
			w.open("", '{')
			w.table(t)
			w.close('}')
			continue
		}
		text, err := json.Marshal(encodeObject(object))
		if err != nil {
			return nil, fmt.Errorf("encode plan: %w", err)
		}
		w.next("")
		w.bytes = append(w.bytes, text...)
	}
	w.close(']')
	w.close('}')
	if err := errors.Join(w.errs...); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return w.bytes, nil
}

// encodeObject returns the object's wire type under the name of its kind, for [wireObject] to read.
// It returns a map because encoding/json would prepare an encoder for every field of wireObject,
// even for kinds that the plan does not have. In a program that writes a single plan that costs
// more than the writing. A [jsonWriter] writes the tables.
func encodeObject(object Object) map[string]any {
	switch o := object.(type) {
	case Link:
		return map[string]any{"link": o}
	case Address:
		return map[string]any{"address": o}
	case Sysctl:
		return map[string]any{"sysctl": o}
	case Route:
		return map[string]any{"route": encodeRoute(o)}
	case PolicyRule:
		return map[string]any{"policyRule": encodePolicyRule(o)}
	case Set:
		return map[string]any{"set": wireSet{o.Name, o.Family.String(), o.Live, o.Addresses, o.Members.prefixes, o.Why, o.From}}
	default:
		return map[string]any{}
	}
}

// UnmarshalJSON reads what [Plan.MarshalJSON] wrote. Unknown fields, unknown words and plans that
// [Plan.Validate] refuses are errors, which leave p unchanged.
func (p *Plan) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var wire wirePlan
	if err := decoder.Decode(&wire); err != nil {
		return fmt.Errorf("decode plan: %w", err)
	}
	plan := Plan{Owner: wire.Owner}
	for i, object := range wire.Objects {
		decoded, err := object.decode(&plan)
		if err != nil {
			return fmt.Errorf("decode plan: object %d: %w", i, err)
		}
		plan.Objects = append(plan.Objects, decoded)
	}
	if err := plan.Validate(); err != nil {
		return fmt.Errorf("decode plan: %w", err)
	}
	*p = plan
	return nil
}

// The wire types are the JSON forms of objects whose fields do not have one.
type (
	wirePlan struct {
		Owner   Owner        `json:"owner"`
		Objects []wireObject `json:"objects"`
	}
	// wireObject has one field set, that of the object's kind.
	wireObject struct {
		Link       *Link           `json:"link,omitempty"`
		Address    *Address        `json:"address,omitempty"`
		Sysctl     *Sysctl         `json:"sysctl,omitempty"`
		Route      *wireRoute      `json:"route,omitempty"`
		PolicyRule *wirePolicyRule `json:"policyRule,omitempty"`
		Set        *wireSet        `json:"set,omitempty"`
		Table      *wireTable      `json:"table,omitempty"`
	}
	wireRoute struct {
		ID          RuleID       `json:"id"`
		Type        string       `json:"type"`
		Destination netip.Prefix `json:"destination"`
		Device      Interface    `json:"device,omitempty"`
		Gateway     netip.Addr   `json:"gateway,omitzero"`
		OnLink      bool         `json:"onLink,omitempty"`
		Source      netip.Addr   `json:"source,omitzero"`
		Metric      uint32       `json:"metric,omitempty"`
		Table       RoutingTable `json:"table,omitempty"`
		Why         string       `json:"why"`
		From        []Source     `json:"from,omitempty"`
	}
	wirePolicyRule struct {
		ID          RuleID       `json:"id"`
		Family      string       `json:"family"`
		Source      wireText     `json:"source,omitzero"`
		Destination wireText     `json:"destination,omitzero"`
		In          wireText     `json:"in,omitzero"`
		Mark        wireText     `json:"mark,omitzero"`
		Any         bool         `json:"any,omitempty"`
		Table       RoutingTable `json:"table"`
		Goto        uint32       `json:"goto,omitempty"`
		Priority    uint32       `json:"priority"`
		Why         string       `json:"why"`
		From        []Source     `json:"from,omitempty"`
	}
	wireSet struct {
		Name      SetName        `json:"name"`
		Family    string         `json:"family"`
		Live      bool           `json:"live,omitempty"`
		Addresses bool           `json:"addresses,omitempty"`
		Members   []netip.Prefix `json:"members,omitempty"`
		Why       string         `json:"why"`
		From      []Source       `json:"from,omitempty"`
	}
)

// decode returns the object. The plan holds the objects decoded before, to which rules refer.
func (w wireObject) decode(p *Plan) (Object, error) {
	switch kinds := w.kinds(); {
	case len(kinds) == 0:
		return nil, errors.New("it has no kind: name one of link, address, sysctl, route, policyRule, set, table")
	case len(kinds) > 1:
		return nil, fmt.Errorf("it has two kinds, %s and %s: write an object for each", kinds[0], kinds[1])
	}
	switch {
	case w.Link != nil:
		return *w.Link, nil
	case w.Address != nil:
		return *w.Address, nil
	case w.Sysctl != nil:
		return *w.Sysctl, nil
	case w.Route != nil:
		return w.Route.decode()
	case w.PolicyRule != nil:
		return w.PolicyRule.decode()
	case w.Set != nil:
		return w.Set.decode()
	default:
		return w.Table.decode(p)
	}
}

// kinds returns the names of the fields that are set.
func (w wireObject) kinds() []string {
	var names []string
	for _, kind := range []struct {
		name string
		set  bool
	}{
		{"link", w.Link != nil},
		{"address", w.Address != nil},
		{"sysctl", w.Sysctl != nil},
		{"route", w.Route != nil},
		{"policyRule", w.PolicyRule != nil},
		{"set", w.Set != nil},
		{"table", w.Table != nil},
	} {
		if kind.set {
			names = append(names, kind.name)
		}
	}
	return names
}

func encodeRoute(r Route) wireRoute {
	return wireRoute{r.ID, r.Type.String(), r.Destination, r.Device, r.Gateway, r.OnLink, r.Source, r.Metric, r.Table, r.Why, r.From}
}

func (w wireRoute) decode() (Object, error) {
	kind, err := word(w.Type, routeTypes()...)
	return Route{w.ID, kind, w.Destination, w.Device, w.Gateway, w.OnLink, w.Source, w.Metric, w.Table, w.Why, w.From}, err
}

func encodePolicyRule(r PolicyRule) wirePolicyRule {
	w := wirePolicyRule{
		ID: r.ID, Family: r.Family.String(), In: written(string(r.In)), Any: r.Any,
		Table: r.Table, Goto: r.Goto, Priority: r.Priority, Why: r.Why, From: r.From,
	}
	if r.Source != (netip.Prefix{}) {
		w.Source = written(r.Source.String())
	}
	if r.Destination != (netip.Prefix{}) {
		w.Destination = written(r.Destination.String())
	}
	if r.Mark != (MarkBits{}) {
		w.Mark = written(r.Mark.String())
	}
	return w
}

func (w wirePolicyRule) decode() (Object, error) {
	r := PolicyRule{ID: w.ID, Any: w.Any, Table: w.Table, Goto: w.Goto, Priority: w.Priority, Why: w.Why, From: w.From}
	family, err := word(w.Family, IPv4, IPv6)
	r.Family = family
	return r, errors.Join(
		err,
		decodeMember("source", &r.Source, w.Source, netip.ParsePrefix),
		decodeMember("destination", &r.Destination, w.Destination, netip.ParsePrefix),
		decodeMember("in", &r.In, w.In, func(text string) (Interface, error) { return Interface(text), nil }),
		decodeMember("mark", &r.Mark, w.Mark, parseMarkBits),
	)
}

func (w wireSet) decode() (Object, error) {
	family, err := word(w.Family, IPv4, IPv6)
	if err != nil {
		return nil, err
	}
	for _, member := range w.Members {
		if !member.IsValid() {
			return nil, fmt.Errorf("set %q has an invalid member", string(w.Name))
		}
	}
	return Set{w.Name, family, w.Live, w.Addresses, Prefixes(w.Members...), w.Why, w.From}, nil
}

// word returns the value that prints as text.
func word[T fmt.Stringer](text string, values ...T) (T, error) {
	for _, value := range values {
		if value.String() == text {
			return value, nil
		}
	}
	var none T
	return none, fmt.Errorf("%q is not one of %v", text, values)
}
