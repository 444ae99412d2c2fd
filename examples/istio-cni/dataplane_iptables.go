// SPDX-License-Identifier: Apache-2.0

//go:build iptables

package main

import (
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// dataplanes returns those of the build with iptables. Each removes what the other one left. CHECK
// reports the rules of other programs.
func dataplanes() ([]choice.Candidate, error) {
	return standard.Candidates(nftables.Options{Foreign: true}, iptables.Options{Foreign: true, Nsenter: []string{"nsenter"}})
}
