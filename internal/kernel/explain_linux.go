// SPDX-License-Identifier: Apache-2.0

package kernel

import "github.com/vishvananda/netlink/nl"

// Explain has the kernel's explanations in the errors of github.com/vishvananda/netlink: "IPv6 is disabled on nexthop device", where
// there is only "permission denied" otherwise. The library has one switch for the whole process, so main calls this, before it does
// anything else: each main of a program that writes links or routes.
func Explain() { nl.EnableErrorMessageReporting = true }
