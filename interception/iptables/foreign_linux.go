// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/namespace"
)

func (d *Dataplane) removeForeign(ctx context.Context, ns *interception.Netns, chains []interception.ForeignChain) (err error) {
	ctx, release, err := namespace.Lock(ctx, ns.File())
	if err != nil {
		return err
	}
	defer release()
	t, err := openTools(d.options, ns.File())
	if err != nil {
		return err
	}
	defer t.close()
	for _, which := range everyTool(NFT) {
		own := slices.DeleteFunc(slices.Clone(chains), func(c interception.ForeignChain) bool { return !which.has(c) })
		if len(own) == 0 {
			continue
		}
		if err := t.removeForeign(ctx, which, own); err != nil {
			return err
		}
	}
	return d.removeForeignSets(ctx, ns, chains)
}

// removeForeignSets removes the ipsets that rules of the chains have named. One that other rules
// name, too, stays.
func (d *Dataplane) removeForeignSets(ctx context.Context, ns *interception.Netns, chains []interception.ForeignChain) error {
	var names []string
	for _, c := range chains {
		for _, r := range c.Rules {
			if opaque, is := r.Action.(interception.Opaque); is && c.Hook == "" && opaque.To != "" && !slices.Contains(names, opaque.To) {
				names = append(names, opaque.To)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	socket, err := ipset.Dial(d.backend.Kernel(ns.File()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, releaseTime, ipset.ErrInUse)
	defer cancel()
	for _, name := range names {
		one := awaitReleased(ctx, socket, name)
		if one == nil {
			one = socket.Destroy(name)
		}
		if !errors.Is(one, ipset.ErrInUse) {
			err = errors.Join(err, one)
		}
	}
	return errors.Join(err, socket.Close())
}

// removeUnusedSets removes ipsets that no rule names, which the kernel itself ensures.
func (d *Dataplane) removeUnusedSets(ctx context.Context, ns *interception.Netns, names []string) error {
	_, release, err := namespace.Lock(ctx, ns.File())
	if err != nil {
		return err
	}
	defer release()
	socket, err := ipset.Dial(d.backend.Kernel(ns.File()))
	for i := 0; err == nil && i < len(names); i++ {
		if err = socket.Destroy(names[i]); errors.Is(err, ipset.ErrInUse) {
			err = nil
		}
	}
	if socket != nil {
		err = errors.Join(err, socket.Close())
	}
	if errors.Is(err, interception.ErrUnsupported) { // the kernel has no ipsets
		return nil
	}
	return err
}

// has reports whether a chain is in a table that the tool writes.
func (t tool) has(c interception.ForeignChain) bool {
	words := strings.Fields(c.Table)
	family := map[interception.Family]string{interception.IPv4: "ip", interception.IPv6: "ip6"}[t.family]
	if t.flavour == Legacy {
		return len(words) == 3 && words[0] == "legacy" && words[1] == family
	}
	return len(words) == 2 && words[0] == family
}

// removeForeign removes chains of one tool with the jumps to them, the chains of each table in one
// transaction, and nothing if one of them has changed.
func (t *tools) removeForeign(ctx context.Context, which tool, chains []interception.ForeignChain) error {
	listing, err := t.list(ctx, which)
	if err != nil {
		return err
	}
	there := listing.foreign(which, "\x00") // no chain's name begins so: all are other programs'
	for _, c := range chains {
		if c.Hook == "" && !slices.ContainsFunc(there, func(o interception.ForeignChain) bool { return reflect.DeepEqual(o, c) }) {
			return fmt.Errorf("chain %s of table %s is gone, or has other rules than before: look again", c.Name, c.Table)
		}
	}
	var lines []string
	for _, table := range listing.tables {
		names := map[string]bool{}
		for _, c := range chains {
			if c.Hook == "" && strings.HasSuffix(c.Table, " "+table.name) {
				names[c.Name] = true
			}
		}
		if len(names) > 0 {
			lines = append(lines, slices.Concat([]string{"*" + table.name}, table.without(names), []string{"COMMIT"})...)
		}
	}
	program, out, err := t.restore(ctx, which, strings.Join(lines, "\n")+"\n")
	if err != nil {
		return programError(program, out, err)
	}
	return nil
}

// without returns the lines that remove chains, and the rules that lead to them.
func (t listedTable) without(names map[string]bool) (lines []string) {
	var deleted []string
	for _, c := range t.chains {
		if names[c.name] {
			lines, deleted = append(lines, "-F "+c.name), append(deleted, "-X "+c.name)
			continue
		}
		for _, r := range c.rules {
			if names[jumpTarget(r.words())] {
				lines = append(lines, "-D "+c.name+" "+r.text)
			}
		}
	}
	return append(lines, deleted...)
}
