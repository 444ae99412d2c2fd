// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// validateAction checks what types cannot: tables of actions, hooks, protocols, families, values.
func validateAction(t Table, r Rule, hooks []Hook) error {
	rules, ok := actionRules(r.Action)
	opaque, undecoded := r.Action.(Opaque)
	switch {
	case undecoded:
		return fmt.Errorf("it was found in a kernel and could not be decoded: %s", opaque.Text)
	case !ok:
		return errors.New("the rule has no action")
	case !slices.Contains(rules.tables, t.Kind):
		return fmt.Errorf("%s is not for a %s table: it belongs in %v", r.Action, t.Kind, rules.tables)
	case rules.transport && r.Match.L4.Protocol() == AnyProtocol:
		return fmt.Errorf("%s needs a protocol: match TCP() or UDP()", r.Action)
	}
	for _, hook := range hooks {
		if rules.hooks != nil && !slices.Contains(rules.hooks, hook) {
			return fmt.Errorf("%s works in %v only, and the chain is reached from %s", r.Action, rules.hooks, hook)
		}
	}
	return validateValues(t, r)
}

// actionRule says where an action is allowed.
type actionRule struct {
	tables    []TableKind
	hooks     []Hook // nil for all hooks of the table
	transport bool   // the rule must match TCP or UDP
}

func actionRules(a Action) (actionRule, bool) {
	inOut := []Hook{Prerouting, Output}
	switch a := a.(type) {
	case Accept, Return, Jump, Log:
		return actionRule{tables: TableKinds()}, true
	case Drop:
		return actionRule{tables: []TableKind{Raw, Mangle, Filter}}, true
	case Reject:
		return actionRule{tables: []TableKind{Filter}}, true
	case RedirectTo:
		return actionRule{tables: []TableKind{NAT}, hooks: inOut, transport: true}, true
	case DNATTo:
		return actionRule{tables: []TableKind{NAT}, hooks: inOut, transport: a.Port != 0}, true
	case SNATTo:
		return actionRule{tables: []TableKind{NAT}, hooks: []Hook{Input, Postrouting}, transport: a.Port != 0}, true
	case TProxyTo:
		return actionRule{tables: []TableKind{Mangle}, hooks: []Hook{Prerouting}, transport: true}, true
	case SetMark, SaveMark, RestoreMark, SetConnMark:
		return actionRule{tables: []TableKind{Mangle}}, true
	case SetZone, NoTrack:
		return actionRule{tables: []TableKind{Raw}}, true
	default:
		return actionRule{}, false
	}
}

// validateValues checks an action's parameters.
func validateValues(t Table, r Rule) error {
	switch a := r.Action.(type) {
	case Jump:
		if _, ok := t.Chain(a.Chain); !ok {
			return fmt.Errorf("chain %q, the target of the jump, is not in the table", string(a.Chain))
		}
	case RedirectTo:
		return portError(a, a.Port)
	case TProxyTo:
		return errors.Join(portError(a, a.Port), writtenMarkError(a, a.Mark))
	case SetMark:
		return writtenMarkError(a, a.Mark)
	case SetConnMark:
		return writtenMarkError(a, a.Mark)
	case SetZone:
		return zoneError(a)
	case DNATTo:
		return addressError(a, a.Addr, r.Match)
	case SNATTo:
		if a.Keep {
			return keepError(a, r.Match)
		}
		return addressError(a, a.Addr, r.Match)
	case Log:
		return validateName("log prefix", a.Prefix, maxLogPrefix, prose, prose)
	}
	return nil
}

func portError(a Action, port Port) error {
	if port == 0 {
		return fmt.Errorf("%s: port 0 is not a port: name the proxy's", a)
	}
	return nil
}

func writtenMarkError(a Action, m MarkBits) error {
	if m.IsEmpty() {
		return fmt.Errorf("%s writes no bit: name a mask, or use WholeMark", a)
	}
	return markError(m)
}

func zoneError(a SetZone) error {
	if a.Zone == 0 && a.Direction != AnyDirection {
		return fmt.Errorf("%s: the default zone is that of both directions: leave the direction out", a)
	}
	return validateDirection(a.Direction)
}

func keepError(a SNATTo, m Match) error {
	switch {
	case a != SNATTo{Keep: true}:
		return fmt.Errorf("%s has an address or a port, too: leave them out, or Keep", a)
	case m.EffectiveFamily() == BothFamilies:
		return fmt.Errorf("%s in a rule of both families: set Match.Family", a)
	}
	return nil
}

func addressError(a Action, addr netip.Addr, m Match) error {
	if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsMulticast() {
		return fmt.Errorf("%s: name a plain unicast address", a)
	}
	if m.EffectiveFamily() != FamilyOf(addr) {
		return fmt.Errorf("%s in a rule of %s: set Match.Family to the address's", a, m.EffectiveFamily())
	}
	return nil
}
