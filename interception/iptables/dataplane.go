// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/handover"
	"github.com/meshcni/meshcni/internal/request"
	"github.com/meshcni/meshcni/internal/route"
)

// Flavour is an implementation of iptables: two sets of programs, which put rules of the same meaning into two parts of the kernel, and
// neither of which sees the rules of the other.
type Flavour string

// The flavours.
const (
	// Automatic is whichever the namespace has: that in which the owner has rules already, else the one in which others have, else NFT
	// where the kernel has nf_tables. Where it has not, and where the program of NFT is not there, it is Legacy.
	Automatic Flavour = ""
	// Legacy is the older one: iptables-legacy-restore and the kernel's ip_tables.
	Legacy Flavour = "legacy"
	// NFT is the newer one: iptables-nft-restore and the kernel's nf_tables.
	NFT Flavour = "nft"
)

// Options are the settings of a [Dataplane]. The zero value is right where the programs have their usual names.
type Options struct {
	// Flavour forces a flavour. The rules that the owner has in the other one are then taken away.
	Flavour Flavour
	// Programs are the words that start a program, by its usual name, where it is not found by that in PATH or where such programs usually
	// are: "iptables-nft-restore" may be
	// {"/usr/sbin/xtables-nft-multi", "iptables-restore"}. The names are iptables and ip6tables, each with -legacy or -nft, each with
	// -restore or -save.
	Programs map[string][]string
	// Runner starts the programs; nil stands for os/exec.
	Runner Runner
	// Nsenter are the words that start nsenter(1), such as {"nsenter"}, for network namespaces that belong to another user namespace
	// than this process is in, such as those of pods with hostUsers: false. The kernel takes conditions on the owner of a socket only
	// from inside of that. Without it, plans with such conditions are refused there.
	Nsenter []string
	// LockFile is the file that programs of the flavour Legacy lock (XTABLES_LOCKFILE). Empty stands for one of each call's own, as
	// calls on one namespace wait for each other in another way, and nobody else's rules are in the namespaces of pods. Set it, to
	// /run/xtables.lock, for a namespace where others use iptables.
	LockFile string
	// Wait is how long a program waits for that lock, in whole seconds; 5 seconds when zero.
	Wait time.Duration
	// Foreign has Observe also read the chains of others, of both flavours, into [interception.State.Foreign], with a program for each
	// family and flavour that the namespace has anything of. The names of legacy tables begin with "legacy".
	Foreign bool
	// Protocols are the protocol numbers of owners, as in package nftables, which they have to agree with.
	Protocols map[interception.Owner]uint8
	// Predecessor is a dataplane that may have had rules of the same owners in the same namespaces. Apply takes them away when the plan's own
	// stand, and Remove with the others. nil stands for none: what another dataplane has is then left alone.
	Predecessor handover.Predecessor
}

// Dataplane puts plans into iptables. [New] makes it. It has no state, and may be used by many goroutines at once.
type Dataplane struct {
	options   Options
	protocols route.Protocols
}

var _ interception.Dataplane = (*Dataplane)(nil)

// defaultWait is how long a program waits for the lock when nothing is said.
const defaultWait = 5 * time.Second

// New returns a dataplane. It looks at nothing: which programs and what of the kernel is there shows when a plan is applied. On
// other systems than Linux the error wraps [interception.ErrUnsupported].
func New(o Options) (*Dataplane, error) {
	if !slices.Contains([]Flavour{Automatic, Legacy, NFT}, o.Flavour) {
		return nil, fmt.Errorf("flavour %q of iptables is unknown: choose legacy or nft, or leave it empty", o.Flavour)
	}
	for name, words := range o.Programs {
		if len(words) == 0 || !slices.Contains(programNames(), name) {
			return nil, fmt.Errorf("program %q with words %q: name one of %v, and what starts it", name, words, programNames())
		}
	}
	if o.Wait < 0 {
		return nil, fmt.Errorf("wait for the lock for %s: give a time above zero", o.Wait)
	}
	if o.Wait == 0 {
		o.Wait = defaultWait
	}
	protocols := route.Protocols(maps.Clone(o.Protocols))
	if err := protocols.Validate(); err != nil {
		return nil, err
	}
	o.Programs, o.Nsenter = maps.Clone(o.Programs), slices.Clone(o.Nsenter)
	return newDataplane(&Dataplane{options: o, protocols: protocols})
}

// Supports reports what of a plan iptables cannot do on any kernel: nil, or an error that names each such part and wraps
// [interception.ErrUnsupported]: live sets, and lists for which no rules are short enough (see [render.IPTablesRestore]). What
// only some kernels lack shows when the plan is applied.
func (d *Dataplane) Supports(p *interception.Plan) error {
	if p == nil {
		return errors.New("the plan is nil")
	}
	var errs []error
	for set := range p.Sets() {
		if set.Live {
			errs = append(errs, fmt.Errorf("live set %s (%s): %w by iptables: use nftables", set.Name, set.Why, interception.ErrUnsupported))
		}
	}
	if errs == nil {
		for _, family := range families() {
			_, err := render.IPTablesRestore(p, family)
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("plan of %s: %w", p.Owner, err)
	}
	return nil
}

// Apply makes ns hold exactly p for p's owner, as [interception.Dataplane] says; a plan without objects takes away what the owner had. What
// comes before the rules is put in place first and taken back when they are refused, and what the owner had of it and the plan has not is
// taken away behind them.
//
// A plan that stands already is read, and nothing is written. The context ends the program that runs; what it has done is taken back.
//
// The errors are those of [interception.Plan.Validate]; [*interception.ApplyError]; [interception.ErrNotNetns] for a nil or zero ns;
// [interception.ErrUnsupported] with the name of what iptables or the kernel does not have. After an error the owner's rules are as they
// were, unless the error says that taking back failed, too.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return request.Apply(ctx, ns, p, d, d.apply)
}

// Remove takes the owner's rules out of ns, of both flavours, and then policy rules, routes, addresses, links and sysctls as package
// nftables does. It goes by what the kernel holds, and is nil when there is nothing. Tables and chains of the kernel's own that were made
// for the owner's rules stay, empty. The errors are as with [Dataplane.Apply].
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return request.Remove(ctx, ns, owner, d.remove)
}

// Observe reads what ns holds of owner, of both flavours, in the model of plans and in the order of the kernel. No comment is trusted: where
// lines of the kernel stand together for one rule of a plan, as copies for both families or as parts of a list, this shows by rendering
// the rule anew. Ids and reasons are those of the comments. What cannot be decoded has the action [interception.Opaque].
//
// iptables has no sets: a rule that refers to one has its members. It knows no priorities either: the Offset of an entry is 0.
// Addresses, routes and the like are read as package nftables does.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	return request.Observe(ctx, ns, owner, d.observe)
}

// families are those that iptables has programs for.
func families() []interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}
}

var _ handover.Predecessor = (*Dataplane)(nil)

// Remembered reports whether the owner has rules or chains in ns, and which lines are kept with them about what was there before. Where the
// namespace has neither tables of the flavour Legacy nor chains of the owner's, no program is started. With [Dataplane.RemoveRules] it makes a
// predecessor for a dataplane of package nftables, and is for no other use.
func (d *Dataplane) Remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) ([]string, bool, error) {
	return d.remembered(ctx, ns, owner)
}

// RemoveRules takes the owner's rules and chains, of both flavours, out of ns, with what is remembered in them, and leaves what stands ahead of
// rules: for a dataplane that has taken that over. Use [Dataplane.Remove] otherwise.
func (d *Dataplane) RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.removeRules(ctx, ns, owner)
}
