// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/ipset"
)

// ipsets calls use with a socket for the namespace's ipsets.
func (a *ownedRules) ipsets(use func(*ipset.Socket) error) error {
	socket, err := ipset.Dial(a.backend.Kernel(a.ns.File()))
	if err != nil {
		return err
	}
	return errors.Join(use(socket), socket.Close())
}

// lookForSets reads the names of the owner's ipsets. It asks nothing of a kernel without the module
// ip_set, which would load it.
func (a *ownedRules) lookForSets() error {
	if _, err := os.Stat("/sys/module"); err == nil {
		if _, err := os.Stat("/sys/module/ip_set"); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	err := a.ipsets(func(s *ipset.Socket) error {
		names, err := s.Names()
		for _, name := range names {
			if strings.HasPrefix(name, lower.IPSetPrefix(a.plan.Owner)) {
				a.s.ipsets = append(a.s.ipsets, name)
			}
		}
		return err
	})
	if errors.Is(err, interception.ErrUnsupported) {
		return nil
	}
	return err
}

// wantedSets returns the names of the ipsets that a plan needs.
func wantedSets(p *interception.Plan) map[string]interception.Set {
	wanted := map[string]interception.Set{}
	for set := range p.Sets() {
		if name, err := lower.IPSet(p.Owner, set); err == nil && set.Live { // Supports has refused other names
			wanted[name] = set
		}
	}
	return wanted
}

// makeSets makes the ipsets that the plan needs and the namespace lacks. It returns the names of
// those that it has made, also with an error.
func (a *ownedRules) makeSets() (made []string, err error) {
	lacking := wantedSets(a.plan)
	for _, name := range a.s.ipsets {
		delete(lacking, name)
	}
	if len(lacking) == 0 {
		return nil, nil
	}
	err = a.ipsets(func(s *ipset.Socket) error {
		for name, set := range lacking {
			if err := s.Create(name, typeOf(set), set.Family); err != nil {
				return fmt.Errorf("set %s (%s): %w", set.Name, set.Why, err)
			}
			made = append(made, name)
		}
		return nil
	})
	a.s.ipsets = append(a.s.ipsets, made...)
	return made, err
}

func typeOf(s interception.Set) ipset.Type {
	if s.Addresses {
		return ipset.OfAddresses
	}
	return ipset.OfNetworks
}

// removeSets removes ipsets, which no rule of the owner uses any more.
func (a *ownedRules) removeSets(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	return a.ipsets(func(s *ipset.Socket) error {
		for _, name := range names {
			if err := destroy(ctx, s, name); err != nil {
				return err
			}
			a.s.ipsets = slices.DeleteFunc(a.s.ipsets, func(other string) bool { return other == name })
		}
		return nil
	})
}

// destroy removes an ipset. The kernel lets go of a rule of nf_tables some time after the rule has
// been deleted, and tells no program when.
func destroy(ctx context.Context, s *ipset.Socket, name string) error {
	for {
		err := s.Destroy(name)
		if !errors.Is(err, ipset.ErrInUse) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: delete another program's rules that name it", err)
		}
	}
}

// superfluous returns the ipsets that the plan does not need: those of another plan, and what an
// edit that was killed has left.
func (a *ownedRules) superfluous() []string {
	wanted := wantedSets(a.plan)
	return slices.DeleteFunc(slices.Clone(a.s.ipsets), func(name string) bool {
		set, ok := strings.CutSuffix(name, tokenSuffix)
		if ok {
			_, ok = wanted[set+addressesSuffix]
			return ok
		}
		_, ok = wanted[name]
		return ok
	})
}

// observeSets adds the owner's live sets with their members to a state.
func (a *ownedRules) observeSets(state *interception.State) error {
	if len(a.s.ipsets) == 0 {
		return nil
	}
	return a.ipsets(func(s *ipset.Socket) error {
		for _, name := range a.s.ipsets {
			set, ok := lower.ParseIPSet(state.Owner, name)
			if !ok {
				continue // it belongs to an edit
			}
			there, err := s.Read(name)
			if err != nil {
				return err
			}
			if there.Type != typeOf(set) || there.Family != set.Family {
				state.Deviations = append(state.Deviations, interception.Deviation{
					At: "set " + string(set.Name), Want: string(typeOf(set)), Got: string(there.Type) + " of " + there.Family.String(),
				})
			}
			var members []netip.Prefix
			owners := map[netip.Addr]string{}
			for _, m := range there.Members {
				members = append(members, m.Prefix)
				owners[m.Prefix.Addr()] = m.Comment
			}
			if set.Members = interception.Prefixes(members...); set.Addresses && len(owners) > 0 {
				if state.Owners == nil {
					state.Owners = map[interception.SetName]map[netip.Addr]string{}
				}
				state.Owners[set.Name] = owners
			}
			state.Objects = append(state.Objects, set)
		}
		return nil
	})
}
