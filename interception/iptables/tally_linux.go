// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/namespace"
)

func (d *Dataplane) tally(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, sets []interception.SetName,
) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	rules, err := d.tallyLegacy(ns.File(), owner)
	if err != nil {
		return "", fmt.Errorf("count the rules of iptables-legacy: %w", err)
	}
	members, err := d.tallySets(ns, owner, sets)
	return rules + members, err
}

// tallyAttempts bounds how often tallyLegacy reads tables that other programs change meanwhile.
const tallyAttempts = 3

// tallyLegacy counts the rules in the owner's chains, and the jumps to them.
func (d *Dataplane) tallyLegacy(in *os.File, owner interception.Owner) (tally string, err error) {
	if d.options.Flavour == NFT {
		return "", nil
	}
	for range tallyAttempts {
		if tally, err = readTally(in, prefix(owner)); !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return tally, err
}

func readTally(in *os.File, prefix string) (string, error) {
	var tables map[interception.Family][]string
	err := namespace.Run(in, func() (err error) {
		tables, err = listLegacy(Automatic)
		return err
	})
	if err != nil {
		return "", err
	}
	var tally strings.Builder
	for _, family := range families() {
		for _, table := range tables[family] {
			chains, err := legacyChains(in, family, []string{table})
			if err != nil && !errors.Is(err, errLayout) {
				return "", err
			}
			for _, c := range chains {
				if strings.HasPrefix(c.name, prefix) {
					fmt.Fprintln(&tally, family, c.table, c.name, c.uses)
				}
			}
		}
	}
	return tally.String(), nil
}

// tallySets counts the members of sets.
func (d *Dataplane) tallySets(ns *interception.Netns, owner interception.Owner, sets []interception.SetName) (tally string, err error) {
	if len(sets) == 0 || !mayHaveIPSets() {
		return "", nil
	}
	socket, err := ipset.Dial(d.backend.Kernel(ns.File()))
	if errors.Is(err, interception.ErrUnsupported) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	for _, set := range slices.Sorted(slices.Values(sets)) {
		for _, family := range families() {
			name, err := lower.IPSet(owner, interception.Set{Name: set, Family: family, Live: true, Addresses: true})
			if err != nil {
				return "", err
			}
			h, err := socket.Header(name)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, interception.ErrUnsupported) {
				continue
			}
			if err != nil {
				return "", err
			}
			tally += fmt.Sprintln(name, h.Type, h.Family, h.Comments, h.Members)
		}
	}
	return tally, nil
}
