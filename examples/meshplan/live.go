// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// openLive opens the namespace when the argument names one.
func openLive(argument string) (ns *interception.Netns, live bool, err error) {
	if path, found := strings.CutPrefix(argument, "netns:"); found {
		ns, err = interception.OpenNetns(path, interception.NetnsOptions{})
		return ns, true, err
	}
	if number, found := strings.CutPrefix(argument, "pid:"); found {
		pid, err := strconv.Atoi(number)
		if err != nil || pid < 1 {
			return nil, true, fmt.Errorf("%q is no process id", number)
		}
		ns, err = interception.OpenNetnsOfPID(pid, interception.NetnsOptions{})
		return ns, true, err
	}
	return nil, false, nil
}

// observe reads what the namespace holds of the owner.
func (s *source) observe(ctx context.Context, ns *interception.Netns) (interception.State, error) {
	dataplanes, err := s.dataplanes()
	if err != nil {
		return interception.State{}, err
	}
	states := make([]interception.State, len(dataplanes))
	for i, d := range dataplanes {
		if states[i], err = d.Observe(ctx, ns, interception.Owner(s.owner)); err != nil {
			return interception.State{}, fmt.Errorf("%s: %w", ns, err)
		}
	}
	var found []interception.State
	for _, state := range states {
		if slices.ContainsFunc(state.Objects, isTable) {
			found = append(found, state)
		}
	}
	switch len(found) {
	case 0:
		return states[0], nil
	case 1:
		return found[0], nil
	default:
		return interception.State{}, fmt.Errorf("%s has rules of %s in nftables and in iptables: choose one with --dataplane", ns, s.owner)
	}
}

func isTable(o interception.Object) bool {
	_, is := o.(interception.Table)
	return is
}

// dataplanes are those that are to be looked into.
func (s *source) dataplanes() ([]interception.Dataplane, error) {
	nft, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		return nil, err
	}
	tables, err := iptables.New(iptables.Options{Nsenter: []string{"nsenter"}})
	if err != nil {
		return nil, err
	}
	switch s.dataplane.value {
	case "nftables":
		return []interception.Dataplane{nft}, nil
	case "iptables":
		return []interception.Dataplane{tables}, nil
	default:
		return []interception.Dataplane{nft, tables}, nil
	}
}
