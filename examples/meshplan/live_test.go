// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// TestObserveWhatCanBeRead observes dataplanes that cannot be read, with and without rules in the
// others.
func TestObserveWhatCanBeRead(t *testing.T) {
	t.Parallel()
	const owner interception.Owner = "istio-cni"
	plan, err := interception.Build(owner, func(b *interception.Builder) {
		b.Filter("input").Entry(interception.Input, interception.Match{}, "an entry")
	})
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("iptables-save is missing")
	for name, test := range map[string]struct {
		rules, unreadable []string
		want, warning     string
	}{
		"both have none":               {},
		"one has rules":                {rules: []string{"iptables"}},
		"both have rules":              {rules: []string{"nftables", "iptables"}, want: "choose one with --dataplane"},
		"the other can't be read":      {rules: []string{"nftables"}, unreadable: []string{"iptables"}, warning: "iptables: "},
		"the first can't be read":      {rules: []string{"iptables"}, unreadable: []string{"nftables"}, warning: "nftables: "},
		"no rules in what can be read": {unreadable: []string{"iptables"}, want: "add --dataplane nftables"},
		"none can be read":             {unreadable: []string{"nftables", "iptables"}, want: bad.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var readers []reader
			var ns *interception.Netns
			for _, dataplane := range []string{"nftables", "iptables"} {
				d := fake.New(fake.Options{Before: func(c fake.Call) error {
					if c.Verb == fake.Observe && strings.Contains(strings.Join(test.unreadable, " "), dataplane) {
						return bad
					}
					return nil
				}})
				ns = d.Netns("pod")
				if strings.Contains(strings.Join(test.rules, " "), dataplane) {
					if err := d.Apply(t.Context(), ns, plan); err != nil {
						t.Fatal(err)
					}
				}
				readers = append(readers, reader{d, dataplane})
			}
			var warnings bytes.Buffer
			state, err := observe(t.Context(), ns, owner, readers, &warnings)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				return
			}
			if err != nil || (len(state.Objects) > 0) != (test.rules != nil) {
				t.Errorf("%+v, %v", state, err)
			}
			if got := warnings.String(); (got != "") != (test.warning != "") || !strings.Contains(got, test.warning) {
				t.Errorf("warnings %q, want %q", got, test.warning)
			}
		})
	}
}
