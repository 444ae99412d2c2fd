// SPDX-License-Identifier: Apache-2.0

package ambientconf

import (
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// WholePlan returns a plan with all that the plans of pods and of the host need, for a trial on a
// machine. The chains of both have different names.
func (c Config) WholePlan() (*interception.Plan, error) {
	facts := interception.Facts{IPv6: true, LoopbackIPv6: true}
	pod, err := ambient.PodPlan(ambient.DefaultOverrides(c.DNS), ambient.IstioNumbers(), facts, Owner)
	if err != nil || c.NoHost {
		return pod, err
	}
	host, err := ambient.HostPlan(ambient.IstioNumbers(), facts, Owner)
	if err != nil {
		return nil, err
	}
	return join(pod, host), nil
}

// join returns a plan with the objects of both. A plan has one table of a kind at most, so that the
// tables are joined; they come last, as they refer to sets.
func join(a, b *interception.Plan) *interception.Plan {
	joined := &interception.Plan{Owner: a.Owner}
	var tables []interception.Table
	for _, object := range slices.Concat(a.Objects, b.Objects) {
		table, is := object.(interception.Table)
		if !is {
			joined.Objects = append(joined.Objects, object)
			continue
		}
		i := slices.IndexFunc(tables, func(t interception.Table) bool { return t.Kind == table.Kind })
		if i < 0 {
			tables = append(tables, table)
			continue
		}
		tables[i].Entries, tables[i].Chains = slices.Concat(tables[i].Entries, table.Entries), slices.Concat(tables[i].Chains, table.Chains)
	}
	for _, table := range tables {
		joined.Objects = append(joined.Objects, table)
	}
	return joined
}
