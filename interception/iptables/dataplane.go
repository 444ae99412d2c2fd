// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/backend"
	"github.com/meshcni/meshcni/internal/route"
)

// Flavour is an implementation of iptables. The two sets of programs put rules of the same meaning
// into different parts of the kernel, and neither sees the other's rules.
type Flavour string

// The flavours of iptables.
const (
	// Automatic is the flavour that the namespace has: that of the owner's existing rules,
	// otherwise that of other programs' rules, otherwise NFT where the kernel has nf_tables.
	// Without nf_tables or the program of NFT, it is Legacy.
	Automatic Flavour = ""
	// Legacy is the older flavour: iptables-legacy-restore and the kernel's ip_tables.
	Legacy Flavour = "legacy"
	// NFT is the newer flavour: iptables-nft-restore and the kernel's nf_tables.
	NFT Flavour = "nft"
)

// Options are the settings of a [Dataplane]. The zero value is right for the usual program names.
type Options struct {
	// Flavour forces a flavour. The owner's rules in the other flavour are then removed.
	Flavour Flavour
	// Programs maps the usual name of a program to the words that start it, for programs that are
	// neither in PATH nor in the usual directories: "iptables-nft-restore" may be
	// {"/usr/sbin/xtables-nft-multi", "iptables-restore"}. The names are iptables and ip6tables,
	// each with -legacy or -nft, each with -restore or -save.
	Programs map[string][]string
	// Runner starts the programs; nil means os/exec.
	Runner Runner
	// Nsenter are the words that start nsenter(1), such as {"nsenter"}, for network namespaces that
	// belong to another user namespace than this process, such as those of pods with hostUsers:
	// false. The kernel takes conditions on the owner of a socket only from inside that user
	// namespace. Without Nsenter, plans with such conditions are refused for these pods.
	Nsenter []string
	// LockFile is the file that programs of the flavour Legacy lock (XTABLES_LOCKFILE). If it is
	// empty, each call has a lock file of its own: calls on one namespace wait for each other by
	// another lock, and the namespaces of pods have no other program's rules. Set it to
	// /run/xtables.lock for a namespace in which other programs use iptables.
	LockFile string
	// Wait is how long a program waits for that lock, in whole seconds; 5 seconds when zero.
	Wait time.Duration
	// Timeout bounds each program, besides Wait and the caller's context; 30 seconds when zero. A
	// program of the flavour NFT starts again whenever rules in the namespace change, so a pod could
	// keep it for ever.
	Timeout time.Duration
	// Foreign makes Observe also read other programs' chains, of both flavours, into
	// [interception.State.Foreign]. This takes a program for each family and flavour that the
	// namespace has anything of. The names of legacy tables begin with "legacy".
	Foreign bool
	// Protocols are the protocol numbers of owners, and have to be those of package nftables.
	Protocols map[interception.Owner]uint8
	// Predecessors are dataplanes that may have rules of the same owners in the same namespaces.
	// Apply removes these once the plan's own rules are in place, and Remove together with the
	// others. The rules of dataplanes that are not in the list are left alone. Package
	// choice/standard fills in the list. A program without it lists the other package's dataplane;
	// New refuses a dataplane of another module.
	Predecessors []interception.Dataplane
}

// Dataplane puts plans into iptables, and many goroutines may use it at once. It has no state but
// what it knows of the members of the live sets that it has edited.
type Dataplane struct {
	heritage
	options Options
	backend backend.Dataplane
	indices indices
}

// heritage is for dataplanes that take over.
type heritage = backend.Heritage

var _ backend.Successor = (*Dataplane)(nil)

const (
	defaultWait = 5 * time.Second
	// defaultTimeout is several times as long as a program takes for some ten thousand rules on a
	// busy machine.
	defaultTimeout = 30 * time.Second
)

// New returns a dataplane. It does not look at the system: what is missing shows when a plan is
// applied. On systems other than Linux the error wraps [interception.ErrUnsupported].
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
	if o.Timeout < 0 {
		return nil, fmt.Errorf("end programs after %s: give a time above zero", o.Timeout)
	}
	o.Wait, o.Timeout = cmp.Or(o.Wait, defaultWait), cmp.Or(o.Timeout, defaultTimeout)
	protocols := route.Protocols(maps.Clone(o.Protocols))
	if err := protocols.Validate(); err != nil {
		return nil, err
	}
	predecessors, err := backend.Predecessors(o.Predecessors)
	if err != nil {
		return nil, err
	}
	o.Programs, o.Nsenter = maps.Clone(o.Programs), slices.Clone(o.Nsenter)
	return newDataplane(&Dataplane{
		options: o, backend: backend.Dataplane{Protocols: protocols, Predecessors: predecessors},
	})
}

// Supports reports which parts of a plan iptables cannot do on any kernel: it returns nil, or an
// error that names each such part and wraps [interception.ErrUnsupported]. These are lists for
// which no rules are short enough, and live sets whose names are too long (see
// [render.IPTablesRestore]). What only some kernels lack, such as ipsets, shows when the plan is
// applied.
func (d *Dataplane) Supports(p *interception.Plan) error {
	if p == nil {
		return p.Validate() // it is never valid
	}
	var errs []error
	for _, family := range families() {
		_, err := render.IPTablesRestore(p, family)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("plan of %s: %w", p.Owner, err)
	}
	return nil
}

