// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// Ground is where a dataplane is tested: it makes namespaces, and looks into them by other means
// than the dataplane. [Kernel] is the one of this machine. A dataplane that keeps things elsewhere
// than there wraps it, and adds those to Dump. Its methods are called from several goroutines at
// once.
type Ground interface {
	// Namespace makes an empty network namespace that lasts as long as the test.
	Namespace(t testing.TB) *interception.Netns
	// Dump is all that is in a namespace and that a plan can change, whoever it belongs to, as
	// lines of text: the same text for the same things, in whatever namespace, without counters,
	// handles and other numbers that differ each time. What the kernel leaves behind and has no
	// effect, such as the empty chains of iptables, is not in it.
	Dump(t testing.TB, ns *interception.Netns) string
	// Occupy puts things of somebody else's into a namespace, of every kind that Dump shows, among
	// them the addresses that the plan wants on lo and the values that it wants for sysctls.
	Occupy(t testing.TB, ns *interception.Netns, p *interception.Plan)
}

// difference shows the lines in which two dumps differ; "" when they are equal.
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

// missing lists the lines of a that b has not, or not as often.
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
