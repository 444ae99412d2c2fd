// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// openLive opens the namespace if the argument names one.
func openLive(argument string) (ns *interception.Netns, live bool, err error) {
	if path, found := strings.CutPrefix(argument, "netns:"); found {
		ns, err = interception.OpenNetns(path, interception.NetnsOptions{})
		return ns, true, err
	}
	if number, found := strings.CutPrefix(argument, "pid:"); found {
		pid, err := strconv.Atoi(number)
		if err != nil || pid < 1 {
			return nil, true, fmt.Errorf("%q is not a process id", number)
		}
		ns, err = interception.OpenNetns(fmt.Sprintf("/proc/%d/ns/net", pid), interception.NetnsOptions{})
		return ns, true, err
	}
	return nil, false, nil
}

type reader struct {
	interception.Dataplane

	name string
}

// observe returns the namespace's state in the dataplane that has rules of the owner. It prints a
// warning for each other dataplane that cannot be read. If no readable one has rules and another is
// unreadable, the error explains how to skip the latter.
func observe(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, readers []reader, warnings io.Writer,
) (interception.State, error) {
	var read, found []interception.State
	var names []string
	var unread []error
	for _, r := range readers {
		state, err := r.Observe(ctx, ns, owner)
		if err != nil {
			unread = append(unread, fmt.Errorf("%s: %w", r.name, err))
			continue
		}
		read, names = append(read, state), append(names, r.name)
		if slices.ContainsFunc(state.Objects, isTable) {
			found = append(found, state)
		}
	}
	switch {
	case len(found) > 1:
		return interception.State{}, fmt.Errorf("%s has rules of %s in nftables and in iptables: choose one with --dataplane", ns, owner)
	case len(read) == 0 || ctx.Err() != nil:
		return interception.State{}, fmt.Errorf("%s: %w", ns, errors.Join(unread...))
	case len(found) == 0 && len(unread) > 0:
		return interception.State{}, fmt.Errorf("%s: no rules of %s in %s, and there may be some in what could not be read: %w; "+
			"to look into %[3]s alone, add --dataplane %[3]s", ns, owner, names[0], errors.Join(unread...))
	case len(found) == 0:
		return withForeign(read[0], read[1:]...), nil
	}
	for _, err := range unread {
		fmt.Fprintf(warnings, "warning: %s: left out, as it could not be read: %v\n", ns, err)
	}
	return found[0], nil
}

// withForeign adds to a state the other programs' chains in any of the states.
func withForeign(state interception.State, more ...interception.State) interception.State {
	for _, other := range more {
		for _, chain := range other.Foreign {
			known := func(c interception.ForeignChain) bool { return c.Table == chain.Table && c.Name == chain.Name }
			if !slices.ContainsFunc(state.Foreign, known) {
				state.Foreign = append(slices.Clip(state.Foreign), chain)
			}
		}
	}
	return state
}

func isTable(o interception.Object) bool {
	_, is := o.(interception.Table)
	return is
}

func (s *source) readers() ([]reader, error) {
	nft, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		return nil, err
	}
	tables, err := iptables.New(iptables.Options{Nsenter: []string{"nsenter"}, Foreign: true})
	if err != nil {
		return nil, err
	}
	all := []reader{{nft, "nftables"}, {tables, "iptables"}}
	return slices.DeleteFunc(all, func(r reader) bool {
		return s.dataplane.value != "auto" && s.dataplane.value != r.name
	}), nil
}
