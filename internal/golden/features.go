// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"fmt"
	"reflect"

	"github.com/meshcni/meshcni/interception"
)

// Features are what a plan has: ids, kinds of objects, and for each table its hooks, the conditions of its rules and entries, as they are
// or negated, and its actions.
func Features(plan *interception.Plan) map[string]bool {
	all := map[string]bool{}
	note := func(format string, arguments ...any) { all[fmt.Sprintf(format, arguments...)] = true }
	for _, object := range plan.Objects {
		note("object %T", object)
		if id := reflect.ValueOf(object).FieldByName("ID"); id.IsValid() {
			note("id %s", id)
		}
	}
	for set := range plan.Sets() {
		note("set %s", set.Name)
	}
	for table := range plan.Tables() {
		for _, entry := range table.Entries {
			note("id %s", entry.ID)
			note("%s: hook %s", table.Kind, entry.Hook)
			for _, condition := range conditions(entry.Match) {
				note("%s: entry with %s", table.Kind, condition)
			}
		}
	}
	for at, rule := range plan.Rules() {
		note("id %s", rule.ID)
		note("%s: %T", at.Table, rule.Action)
		for _, condition := range conditions(rule.Match) {
			note("%s: %s", at.Table, condition)
		}
	}
	return all
}

// condition is any interception.Condition.
type condition interface {
	Present() bool
	Negated() bool
}

// conditions are the fields of a match that are there, and which of them are negated.
func conditions(m interception.Match) []string {
	var all []string
	note := func(name string, value any) {
		switch c := value.(type) {
		case condition:
			if c.Present() {
				all = append(all, fmt.Sprintf("%s negated %t", name, c.Negated()))
			}
		case interception.L4:
		default:
			if !reflect.ValueOf(value).IsZero() {
				all = append(all, name)
			}
		}
	}
	for field, value := range reflect.ValueOf(m).Fields() {
		note(field.Name, value.Interface())
	}
	note("protocol "+m.L4.Protocol().String(), m.L4.Protocol())
	note("source port", m.L4.SrcPort())
	note("destination port", m.L4.DstPort())
	note("flags", m.L4.TCPFlags())
	return all
}
