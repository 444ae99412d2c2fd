// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// maxTrials bounds the search for missing features. No plan has that many kinds of rules.
const maxTrials = 64

// lacks tries a plan's rules in a scratch namespace and returns what the dataplane or the kernel
// lacks for them, or nil. The error is the reason if it cannot be determined.
func lacks(
	ctx context.Context, d interception.Dataplane, p *interception.Plan, scratch func() (*interception.Netns, error),
) (missing []error, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.Supports(p); errors.Is(err, interception.ErrUnsupported) {
		return []error{err}, nil
	} else if err != nil {
		return nil, err
	}
	ns, err := scratch()
	if err != nil {
		return nil, fmt.Errorf("make a network namespace for a trial: %w", err)
	}
	defer func() { _ = ns.Close() }()
	for rest, ok := route.RulesOf(p), true; ok && len(missing) < maxTrials; {
		err := d.Apply(ctx, ns, rest)
		switch {
		case err == nil || missing != nil && !errors.Is(err, interception.ErrUnsupported):
			return missing, ctx.Err() // an invalid rest reveals no more
		case !errors.Is(err, interception.ErrUnsupported):
			return nil, err
		}
		var at *interception.ApplyError
		if missing, ok = append(missing, err), errors.As(err, &at); ok {
			// The namespace in err is of no interest.
			missing[len(missing)-1] = at
			rest, ok = without(rest, at.At)
		}
	}
	return missing, nil
}

// without returns the plan without the part that an error names, and without similar parts. It
// reports whether it removed any and something is left. at names a rule, an entry, a set or a
// table, as in [interception.ApplyError].
func without(p *interception.Plan, at string) (*interception.Plan, bool) {
	kinds := map[kind]bool{}
	for _, r := range p.Rules() {
		if string(r.ID) == at {
			kinds[kindOf(r)] = true
		}
	}
	rest, found := &interception.Plan{Owner: p.Owner}, false
	for _, object := range p.Objects {
		if t, ok := object.(interception.Table); ok {
			if t.Kind.String() == at {
				found = true
				continue
			}
			var less interception.Table
			less, found = tableWithout(t, found, func(r interception.Rule) bool { return kinds[kindOf(r)] || refersTo(r.Match, at) },
				func(e interception.Entry) bool { return string(e.ID) == at || refersTo(e.Match, at) })
			object = less
		}
		if s, ok := object.(interception.Set); ok && string(s.Name) == at {
			found = true
			continue
		}
		rest.Objects = append(rest.Objects, object)
	}
	return rest, found && len(rest.Objects) > 0
}

// tableWithout removes rules and entries. It reports whether it removed any, or found was true.
func tableWithout(
	t interception.Table, found bool, rule func(interception.Rule) bool, entry func(interception.Entry) bool,
) (interception.Table, bool) {
	less := interception.Table{Kind: t.Kind, Entries: slices.DeleteFunc(slices.Clone(t.Entries), entry)}
	found = found || len(less.Entries) < len(t.Entries)
	for _, c := range t.Chains {
		rules := slices.DeleteFunc(slices.Clone(c.Rules), rule)
		found = found || len(rules) < len(c.Rules)
		less.Chains = append(less.Chains, interception.Chain{Name: c.Name, Rules: rules})
	}
	return less, found
}

// refersTo reports whether a match refers to the set of this name.
func refersTo(m interception.Match, name string) bool {
	return string(m.SrcSet.Set().Name) == name || string(m.DstSet.Set().Name) == name
}

// kind groups rules with the same needs of a kernel: by action and by kinds of conditions.
type kind struct {
	action     reflect.Type
	conditions string
}

func kindOf(r interception.Rule) kind {
	m := reflect.ValueOf(r.Match)
	conditions := ""
	for i := range m.NumField() {
		if !m.Field(i).IsZero() {
			conditions += m.Type().Field(i).Name + " "
		}
	}
	return kind{reflect.TypeOf(r.Action), conditions}
}
