// SPDX-License-Identifier: Apache-2.0

//go:build !iptables

package main

import (
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/nftables"
)

// dataplanes returns that of the small build: nftables alone. CHECK reports the rules of other
// programs.
func dataplanes() ([]choice.Candidate, error) {
	native, err := nftables.New(nftables.Options{Foreign: true})
	return []choice.Candidate{{Name: choice.NFTables, Dataplane: native}}, err
}
