// SPDX-License-Identifier: Apache-2.0

package interception

// Facts are what a planner must know about the network namespace and cannot learn from the pod. The caller finds them out and
// passes them in, so that the same input always gives the same plan: package netfacts reads them of a namespace. The zero value is for tests:
// it is a namespace without IPv6, and where there is IPv6 all the same, the plan lets it pass uncaptured.
type Facts struct {
	// IPv6 says that the namespace's kernel has IPv6 enabled on at least one interface, or would have it on a new one
	// (net.ipv6.conf.*.disable_ipv6): then the plan captures IPv6 too, whatever addresses the pod has at this moment.
	IPv6 bool
}
