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

// create puts a plan's rules into a namespace that has none of the owner: each text makes its
// chains, and fails when they exist.
func (a *ownedRules) create(ctx context.Context, texts map[tool]string) error {
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

// commit brings the rules from the present state to the wanted one: first in the flavour of the
// plan, so that the other flavour's rules go only when the plan's are in place.
func (a *ownedRules) commit(ctx context.Context, wanted map[tool]ruleset) error {
	standing := maps.Clone(a.s.rules)
	for _, t := range everyTool(a.s.flavour) {
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

// restore runs a restore program. A refusal becomes an error about the part of the plan.
func (a *ownedRules) restore(ctx context.Context, t tool, lines []string) error {
	program, out, err := a.tools.restore(ctx, t, strings.Join(lines, "\n")+"\n")
	if err == nil {
		return nil
	}
	err = refusal(a.plan, program, lines, out, err)
	if a.tools.users == nil {
		users, _ := os.ReadFile("/proc/self/uid_map") // an unreadable file explains nothing
		groups, _ := os.ReadFile("/proc/self/gid_map")
		if reason := unmapped(a.plan, parseIDMap(string(users)), parseIDMap(string(groups))); reason != nil && len(users) > 0 && len(groups) > 0 {
			return errors.Join(reason, err)
		}
	}
	return err
}

// rollbackTime limits the time for restoring the former state after the caller's context has ended.
const rollbackTime = 10 * time.Second

// restoreRules restores the rules that were in place before a failure. It reads the present ones
// first, because it is unknown how far a program got.
func (a *ownedRules) restoreRules(ctx context.Context, before map[tool]ruleset) error {
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
