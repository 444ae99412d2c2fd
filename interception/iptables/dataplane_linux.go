// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/backend"
	"github.com/meshcni/meshcni/internal/kernel"
)

func newDataplane(d *Dataplane) (*Dataplane, error) {
	if d.options.Runner == nil {
		d.options.Runner = runner{}
	}
	d.backend.Kernel, d.backend.Open, d.backend.Supports, d.backend.Edit = kernel.Of, d.open, d.Supports, d.editSet
	d.heritage = d.backend.Heritage(backend.IPTables)
	return d, nil
}

func (d *Dataplane) open(ns *interception.Netns, owner interception.Owner) (backend.Rules, func(), error) {
	tools, err := openTools(d.options, ns.File())
	if err != nil {
		return nil, nil, err
	}
	return &ownedRules{Dataplane: d, ns: ns, plan: &interception.Plan{Owner: owner}, prefix: prefix(owner), tools: tools}, tools.close, nil
}
