// SPDX-License-Identifier: Apache-2.0

//go:build iptables

package plugin

import (
	"errors"
	"os/exec"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// programIsMissing reports whether an error is about a program that the node doesn't have.
func programIsMissing(err error) bool { return errors.Is(err, exec.ErrNotFound) }

// newDataplane makes the dataplane of a setting (pluginconf.Dataplanes), which tells its name when it has applied a plan. Each takes
// away what the other one left.
func newDataplane(setting string, applied func(name string)) (interception.Dataplane, error) {
	candidates, err := standard.Candidates( // CHECK tells of what is foreign
		nftables.Options{Foreign: true}, iptables.Options{Foreign: true, Nsenter: []string{"nsenter"}})
	if err != nil {
		return nil, err
	}
	if setting != pluginconf.Auto {
		candidates = slices.DeleteFunc(candidates, func(c choice.Candidate) bool { return c.Name != setting })
	}
	for i, c := range candidates {
		candidates[i].Dataplane = telling{c.Dataplane, func() { applied(c.Name) }}
	}
	return choice.New(candidates...)
}
