// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// Sysctl is an object of a plan: a kernel parameter of the network namespace (Documentation/networking/ip-sysctl.rst).
type Sysctl struct {
	// ID is unique in the plan.
	ID RuleID
	// Key is the parameter's path below /proc/sys/net, its parts joined by '/', such as "ipv4/conf/all/route_localnet": interfaces have
	// dots in their names.
	Key string
	// Value is what is written.
	Value int
	// Why is the constant reason.
	Why string
	// From is the provenance.
	From []Source
}

func (s Sysctl) text() string { return fmt.Sprintf("sysctl %s = %d", s.Key, s.Value) }
