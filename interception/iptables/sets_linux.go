// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// mayHaveIPSets is false for a kernel without the module ip_set. To ask it for ipsets would load
// the module.
func mayHaveIPSets() bool {
	if _, err := os.Stat("/sys/module"); err != nil {
		return true
	}
	_, err := os.Stat("/sys/module/ip_set")
	return !errors.Is(err, os.ErrNotExist)
}

// lookForSets reads the names of the owner's ipsets.
func (a *ownedRules) lookForSets() error {
	if !mayHaveIPSets() {
		return nil
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
	wanted := wantedSets(a.plan)
	if len(wanted) == 0 {
		return nil, nil
	}
	err = a.ipsets(func(s *ipset.Socket) error {
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			set := wanted[name]
			isNew, err := a.makeSet(s, name, set)
			if err != nil {
				return fmt.Errorf("set %s (%s): %w", set.Name, set.Why, err)
			}
			if isNew {
				made = append(made, name)
			}
		}
		return nil
	})
	a.s.ipsets = append(a.s.ipsets, made...)
	return made, err
}

// makeSet makes an ipset unless it is there. One of another form, which another program has made,
// goes first.
func (a *ownedRules) makeSet(s *ipset.Socket, name string, set interception.Set) (isNew bool, err error) {
	if slices.Contains(a.s.ipsets, name) {
		there, err := s.Header(name)
		if err == nil && !isForm(there, set) {
			err = s.Destroy(name)
		} else if err == nil {
			return false, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	return true, s.Create(name, typeOf(set), set.Family)
}

// isForm reports whether an ipset can be a live set.
func isForm(h ipset.Header, s interception.Set) bool {
	return h.Type == typeOf(s) && h.Family == s.Family && h.Comments
}

// formText describes the form of an ipset.
func formText(h ipset.Header) string {
	text := string(h.Type) + " of " + h.Family.String()
	if !h.Comments {
		text += " without comments"
	}
	return text
}

func typeOf(s interception.Set) ipset.Type {
	if s.Addresses {
		return ipset.OfAddresses
	}
	return ipset.OfNetworks
}

// releaseTime is how long an ipset may be in use after the owner's last rule that names it has
// gone: the kernel lets go of a rule of nf_tables some time after the rule has been deleted, and
// tells no program when.
const releaseTime = 2 * time.Second

// released waits until no rule names one of the ipsets any more. A rule that stays is another
// program's.
func (a *ownedRules) released(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, releaseTime, ipset.ErrInUse)
	defer cancel()
	return a.ipsets(func(s *ipset.Socket) error {
		for _, name := range names {
			if err := awaitReleased(ctx, s, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// awaitReleased waits until no rule names an ipset any more, or the context ends.
func awaitReleased(ctx context.Context, s *ipset.Socket, name string) error {
	for {
		h, err := s.Header(name)
		if errors.Is(err, os.ErrNotExist) || err == nil && h.References == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("ipset %s: %w: delete other programs' rules that name it", name, context.Cause(ctx))
		}
	}
}

// removeSets removes ipsets that no rule names.
func (a *ownedRules) removeSets(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return a.ipsets(func(s *ipset.Socket) error {
		for _, name := range names {
			if err := s.Destroy(name); err != nil {
				return err
			}
			a.s.ipsets = slices.DeleteFunc(a.s.ipsets, func(other string) bool { return other == name })
		}
		return nil
	})
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
			form, err := s.Header(name)
			if err != nil {
				return err
			}
			if !isForm(form, set) {
				state.Deviations = append(state.Deviations, interception.Deviation{
					At: "set " + string(set.Name), Want: formText(ipset.Header{Type: typeOf(set), Family: set.Family, Comments: true}), Got: formText(form),
				})
			}
			there, err := s.Read(name)
			if err != nil {
				return err
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
			a.indices.compare(indexKey{a.ns.ID(), name}, owners)
			state.Objects = append(state.Objects, set)
		}
		return nil
	})
}
