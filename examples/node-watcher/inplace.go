// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
	"github.com/meshcni/meshcni/repair/inplace"
)

// namespaces returns access to those of the node's pods. If the daemon does not configure how to
// find them, it reads only the plugin's records.
func namespaces(c repairconf.Config, version string, log *slog.Logger) (controller.Namespaces, error) {
	roots := podnetns.Roots{Results: c.Results, Journal: c.Journal}
	if c.InPlace == nil {
		records, err := podnetns.NewRecords(roots)
		return inplace.Records{Records: records}, err
	}
	roots.Proc, roots.Netns = c.InPlace.Proc, c.InPlace.Netns
	finder, err := podnetns.NewFinder(roots)
	if err != nil {
		return nil, err
	}
	all, err := dataplanes(c.InPlace.Dataplane)
	if err != nil {
		return nil, fmt.Errorf("look into network namespaces: %w", err)
	}
	mesh := c.Mesh()
	return inplace.NewRepairer(inplace.Options{
		Finder: finder, Dataplanes: all, Mesh: mesh, Owner: mesh.Owner, Planner: version,
		Plan: func(pod interception.Pod, facts interception.Facts) (*interception.Plan, error) {
			planned, err := mesh.Plan(pod, facts) // its warnings were reported when the pod was created
			return planned.Plan, err
		},
		OnWarning: func(of repair.Target, err error) {
			log.Warn("a repaired pod needs attention", "pod", of.String(), "error", err)
		},
	})
}

// dataplanes returns all that may have applied a pod's rules, that of the plugin's setting first.
func dataplanes(setting string) ([]choice.Candidate, error) {
	all, err := standard.Candidates(nftables.Options{Foreign: true}, iptables.Options{Foreign: true, Nsenter: []string{"nsenter"}})
	return preferring(setting, all), err
}

// preferring moves the dataplane of a setting to the front. The others stay: pods may have rules of
// theirs.
func preferring(setting string, all []choice.Candidate) []choice.Candidate {
	if i := slices.IndexFunc(all, func(c choice.Candidate) bool { return c.Name == setting }); i > 0 {
		return slices.Concat(all[i:i+1], all[:i], all[i+1:])
	}
	return all
}
