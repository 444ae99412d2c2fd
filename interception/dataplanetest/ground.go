// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// Ground is the environment of a dataplane under test: it creates namespaces, and inspects them by
// other means than the dataplane. [Kernel] is that of this machine. For a dataplane that also keeps
// state elsewhere, wrap it and add that state to Dump. Its methods are called from several
// goroutines at once.
type Ground interface {
	// Namespace returns an empty network namespace that lasts as long as the test.
	Namespace(t testing.TB) *interception.Netns
	// Dump returns everything in a namespace that a plan can change, of any owner, as lines of
	// text. The same content gives the same text in every namespace, without counters, handles and
	// other numbers that differ each time. Leftovers of the kernel without effect, such as the
	// empty chains of iptables, are left out.
	Dump(t testing.TB, ns *interception.Netns) string
	// Occupy adds foreign objects to a namespace, of every kind that Dump shows, including the
	// policy rules, and the addresses and routes of lo, that the plan wants, and the values that it
	// wants for sysctls. It serves a namespace once.
	Occupy(t testing.TB, ns *interception.Netns, p *interception.Plan)
}

// difference returns the lines in which two dumps differ; "" if they are equal.
func difference(nameA, a, nameB, b string) string {
	if a == b {
		return ""
	}
	var text strings.Builder
	for _, side := range []struct {
		name string
		only []string
	}{{nameA, missing(a, b)}, {nameB, missing(b, a)}} {
		for _, line := range side.only {
			text.WriteString("only in " + side.name + ": " + line + "\n")
		}
	}
	if text.Len() == 0 {
		text.WriteString("the same lines in another order; " + nameA + " holds:\n" + a)
	}
	return text.String() + nameB + " holds:\n" + b
}

// missing returns the lines of a that b lacks, or has less often.
func missing(a, b string) []string {
	count := map[string]int{}
	for line := range strings.Lines(b) {
		count[strings.TrimSpace(line)]++
	}
	var lines []string
	for line := range strings.Lines(a) {
		line = strings.TrimSpace(line)
		if count[line]--; count[line] < 0 {
			lines = append(lines, line)
		}
	}
	return lines
}
