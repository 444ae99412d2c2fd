// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"
)

// create puts a plan's rules into a namespace that has none of the owner: each text makes its chains, and fails when they are there.
func (a *application) create(ctx context.Context, texts map[tool]string) error {
	for _, family := range families() {
		t := tool{a.s.flavour, family}
		text := texts[t]
		if text == "" {
			continue
		}
		if err := a.restore(ctx, t, strings.Split(strings.TrimSuffix(text, "\n"), "\n")); err != nil {
			return err
		}
	}
	return nil
}

// commit brings rules from what stands to what is wanted: first the flavour of the plan, so that the rules of the other go when these
// stand.
func (a *application) commit(ctx context.Context, wanted map[tool]ruleset) error {
	standing := maps.Clone(a.s.rules)
	for _, t := range a.ordered() {
		lines := script(standing[t], wanted[t], a.prefix)
		if lines == nil {
			continue
		}
		if err := a.restore(ctx, t, lines); err != nil {
			return err
		}
		standing[t] = wanted[t]
	}
	a.s.rules = standing
	return nil
}

// ordered are the tools, those of the plan's flavour first.
func (a *application) ordered() []tool {
	flavours := []Flavour{NFT, Legacy}
	if a.s.flavour == Legacy {
		flavours = []Flavour{Legacy, NFT}
	}
	var all []tool
	for _, flavour := range flavours {
		for _, family := range families() {
			all = append(all, tool{flavour, family})
		}
	}
	return all
}

// restore runs a restore program. A refusal becomes an error about the part of the plan.
func (a *application) restore(ctx context.Context, t tool, lines []string) error {
	program, out, err := a.tools.restore(ctx, t, strings.Join(lines, "\n")+"\n")
	if err == nil {
		return nil
	}
	err = refusal(a.plan, program, lines, out, err)
	if a.tools.users == nil {
		users, _ := os.ReadFile("/proc/self/uid_map") // what cannot be read explains nothing
		groups, _ := os.ReadFile("/proc/self/gid_map")
		if reason := unmapped(a.plan, parseIDMap(string(users)), parseIDMap(string(groups))); reason != nil && len(users) > 0 && len(groups) > 0 {
			return errors.Join(reason, err)
		}
	}
	return err
}

// rollbackTime is how long it may take to bring back what stood, when the caller's time is over.
const rollbackTime = 10 * time.Second

// restoreRules brings back the rules that stood before something failed: what stands is read, as nobody knows how far a program came.
func (a *application) restoreRules(ctx context.Context, before map[tool]ruleset) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	err := a.look(ctx)
	if err == nil {
		err = a.commit(ctx, before)
	}
	if err != nil {
		return fmt.Errorf("bring back the rules from before: %w", err)
	}
	return nil
}
