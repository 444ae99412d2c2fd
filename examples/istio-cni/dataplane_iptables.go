// SPDX-License-Identifier: Apache-2.0

//go:build iptables

package main

import (
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// dataplanes are those of the build with iptables, each of which takes away what the other one left. CHECK tells of the rules of others.
func dataplanes() ([]choice.Candidate, error) {
	return standard.Candidates(nftables.Options{Foreign: true}, iptables.Options{Foreign: true, Nsenter: []string{"nsenter"}})
}
