// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// The longest names, in bytes. Owner and chain name together fit into the 28 bytes of an iptables
// chain name; rule id, hash and reason together fit into the 128 bytes of an nft comment.
const (
	maxOwner     = 13
	maxChainName = 14
	maxSetName   = 28
	maxRuleID    = 40
	maxWhy       = 76
	maxInterface = 15 // IFNAMSIZ less its terminator
	maxLogPrefix = 29 // the limit of iptables' LOG target
	maxLabel     = 28
)

// The characters of names.
const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
	prose  = lower + upper + digits + " .,:()/_-" // the alphabet of comments in the kernel
)

// Owner names the program that a plan belongs to, such as "istio-cni". Everything that a plan puts
// into the kernel carries the name, and a dataplane replaces and removes by it. It is at most 13
// bytes: two or more words of lower-case letters and digits, joined by '-', with a letter first. A
// single word could be a keyword of nft, which could then not load a ruleset with such a table.
type Owner string

// ChainName names a chain in its table: at most 14 of a-z, 0-9 and '-', a letter first.
type ChainName string

// SetName names a set in its plan: at most 28 of a-z, 0-9 and '-', a letter first.
type SetName string

// RuleID names a rule in its plan: words of a-z, 0-9 and '-', joined by '.', at most 40 bytes.
type RuleID string

// Validate returns an error that wraps [ErrName] for an invalid name.
func (o Owner) Validate() error {
	words := strings.Split(string(o), "-")
	if len(words) < 2 {
		return nameError("owner", string(o), "it must be two or more words joined by '-', such as istio-cni")
	}
	if slices.Contains(words, "") {
		return nameError("owner", string(o), "a word between two '-' is empty")
	}
	return validateName("owner", string(o), maxOwner, lower, lower+digits+"-")
}

// Validate returns an error that wraps [ErrName] for an invalid name.
func (n ChainName) Validate() error {
	return validateName("chain", string(n), maxChainName, lower, lower+digits+"-")
}

// Validate returns an error that wraps [ErrName] for an invalid name.
func (n SetName) Validate() error {
	return validateName("set", string(n), maxSetName, lower, lower+digits+"-")
}

// Validate returns an error that wraps [ErrName] for an invalid name.
func (id RuleID) Validate() error {
	return validateName("rule id", string(id), maxRuleID, lower, lower+digits+"-.")
}

// validateLabel checks the label of a network namespace.
func validateLabel(label string) error {
	return validateName("label", label, maxLabel, lower, lower+digits+"-")
}

// validateWhy checks a reason against the alphabet of comments in the kernel.
func validateWhy(why string) error {
	return validateName("reason", why, maxWhy, prose, prose)
}

// validateName checks the length, the first byte and the bytes after it.
func validateName(kind, name string, limit int, first, rest string) error {
	if len(name) == 0 || len(name) > limit {
		return nameError(kind, name, fmt.Sprintf("it has %d bytes and must have 1 to %d", len(name), limit))
	}
	allowed := first
	for at := range len(name) {
		if strings.IndexByte(allowed, name[at]) < 0 {
			bad, _ := utf8.DecodeRuneInString(name[at:])
			return nameError(kind, name, fmt.Sprintf("%q is not allowed at byte %d", bad, at))
		}
		allowed = rest
	}
	return nil
}

func nameError(kind, name, problem string) error {
	return fmt.Errorf("%w: %s %s: %s", ErrName, kind, quoteBriefly(name), problem)
}
