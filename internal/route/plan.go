// SPDX-License-Identifier: Apache-2.0

package route

import "github.com/meshcni/meshcni/interception"

// RulesOf returns the part of a plan that is not this package's: its sets and tables.
func RulesOf(p *interception.Plan) *interception.Plan {
	rules := &interception.Plan{Owner: p.Owner}
	for _, object := range p.Objects {
		switch object.(type) {
		case interception.Set, interception.Table:
			rules.Objects = append(rules.Objects, object)
		}
	}
	return rules
}

// OnlyRules reports whether a plan has nothing that precedes its rules.
func OnlyRules(p *interception.Plan) bool { return len(RulesOf(p).Objects) == len(p.Objects) }