// Apply makes ns hold exactly p for p's owner, as [interception.Dataplane] specifies; a plan
// without objects removes what the owner had. Objects that precede the rules are made first, and
// undone when the rules are refused; those that the owner had and the plan lacks are removed at the
// end.
//
// If the plan is in place already, Apply only reads. The end of the context, or of the time that a
// program has, ends the running program, and what it has done is undone.
//
// The errors are those of [interception.Plan.Validate]; [*interception.ApplyError];
// [interception.ErrNotNetns] for a nil or zero ns; [interception.ErrUnsupported] with the name of
// what iptables or the kernel lacks. After an error the owner's rules are as they were, unless the
// error reports that undoing failed, too.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return d.backend.Apply(ctx, ns, p)
}

// Remove removes the owner's rules from ns, of both flavours, and then policy rules, routes,
// addresses, links and sysctls as package nftables does. It relies only on what the kernel holds,
// and returns nil when there is nothing to remove. The kernel's own tables and chains that were
// made for the owner's rules stay, empty. A live set that another program's rule names is an error,
// and then nothing is removed. The errors are those of [Dataplane.Apply].
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.backend.Remove(ctx, ns, owner)
}

// Observe reads what ns holds of owner, of both flavours, in the model of plans and in the order of
// the kernel. It trusts no comment: it joins the lines of one rule of a plan, such as copies for
// both families or parts of a list, only if rendering that rule gives these lines again. IDs and
// reasons come from the comments. What cannot be decoded has the action [interception.Opaque].
//
// iptables has no fixed sets: a rule that refers to one has its members. It has no priorities
// either ([interception.State.NoPriorities]). Addresses, routes and the like are read as package
// nftables does.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	return d.backend.Observe(ctx, ns, owner)
}

// UpdateSet changes the members of a live set of addresses of the owner in ns, as
// [interception.SetEdit] says, and leaves everything else alone. It needs the privileges of Apply.
//
// The set is an ipset. A single change takes the same time however many members there are, from the
// second one on: the first one reads the members, as does the next one after another process's. An
// edit of several addresses copies the set. Edits by this package wait for each other by the
// namespace's lock. A change by another program, such as ipset, shows in the number of members or
// in [Dataplane.Observe]; until then an edit may go by the former ones.
func (d *Dataplane) UpdateSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	err := errors.Join(ns.Check(), owner.Validate(), set.Validate())
	if err == nil {
		err = d.updateSet(ctx, ns, owner, set, edit)
	}
	if err != nil {
		return fmt.Errorf("edit set %s of %s in %s: %w", set, owner, ns, err)
	}
	return nil
}

// Tally counts those things of the owner in ns whose changes the kernel does not announce: the
// rules in the owner's chains of iptables-legacy, with the jumps to these chains, and the members
// of the named sets, as far as these are live sets of addresses. Different results mean that
// something has changed in between; a rule or member in another one's place goes unnoticed. The
// result is empty if there is nothing to count. A table whose layout is unknown, as on 32-bit
// systems, is not counted.
//
// Tally starts no program, and loads no module of the kernel. It waits for no other call: beside
// one that changes ns it may count half a change. It needs the privileges of Apply; rules that this
// process cannot read are none that it has written.
func (d *Dataplane) Tally(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, sets ...interception.SetName,
) (string, error) {
	err := errors.Join(ns.Check(), owner.Validate())
	for _, set := range sets {
		err = errors.Join(err, set.Validate())
	}
	tally := ""
	if err == nil {
		tally, err = d.tally(ctx, ns, owner, sets)
	}
	if err != nil {
		return "", fmt.Errorf("count rules and members of %s in %s: %w", owner, ns, err)
	}
	return tally, nil
}

// Claim makes the routes and policy rules that serve the owner's plan in ns, and that another
// program has put there, the owner's: for a program that takes over from that one. Each is there at
// every moment, and Remove then removes it. The owner's rules stay as they are. Without such routes
// and rules Claim returns nil. After an error some may be claimed, and Claim can be repeated.
func (d *Dataplane) Claim(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.backend.Claim(ctx, ns, owner)
}

// RemoveForeign removes chains of another program, as Observe has returned them in
// [interception.State].Foreign, with the jumps that lead to them: for a program that takes over
// what another one did, once its own plan is in place. The chains of hooks among them stay. The
// kernel removes all of a table's chains or none. If a chain has changed since, nothing of its
// family is removed, and the error names it. The ipsets that rules of the chains have named
// ([interception.Opaque].To) go last, except for one that other rules name, too.
func (d *Dataplane) RemoveForeign(ctx context.Context, ns *interception.Netns, chains []interception.ForeignChain) error {
	err := ns.Check()
	if err == nil {
		err = d.removeForeign(ctx, ns, chains)
	}
	if err != nil {
		return fmt.Errorf("remove another program's chains from %s: %w", ns, err)
	}
	return nil
}

// RemoveUnusedSets removes the ipsets with these names from ns, except for those that a rule names:
// for a program that takes over from another one, which was ended before it had removed its sets.
// Those that are not there are no error, and a kernel without ipsets has none.
func (d *Dataplane) RemoveUnusedSets(ctx context.Context, ns *interception.Netns, names ...string) error {
	err := ns.Check()
	if err == nil {
		err = d.removeUnusedSets(ctx, ns, names)
	}
	if err != nil {
		return fmt.Errorf("remove ipsets that no rule names from %s: %w", ns, err)
	}
	return nil
}

func families() []interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}
}
