// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// refusal converts a program's error about a line of its input to one about that part of the plan.
func refusal(p *interception.Plan, program string, input []string, out Output, err error) error {
	err = programError(program, out, err)
	number, ok := failedLine(string(out.Stderr))
	if !ok || number < 1 || number > len(input) {
		return err
	}
	line := input[number-1]
	if line == "COMMIT" {
		const why = "all rules of the table, which the kernel takes or refuses together"
		return &interception.ApplyError{At: tableOf(input[:number]), Why: why, Err: err}
	}
	err = fmt.Errorf("%w, at %q", err, line)
	words, _ := splitWords(line)
	_, comment := withoutComment(words)
	id, _, _ := strings.Cut(comment, " ")
	if why, known := reason(p, interception.RuleID(id)); known {
		return &interception.ApplyError{At: id, Why: why, Err: err}
	}
	return &interception.ApplyError{At: tableOf(input[:number]), Err: err}
}

func reason(p *interception.Plan, id interception.RuleID) (string, bool) {
	for _, c := range lower.Chains(p) {
		for _, r := range c.Rules {
			if r.ID == id {
				return r.Why, true
			}
		}
	}
	return "", false
}

// tableOf returns the table of the last of some lines.
func tableOf(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if name, ok := strings.CutPrefix(line, "*"); ok {
			return name
		}
	}
	return ""
}

// failedLine finds the number of the line at which a program failed: "line 4 failed", "line 4:
// RULE_APPEND failed (...)", "Error occurred at line: 4".
func failedLine(text string) (int, bool) {
	for {
		_, rest, found := strings.Cut(text, "line")
		if !found {
			return 0, false
		}
		digits := strings.TrimLeft(rest, ": ")
		digits = digits[:len(digits)-len(strings.TrimLeft(digits, "0123456789"))]
		if number, err := strconv.Atoi(digits); err == nil {
			return number, true
		}
		text = rest
	}
}

// said returns the useful part of a program's standard error, on one line, of limited length.
func said(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "Try `") && !strings.HasPrefix(line, "Error occurred at line") {
			lines = append(lines, line)
		}
	}
	all := strings.Join(lines, " ")
	if len(all) > 1000 {
		all = all[:1000] + "..."
	}
	return all
}

// lacking returns the words by which the tools report that they or the kernel lack something.
func lacking() []string {
	return []string{
		"Couldn't load match", "Couldn't load target", "No chain/target/match by that name", "unable to initialize table", "can't initialize",
		"Table does not exist", "missing kernel module", "Could not fetch rule set generation id", "Protocol not supported",
	}
}

func programError(program string, out Output, err error) error {
	if errors.Is(err, errNoNsenter) {
		return fmt.Errorf("%s: %w", program, err)
	}
	if notThere(err) {
		return fmt.Errorf("program %s: %w: %w: install iptables where this runs", program, errMissing, err)
	}
	text := said(string(out.Stderr))
	if text == "" {
		return fmt.Errorf("%s: %w", program, err)
	}
	for _, words := range lacking() {
		if strings.Contains(text, words) {
			return fmt.Errorf("%s: %w by this kernel or these programs: %w: %s", program, interception.ErrUnsupported, err, text)
		}
	}
	if strings.Contains(text, "Permission denied") {
		text += " (it takes CAP_NET_ADMIN in the user namespace that owns the network namespace)"
	}
	return fmt.Errorf("%s: %w: %s", program, err, text)
}

// notThere reports whether a program could not be started because it is missing.
func notThere(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// errMissing means that a program of iptables is missing, and errNoNsenter that nsenter is, whether
// or not iptables exists.
var (
	errMissing   = fmt.Errorf("%w", interception.ErrUnsupported)
	errNoNsenter = fmt.Errorf("%w without the program", interception.ErrUnsupported)
)

// idMap has the ids of a user namespace (user_namespaces(7), uid_map).
type idMap []idRange

type idRange struct{ first, count uint64 }

func parseIDMap(text string) idMap {
	var m idMap
	for line := range strings.Lines(text) {
		var inside, outside, count uint64
		if n, err := fmt.Sscan(line, &inside, &outside, &count); n == 3 && err == nil {
			m = append(m, idRange{inside, count})
		}
	}
	return m
}

func (m idMap) has(id uint32) bool {
	return slices.ContainsFunc(m, func(r idRange) bool { return uint64(id) >= r.first && uint64(id)-r.first < r.count })
}

// unmapped returns an error about the first condition on an id that the programs' user namespace
// lacks, which the kernel refuses without an explanation; nil if there is no such condition.
func unmapped(p *interception.Plan, users, groups idMap) error {
	for _, c := range lower.Chains(p) {
		for _, r := range c.Rules {
			id, kind := missingID(users, r.Match.UID.Set()), "user"
			if id == nil {
				id, kind = missingID(groups, r.Match.GID.Set()), "group"
			}
			if id != nil {
				return &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf(
					"%w: %s %d has no number in the user namespace of iptables: map it, or use nftables", interception.ErrUnsupported, kind, *id)}
			}
		}
	}
	return nil
}

// missingID returns the first end of a range that is not mapped.
func missingID[T ~uint32](m idMap, ids interception.RangeSet[T]) *uint32 {
	for _, r := range ids.Ranges() {
		for _, id := range []uint32{uint32(r.First), uint32(r.Last)} {
			if !m.has(id) && id != ^uint32(0) {
				return &id
			}
		}
	}
	return nil
}
