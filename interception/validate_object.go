// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// object checks an object by itself. Tables are checked once all sets are known.
func (v *validator) object(o Object) {
	switch o := o.(type) {
	case Set:
		v.set(o)
	case Link:
		v.noted(o.ID, o.Why, linkError(o))
		if v.links[o.Name] {
			v.check(place{kind: "object", name: string(o.ID)}, errors.New("another link has the same name"))
		}
		v.links[o.Name] = true
	case Address:
		v.noted(o.ID, o.Why, errors.Join(o.Device.Validate(), plainPrefixError(o.Prefix)))
	case Sysctl:
		v.noted(o.ID, o.Why, sysctlError(o))
	case Route:
		v.noted(o.ID, o.Why, routeError(o))
	case PolicyRule:
		v.noted(o.ID, o.Why, policyRuleError(o))
	case Table:
	default:
		v.check(place{kind: "objects"}, errors.New("an object is nil"))
	}
}

// noted checks the fields that every object with an id has, and records the object's own error.
func (v *validator) noted(id RuleID, why string, err error) {
	at := place{kind: "object", name: string(id)}
	v.id(at, id)
	v.check(at, validateWhy(why))
	v.check(at, err)
}

func (v *validator) set(s Set) {
	at := place{kind: "set", name: string(s.Name)}
	v.check(at, s.Name.Validate())
	v.check(at, validateWhy(s.Why))
	if _, double := v.sets[s.Name]; double {
		v.check(at, errors.New("another set has the same name"))
	}
	v.sets[s.Name] = s.Family
	switch {
	case s.Live && (s.Family == BothFamilies || !s.Members.IsEmpty()):
		v.check(at, errors.New("a live set has one family, and its members are not the plan's"))
	case s.Addresses && !s.Live:
		v.check(at, errors.New("only a live set is one of addresses: a fixed set has prefixes"))
	case !s.Live && (s.Family == BothFamilies || s.Members.Family() != s.Family):
		v.check(at, errors.New("its members must be of one family, and there must be one: split it by family, leave out what is empty"))
	}
}

// plainAddrError refuses addresses that the kernel would return in another form.
func plainAddrError(what string, a netip.Addr) error {
	if plain := a.Unmap().WithZone(""); a != plain {
		return fmt.Errorf("%s %s is not a plain address: write %s", what, a, plain)
	}
	return nil
}

func plainPrefixError(p netip.Prefix) error {
	if !p.IsValid() || p.Addr().Is4In6() {
		return fmt.Errorf("prefix %s is not a plain one", p)
	}
	return nil
}

// sysctlError restricts keys to /proc/sys/net, where parameters belong to a network namespace.
func sysctlError(s Sysctl) error {
	parts := strings.Split(s.Key, "/")
	bad := len(parts) < 2 || slices.ContainsFunc(parts, func(part string) bool {
		return validateName("sysctl", part, 64, lower+upper+digits, lower+upper+digits+"_.-") != nil
	})
	if bad {
		return fmt.Errorf(`key %q is not a path such as "ipv4/conf/all/route_localnet"`, s.Key)
	}
	return nil
}
