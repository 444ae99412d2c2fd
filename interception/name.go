// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"slices"
	"strings"
)

// The longest names, in bytes. Owner and chain together fit into the 28 bytes that iptables grants a chain's name; rule id,
// hash and reason together fit into the 128 bytes that nft grants a comment.
const (
	maxOwner     = 13
	maxChainName = 14
	maxSetName   = 28
	maxRuleID    = 40
	maxWhy       = 76
	maxInterface = 15 // IFNAMSIZ less its end
	maxLogPrefix = 29 // what the LOG target of iptables takes
)

// The letters that names are made of.
const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
	prose  = lower + upper + digits + " .,:()/_-" // what may reach a comment in the kernel
)

// Owner names whose plan it is, such as "istio-cni". Everything a plan puts into the kernel carries it, and a dataplane
// replaces and removes by it. It is two or more words of lower-case letters and digits, a letter first, joined by '-', at
// most 13 bytes: a single word could be one of nft's own, and a ruleset with such a table could not be loaded back.
type Owner string

// ChainName names a chain within its table: lower-case letters, digits and '-', a letter first, at most 14 bytes.
type ChainName string

// SetName names a set within its plan: lower-case letters, digits and '-', a letter first, at most 28 bytes.
type SetName string

// RuleID names a rule within its plan: words of lower-case letters, digits and '-' joined by '.', at most 40 bytes.
type RuleID string

// Validate reports what is wrong with the name, and nil when nothing is. The error is [ErrName].
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

// Validate reports what is wrong with the name, and nil when nothing is. The error is [ErrName].
func (n ChainName) Validate() error {
	return validateName("chain", string(n), maxChainName, lower, lower+digits+"-")
}

// Validate reports what is wrong with the name, and nil when nothing is. The error is [ErrName].
func (n SetName) Validate() error {
	return validateName("set", string(n), maxSetName, lower, lower+digits+"-")
}

// Validate reports what is wrong with the name, and nil when nothing is. The error is [ErrName].
func (id RuleID) Validate() error {
	return validateName("rule id", string(id), maxRuleID, lower, lower+digits+"-.")
}

// validateWhy checks a reason against the closed alphabet that may reach a kernel comment.
func validateWhy(why string) error {
	return validateName("reason", why, maxWhy, prose, prose)
}

// validateName checks the length, the first byte, and the bytes behind it.
func validateName(kind, name string, limit int, first, rest string) error {
	if len(name) == 0 || len(name) > limit {
		return nameError(kind, name, fmt.Sprintf("it has %d bytes and must have 1 to %d", len(name), limit))
	}
	allowed := first
	for at := range len(name) {
		if strings.IndexByte(allowed, name[at]) < 0 {
			return nameError(kind, name, fmt.Sprintf("%q is not allowed at byte %d", name[at], at))
		}
		allowed = rest
	}
	return nil
}

func nameError(kind, name, problem string) error {
	return fmt.Errorf("%w: %s %q: %s", ErrName, kind, name, problem)
}
